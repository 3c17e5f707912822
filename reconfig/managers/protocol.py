"""What every manager can do, and the values that it tells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from reconfig.loglines import LogLine

LogBegin = Literal["start", "running", "now"]
State = Literal["running", "starting", "stopping", "stopped", "failed", "unknown"]


class ManagerError(Exception):
    """Raised when a manager could not do what was asked; the words say what, why and the cure.

    Attributes:
        cause: "permission", "unit" or "manager".
    """

    def __init__(self, words: str, cause: str = "manager") -> None:
        super().__init__(words)
        self.cause = cause


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the server's process fares, by its manager.

    Attributes:
        state: `failed` means that it ended and nothing will start it again.
        words: the state in the manager's own words.
        pid: main process, in the manager's own numbering.
        facts: what tells one start from another (invocation, container); empty when nothing runs.
        restarts: how often it was started again by its supervisor since our start.
        cause: kind of failure where the manager knows it ("arguments", "permission", "unit", ...).
    """

    state: State
    words: str
    pid: int | None = None
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    restarts: int = 0
    cause: str | None = None


class Manager(Protocol):
    """Whatever starts and stops the server.

    Attributes:
        kind: as in the sweep file.
        restarts_server: whether it acts itself; a manual manager only tells the operator what to do.
        stop_first: whether the old instance must be stopped before the new one is started.
        pids_are_local: whether its process numbers are those of this machine.
        elsewhere: whether the server is known to run on another machine: what listens here is then not the server.
        starts_log: whether `log_lines` gives a start's log from its beginning.
        kills_orphans: whether processes that outlive their server may be killed.
    """

    kind: str
    restarts_server: bool
    stop_first: bool
    pids_are_local: bool
    elsewhere: bool
    starts_log: bool
    kills_orphans: bool

    async def status(self) -> ManagerStatus:
        """How the server fares now; never raises."""
        ...

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Writes down what the next start is to use; the running server is not touched.

        Raises:
            ManagerError: not permitted, no such unit, ...
        """
        ...

    async def stop(self) -> None:
        """Ends the running server and waits until the manager calls it gone.

        Raises:
            ManagerError: it could not be stopped.
        """
        ...

    async def start(self) -> None:
        """Starts what was prepared (restarts, where `stop` was not called), without waiting for readiness.

        Raises:
            ManagerError: it could not be started.
        """
        ...

    async def undo(self) -> None:
        """Takes back a `prepare` that was not followed by a `start`; never raises."""
        ...

    def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        """The server's log, line by line, for as long as it is asked for.

        Args:
            begin: "start" waits for the start that is asked for now, "running" reads the log of the server that runs
                from the beginning of its start, "now" only what is still to come.
        """
        ...

    async def check(self) -> list[tuple[str, str, str, str]]:
        """What it would need, checked without touching anything: (name, good|warning|wrong, what, cure)."""
        ...

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        """What the operator is told while this manager starts the server."""
        ...

    async def leave(self) -> None:
        """Lets go of the server and leaves it running."""
        ...
