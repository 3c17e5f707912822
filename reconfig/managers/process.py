"""The server as a child of ours: own session, output in a file, SIGTERM first and SIGKILL after a limit.

The child writes to a file and not to a pipe, so that it outlives us unharmed. What is needed to find it again is kept
in the user's state folder, so that a later run with the same command takes it over once its owner is gone. Whoever was
killed between the start and that note is covered as well: the child carries a mark in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec

from reconfig.durations import seconds
from reconfig.loads import state_folder
from reconfig.loglines import LineAssembler, LogLine
from reconfig.managers.config import ProcessConfig
from reconfig.managers.protocol import LogBegin, ManagerError, ManagerStatus
from reconfig.managers.quoting import as_shell_line, with_arguments
from reconfig.processes import LocalProcesses, ProcessSeen

MARK = "SPECTOP_STARTED_BY"
"""Environment variable of every child: what was started, and its owner's number and start time."""
LOOK_EVERY_S = 0.1
LAST_CHANCE_S = 5.0


class _Kept(msgspec.Struct, frozen=True):
    """What is kept of a child: itself, whose child it is, its log, and where in the file its log began."""

    process: ProcessSeen
    owner: ProcessSeen
    log: str
    log_start: int


class ProcessManager:
    """See `Manager`."""

    kind = "process"
    restarts_server = True
    stop_first = True
    pids_are_local = True
    elsewhere = False
    starts_log = True

    def __init__(self, config: ProcessConfig, *, state_dir: Path) -> None:
        self._config = config
        self.kills_orphans = True  # the whole session is ours
        self._own_log = Path(config.log) if config.log is not None else state_dir / "server.log"
        self._log = self._own_log
        place = [*config.command, config.cwd or str(Path.cwd())]
        self._name = hashlib.sha256("\0".join(place).encode()).hexdigest()[:16]
        self._kept_at = state_folder() / "processes" / f"{self._name}.json"
        self._cwd = config.cwd
        self._stop_limit_s = seconds(config.stop_timeout)
        self._table = LocalProcesses()
        self._child: subprocess.Popen[bytes] | None = None
        self._process: ProcessSeen | None = None
        self._log_start = 0
        self._prepared: tuple[list[str], dict[str, str]] | None = None
        self._find_again()

    async def status(self) -> ManagerStatus:
        """See `Manager`."""
        if self._child is not None:
            ended = self._child.poll()
            if ended is not None:
                return ManagerStatus(state="failed", words=_ended(ended), pid=self._child.pid)
        if self._process is None:
            return ManagerStatus(state="stopped", words="no process of ours runs")
        if self._child is None and not self._table.alive(self._process):
            return ManagerStatus(state="stopped", words=f"{self._process.words} is gone")
        return ManagerStatus(
            state="running",
            words=f"{self._process.words} runs",
            pid=self._process.pid,
            facts={"pid": str(self._process.pid), "started": f"{self._process.started:.2f}"},
        )

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """See `Manager`."""
        command = with_arguments(self._config.command, arguments, env)
        self._prepared = (command, {**self._config.env, **env})
        if self._cwd is not None and not _is_folder(self._cwd):
            raise ManagerError(f'[server.manager] cwd = "{self._cwd}": no such folder')

    async def stop(self) -> None:
        """Ends the child: SIGTERM to its main process, after the limit SIGKILL; then what is left of its session."""
        process = self._process
        if process is None:
            return
        family = self._table.family(process.pid)
        # Only the main process first: a server that drains still needs its workers.
        self._table.signal(process, signal.SIGTERM)
        if not await self._gone([process], self._stop_limit_s):
            self._table.signal(process, signal.SIGKILL)
        rest = [member for member in family if member.pid != process.pid]
        rest += [member for member in self._table.family(process.pid) if member not in rest and member != process]
        await self._gone([process], LAST_CHANCE_S)
        if not await self._gone(rest, 1.0):
            for number in (signal.SIGTERM, signal.SIGKILL):
                for member in rest:
                    self._table.signal(member, number)
                if await self._gone(rest, LAST_CHANCE_S):
                    break
        left = [member.words for member in [process, *rest] if self._table.alive(member)]
        if left:
            raise ManagerError(f"still running after SIGKILL: {', '.join(left)}")
        self._child = None
        self._process = None
        self._kept_at.unlink(missing_ok=True)

    async def start(self) -> None:
        """See `Manager`."""
        if self._prepared is None:
            raise ManagerError("nothing was prepared to be started")
        command, env = self._prepared
        self._log = self._own_log
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._spawn(command, env)
        except OSError as error:
            raise ManagerError(f"{command[0]}: {error.strerror or error}: see [server.manager] command") from error

    async def undo(self) -> None:
        """See `Manager`."""
        self._prepared = None

    async def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        """See `Manager`."""
        assembler = LineAssembler()
        position = _size(self._log) if begin == "now" else self._log_start
        while True:
            data = _read_from(self._log, position)
            if data:
                position += len(data)
                for line in assembler.feed(data):
                    yield line
            elif self._child is not None and self._child.poll() is not None:
                for line in assembler.flush():
                    yield line
                return
            else:
                await asyncio.sleep(LOOK_EVERY_S)

    async def check(self) -> list[tuple[str, str, str, str]]:
        """See `Manager`."""
        program = self._config.command[0]
        found = shutil.which(program, path={**os.environ, **self._config.env}.get("PATH"))
        if found is None:
            return [("manager", "wrong", f"{program}: no such program", "correct [server.manager] command")]
        return [("manager", "good", f"process: {found} can be started", "")]

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        """See `Manager`."""
        return as_shell_line(with_arguments(self._config.command, arguments, env), {**self._config.env, **env})

    async def leave(self) -> None:
        """See `Manager`."""
        if self._child is not None and self._child.poll() is None:
            # Told that it ended, the object does not complain when it is collected before the child ends.
            self._child.returncode = 0
        self._child = None

    def _spawn(self, command: list[str], env: dict[str, str]) -> None:
        owner = self._table.seen(os.getpid()) or ProcessSeen(os.getpid(), 0.0)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env={**os.environ, **env, MARK: f"{self._name}:{owner.pid}:{owner.started!r}"},
                start_new_session=True,
            )
        self._process = self._table.seen(self._child.pid) or ProcessSeen(self._child.pid, time.time())
        kept = _Kept(self._process, owner, str(self._log.resolve()), self._log_start)
        partial = self._kept_at.with_suffix(f".{os.getpid()}.part")
        with contextlib.suppress(OSError):  # a full disk stops no server; the mark finds it again
            self._kept_at.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(kept))
            partial.replace(self._kept_at)

    def _find_again(self) -> None:
        kept = self._noted()
        if kept is None or not self._table.alive(kept.process):
            kept = self._marked()
        if kept is not None and (kept.owner.pid == os.getpid() or not self._table.alive(kept.owner)):
            self._process, self._log, self._log_start = kept.process, Path(kept.log), kept.log_start

    def _noted(self) -> _Kept | None:
        try:
            return msgspec.json.decode(self._kept_at.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None

    def _marked(self) -> _Kept | None:
        for process, mark in self._table.marked(MARK):
            name, _, owner = mark.partition(":")
            number, _, started = owner.partition(":")
            if name == self._name and number.isdigit() and started.replace(".", "", 1).isdigit():
                whose = ProcessSeen(int(number), float(started))
                return _Kept(process, whose, str(self._log), _size(self._log))
        return None

    async def _gone(self, processes: Sequence[ProcessSeen], limit_s: float) -> bool:
        clock = asyncio.get_running_loop().time
        until = clock() + limit_s
        while True:
            if self._child is not None:
                self._child.poll()
            if not any(self._table.alive(process) for process in processes):
                return True
            if clock() >= until:
                return False
            await asyncio.sleep(min(LOOK_EVERY_S, limit_s))


def _ended(status: int) -> str:
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with status {status}"


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_from(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(1_000_000)
    except OSError:
        return b""
