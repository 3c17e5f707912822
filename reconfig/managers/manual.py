"""The operator restarts the server: what to do is said, and proven afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from reconfig.loglines import LogLine
from reconfig.managers.config import ManualConfig
from reconfig.managers.protocol import LogBegin, ManagerStatus
from reconfig.managers.quoting import as_shell_line, with_arguments


class ManualManager:
    """See `Manager`."""

    kind = "manual"
    restarts_server = False
    stop_first = False
    pids_are_local = False
    elsewhere = False
    starts_log = False
    kills_orphans = False

    def __init__(self, config: ManualConfig) -> None:
        self._config = config

    async def status(self) -> ManagerStatus:
        """See `Manager`."""
        return ManagerStatus(state="unknown", words="the operator runs the server")

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """See `Manager`."""

    async def stop(self) -> None:
        """See `Manager`."""

    async def start(self) -> None:
        """See `Manager`."""

    async def undo(self) -> None:
        """See `Manager`."""

    async def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        """See `Manager`; there is none."""
        nothing: tuple[LogLine, ...] = ()
        for line in nothing:
            yield line

    async def check(self) -> list[tuple[str, str, str, str]]:
        """See `Manager`."""
        return [("manager", "good", "manual: you will be asked to restart the server for each preset", "")]

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        """See `Manager`."""
        if self._config.command:
            command = with_arguments(self._config.command, arguments, env)
            return f"restart the server with: {as_shell_line(command, env)}"
        if arguments or env:
            return f"restart the server with its usual command and, added to it: {as_shell_line(arguments, env)}"
        return "restart the server with its usual command and nothing added to it"

    async def leave(self) -> None:
        """See `Manager`."""
