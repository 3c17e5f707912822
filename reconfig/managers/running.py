"""Running an operator's command as an argument list: its output, its end, its limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from reconfig.loglines import LineAssembler, LogLine, plain
from reconfig.managers.protocol import ManagerError

COLLECT_LIMIT_S = 5.0


class Ran(msgspec.Struct, frozen=True):
    """A command that ended."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What it said about its failure, in one line."""
        text = self.err.strip() or self.out.strip()
        return plain(" ".join(text.split("\n")[-3:])) or f"exit status {self.status}"


_NOT_PERMITTED = re.compile(
    r"(?i)access denied|permission denied|authentication (is )?required|not permitted|password is required|"
    r"may not run sudo|must be root|failed to connect to bus"
)


def not_permitted(ran: Ran) -> bool:
    """Whether a command failed for want of rights, by what it said."""
    return _NOT_PERMITTED.search(ran.said) is not None


async def run(
    command: Sequence[str], *, limit_s: float, given: bytes | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    """Runs a command to its end.

    Args:
        command: argument list; the first element is looked up in PATH.
        limit_s: after so many seconds it is killed.
        given: what it reads from its standard input.
        env: variables on top of our own.

    Raises:
        ManagerError: it can't be run, or took too long.
    """
    process = await _spawn(command, env, stdin=given is not None)
    try:
        async with asyncio.timeout(limit_s):
            out, err = await process.communicate(given)
    except TimeoutError:
        await _end(process)
        raise ManagerError(f"{' '.join(command)}: no end after {limit_s:.0f} s") from None
    except asyncio.CancelledError:
        await _end(process)
        raise
    return Ran(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def follow(command: Sequence[str]) -> AsyncIterator[LogLine]:
    """The output of a command, line by line, until it ends or nobody asks any more.

    Raises:
        ManagerError: it can't be run.
    """
    process = await _spawn(command, None, stdin=False, joined=True)
    assembler = LineAssembler()
    try:
        while data := await process.stdout.read(65_536) if process.stdout is not None else b"":
            for line in assembler.feed(data):
                yield line
        for line in assembler.flush():
            yield line
    finally:
        await _end(process)


async def _spawn(
    command: Sequence[str], env: Mapping[str, str] | None, *, stdin: bool, joined: bool = False
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if joined else asyncio.subprocess.PIPE,
            env={**os.environ, **env} if env is not None else None,
            start_new_session=True,
        )
    except OSError as error:
        raise ManagerError(f"{command[0]}: {error.strerror or error}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    # The whole group: what the command started itself (ssh, nsenter) may hold the other end of our pipes.
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await _collect(process)


async def _collect(process: asyncio.subprocess.Process) -> None:
    """Waits for a killed process, however often the caller is cancelled meanwhile: it ends at once, or not at all."""
    ended = asyncio.ensure_future(process.wait())
    deadline = time.monotonic() + COLLECT_LIMIT_S
    cancelled = False
    while not ended.done() and (left := deadline - time.monotonic()) > 0:
        try:
            await asyncio.wait({ended}, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
