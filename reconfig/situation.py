"""What runs at one moment: by its manager, on its port, by the server's own word.

The only place that decides whether two looks saw the same instance.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from loadgen.spec import Target
from reconfig.managers.protocol import Manager
from reconfig.processes import LocalProcesses, ProcessSeen, ProcessTable, is_this_machine
from reconfig.server import HttpServer, ServerFacts, ServerView

LOOK_LIMIT_S = 4.0
"""A server that hangs must not hold up its own restart."""


class Situation(msgspec.Struct, frozen=True):
    """One look: the manager's facts, who listens on the port, what the server says of its start and its version."""

    facts: dict[str, str]
    listeners: tuple[ProcessSeen, ...]
    instance: dict[str, str]
    version: str | None = None
    pid: int | None = None

    @property
    def identity(self) -> dict[str, str]:
        """All facts that identify the instance, named by where they are from."""
        known = {f"manager {name}": text for name, text in self.facts.items()}
        for listener in self.listeners[:1]:
            known["listener pid"] = str(listener.pid)
            known["listener started"] = f"{listener.started:.2f}"
        told = self.instance if self.version is None else {**self.instance, "version": self.version}
        return {**known, **{f"server {name}": text for name, text in told.items()}}

    def changed(self, later: Situation) -> list[str]:
        """The facts that a later look shows otherwise."""
        before, after = self.identity, later.identity
        return [name for name in before if name in after and after[name] != before[name]]


class Onlooker:
    """Looks at manager, port and server.

    Args:
        target: the server; `manager`: whatever runs it.
        server, processes: who is asked, where that is not HTTP and this machine.
    """

    def __init__(
        self, target: Target, manager: Manager, server: ServerView | None, processes: ProcessTable | None
    ) -> None:
        parts = urlsplit(target.base_url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.local = (processes is not None or is_this_machine(self.host)) and not manager.elsewhere
        self.processes: ProcessTable = processes or LocalProcesses()
        self.server: ServerView = server or HttpServer(target)
        self.manager = manager

    async def look(self) -> Situation:
        """What runs now."""
        status, (instance, version), listeners = await asyncio.gather(
            self.manager.status(),
            self._told(),
            asyncio.to_thread(self.listeners),  # looks at every process of the machine
        )
        return Situation(
            facts=dict(status.facts), listeners=listeners, instance=instance, version=version, pid=status.pid
        )

    async def _told(self) -> tuple[dict[str, str], str | None]:
        """What the server says of its start, and its version."""
        if not await self.server.port_open():
            return {}, None
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                if (facts := await self.server.facts()) is not None:
                    return facts.instance, facts.look_up("version")
                return {}, await self.server.version()
        except TimeoutError:
            return {}, None

    async def server_facts(self) -> ServerFacts | None:
        """The server's own word, `None` when it does not answer."""
        if not await self.server.port_open():
            return None
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                return await self.server.facts()
        except TimeoutError:
            return None

    async def opened(self) -> bool:
        """Whether the server itself has opened its port: one that is forwarded is open whatever the server does."""
        if not await self.server.port_open():
            return False
        if not await asyncio.to_thread(self.forwarded):
            return True
        return (await self.server.health()).status is not None

    def forwarded(self) -> bool:
        """Whether the address is this machine's and the server another's (`ssh -L`, a forwarded port)."""
        if self.manager.elsewhere:
            return is_this_machine(self.host)
        return self.local and any(process.forwards for process in self.processes.listeners(self.port))

    def listeners(self) -> tuple[ProcessSeen, ...]:
        """Who listens on the server's port, where that can be seen; who only forwards it is not the server."""
        if not self.local:
            return ()
        return tuple(process for process in self.processes.listeners(self.port) if not process.forwards)

    def family(self, pid: int | None) -> tuple[ProcessSeen, ...]:
        """The server's processes, where the manager's numbers are this machine's."""
        if pid is None or not (self.local and self.manager.pids_are_local):
            return ()
        return self.processes.family(pid)

    def environment(self, pid: int | None) -> dict[str, str] | None:
        """The environment that the server really has, where it may be read."""
        if pid is None or not (self.local and self.manager.pids_are_local):
            return None
        return self.processes.environment(pid)

    def named(self, pid: int) -> str:
        """A process by number and, where it can be seen, name."""
        seen = self.processes.seen(pid) if self.local else None
        return seen.words if seen is not None else f"pid {pid}"
