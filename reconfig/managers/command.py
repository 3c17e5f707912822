"""The server behind commands of the operator: docker, a script, another machine over ssh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from reconfig.durations import seconds
from reconfig.loglines import LogLine, plain
from reconfig.managers.config import CommandConfig
from reconfig.managers.judging import over_ssh
from reconfig.managers.protocol import LogBegin, ManagerError, ManagerStatus
from reconfig.managers.quoting import as_shell_line, with_arguments
from reconfig.managers.running import follow, run

STATUS_LIMIT_S = 15.0
PAST_S = 1.5
AGAIN_S = 2.0
AGAIN_IN_START_S = 0.5
"""Before a follower that ended is started again; while a start is watched, its first lines are waited for."""
SSH_FAILED = 255
"""What ssh ends with when it is ssh that failed, and not the command at the other end."""
_ENDED = frozenset({"exited", "dead", "failed", "removing"})
_BETWEEN = frozenset({"restarting", "created", "activating", "starting"})


class CommandManager:
    """See `Manager`."""

    kind = "command"
    restarts_server = True
    stop_first = True
    pids_are_local = False

    def __init__(self, config: CommandConfig) -> None:
        self._config = config
        self.elsewhere = over_ssh(config.stop)
        self.kills_orphans = config.kill_orphans
        self.starts_log = config.log is not None
        self._prepared: tuple[list[str], dict[str, str]] | None = None
        self._seen: list[str] = []

    async def status(self) -> ManagerStatus:
        """See `Manager`; the first word of the status command's output may be docker's state of a container."""
        if self._config.status is None:
            return ManagerStatus(state="unknown", words="no status command is given")
        try:
            ran = await run(self._config.status, limit_s=STATUS_LIMIT_S)
        except ManagerError as error:
            return ManagerStatus(state="unknown", words=str(error))
        if ran.status == SSH_FAILED and over_ssh(self._config.status):
            return ManagerStatus(state="unknown", words=f"{self._config.status[0]}: {ran.said}")
        said = plain(" ".join(ran.out.split()))
        first = said.split(" ")[0].lower() if said else ""
        if ran.status != 0 or first in _ENDED:
            state = "failed" if self._seen else "stopped"
            return ManagerStatus(state="failed" if state == "failed" else "stopped", words=said or ran.said)
        if first in _BETWEEN:
            return ManagerStatus(state="starting", words=said, restarts=max(len(self._seen) - 1, 0))
        facts = {"status": said} if said else {}
        if said and said not in self._seen:
            self._seen.append(said)
        return ManagerStatus(
            state="running", words=said or "running", facts=facts, restarts=max(len(self._seen) - 1, 0)
        )

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """See `Manager`."""
        everything = {**self._config.env, **env}
        self._prepared = (with_arguments(self._config.start, arguments, everything), everything)

    async def stop(self) -> None:
        """See `Manager`."""
        ran = await run(self._config.stop, limit_s=seconds(self._config.stop_timeout))
        if ran.status == 0:
            return
        status = await self.status()
        if status.state not in {"stopped", "failed"}:
            raise ManagerError(f"{' '.join(self._config.stop)}: {ran.said}")

    async def start(self) -> None:
        """See `Manager`."""
        if self._prepared is None:
            raise ManagerError("nothing was prepared to be started")
        command, env = self._prepared
        self._seen.clear()
        ran = await run(command, limit_s=seconds(self._config.start_timeout), env=env)
        if ran.status != 0:
            raise ManagerError(f"{' '.join(command)}: exit status {ran.status}: {ran.said}")

    async def undo(self) -> None:
        """See `Manager`."""
        self._prepared = None

    async def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        """See `Manager`; a follower that ends (a container that is replaced) is started again."""
        if self._config.log is None:
            return
        clock = asyncio.get_running_loop().time
        told = ""
        while True:
            # Commands that follow a log give its past first, all at once, each time they are started.
            silent_until = clock() + PAST_S if begin == "now" else 0.0
            try:
                async for line in follow(self._config.log):
                    if clock() >= silent_until:
                        yield line
            except ManagerError as error:
                if str(error) != told:
                    told = str(error)
                    yield LogLine(f"(the server's log can't be followed: {told}: correct [server.manager] log)")
            await asyncio.sleep(AGAIN_S if begin == "now" else AGAIN_IN_START_S)

    async def check(self) -> list[tuple[str, str, str, str]]:
        """See `Manager`."""
        status = await self.status()
        if self._config.status is None:
            return [
                (
                    "manager",
                    "warning",
                    "command: no status command, so that a dead server is only seen by its silence",
                    'add status = [...] to [server.manager], such as ["docker", "inspect", ...]',
                )
            ]
        if status.state == "unknown":
            return [("manager", "wrong", f"command: {status.words}", "correct [server.manager] status")]
        return [("manager", "good", f"command: status says {status.state} ({status.words})", "")]

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        """See `Manager`."""
        everything = {**self._config.env, **env}
        return as_shell_line(with_arguments(self._config.start, arguments, everything), {})

    async def leave(self) -> None:
        """See `Manager`; nothing of ours keeps the server."""
