"""A systemd drop-in file, here or on another machine: there whole, or not at all.

It is written under another name first (one that systemd does not read) and then renamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from reconfig.managers.protocol import ManagerError
from reconfig.managers.running import not_permitted, run

LIMIT_S = 20.0


class DropIn:
    """One drop-in file.

    Args:
        folder: `.../UNIT.service.d`.
        name: the file's name; ends with ".conf".
        before: what stands before `tee`, `mv`, ...; empty for a file of this machine that we may write.
    """

    def __init__(self, folder: str, name: str, before: tuple[str, ...]) -> None:
        self.path = f"{folder}/{name}"
        self._folder = folder
        self._before = before
        self._previous: bytes | None = None
        self._written = False

    async def write(self, text: str) -> None:
        """Puts the file in place and remembers what was there before.

        Raises:
            ManagerError: it can't be written.
        """
        self._previous = await self._read()
        self._written = True
        await self._place(text.encode())

    async def put_back(self) -> bool:
        """Restores what was there before the last `write`; whether anything was changed.

        Raises:
            ManagerError: it can't be written.
        """
        if not self._written:
            return False
        self._written = False
        if self._previous is None:
            await self.remove()
        else:
            await self._place(self._previous)
        return True

    async def remove(self) -> None:
        """Takes the file away; one that is not there is no fault.

        Raises:
            ManagerError: not permitted.
        """
        if self._before:
            await self._command("rm", "-f", self.path)
            return
        _unlink(Path(self.path))

    async def problem(self) -> str | None:
        """Why it could not be written, found without changing anything; `None` when it could."""
        if self._before:
            try:
                ran = await run([*self._before, "true"], limit_s=LIMIT_S)
            except ManagerError as error:
                return str(error)
            return None if ran.status == 0 else f"{' '.join(self._before)} true: {ran.said}"
        place = _nearest(Path(self._folder))
        return None if os.access(place, os.W_OK) else f"{place}: not writable by us"

    async def _read(self) -> bytes | None:
        if self._before:
            ran = await run([*self._before, "cat", self.path], limit_s=LIMIT_S)
            return ran.out.encode() if ran.status == 0 else None
        return _bytes_of(Path(self.path))

    async def _place(self, data: bytes) -> None:
        if self._before:
            partial = f"{self.path}.part"
            await self._command("mkdir", "-p", self._folder)
            try:
                await self._command("tee", partial, given=data)
                await self._command("mv", "-f", partial, self.path)
            except BaseException:
                with contextlib.suppress(ManagerError):
                    await asyncio.shield(self._command("rm", "-f", partial))
                raise
            return
        _replace(Path(self.path), data)

    async def _command(self, *words: str, given: bytes | None = None) -> None:
        ran = await run([*self._before, *words], limit_s=LIMIT_S, given=given)
        if ran.status != 0:
            said = f"{' '.join([*self._before, *words])}: {ran.said}"
            if not_permitted(ran):
                raise ManagerError(f"not permitted: {said}: correct write in [server.manager]", "permission")
            raise ManagerError(said)


def _replace(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=".spectop-", suffix=".part")
        partial = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(error, path) from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(error, path) from error


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _refused(error: OSError, path: Path) -> ManagerError:
    cure = 'run as root, or give write = ["sudo", "-n"] in [server.manager]'
    if isinstance(error, PermissionError):
        return ManagerError(f"not permitted: {path} can't be written: {cure}", "permission")
    return ManagerError(f"{path}: {error.strerror or error}")
