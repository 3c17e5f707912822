"""Is it still the server that was proven? Watched from its proof until the next preset, and nowhere else.

Somebody may stop or restart the server between two cells, or in the middle of one, or it may run out of memory and
stay. A figure of another instance, with whatever settings, would be worse than none: the cell is given up, and the
preset is proven again before the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadgen.spec import Target
from reconfig.loglines import LogLine
from reconfig.managers.protocol import Manager
from reconfig.presets import Proof
from reconfig.situation import Onlooker, Situation
from reconfig.watching import wait_for_trouble

LOOK_S = 1.0
FACTS_COMPARED = ("manager pid", "manager invocation", "listener pid", "listener started", "server random_seed")
GONE_LOOKS = 2
"""A port that is closed at so many looks in a row belongs to a server that is gone."""


class Guard:
    """Watches the proven instance and tells when it is another, or gone.

    Args:
        target: the server.
        manager: whatever runs it.
        on_log: given each further line of the server's log.

    Attributes:
        alarm: told in words, at once, by whoever measures; `None` while nobody does.
    """

    def __init__(self, target: Target, manager: Manager, on_log: Callable[[LogLine], None]) -> None:
        self.alarm: Callable[[str], None] | None = None
        self._onlooker = Onlooker(target, manager, None, None)
        self._manager = manager
        self._on_log = on_log
        self._proven: Situation | None = None
        self._trouble: str | None = None
        self._watching: list[asyncio.Task[None]] = []

    async def remember(self, proof: Proof, clean: Callable[[str], str]) -> None:
        """Takes what runs now as the proven instance and begins to watch it.

        An instance that is another already than the one the proof speaks of is trouble from the start.

        Args:
            proof: of the instance.
            clean: hides keys in the lines of its log.
        """
        await self.forget()
        self._proven = await self._onlooker.look()
        now = self._proven.identity
        other = [name for name in FACTS_COMPARED if name in now and proof.instance.get(name, now[name]) != now[name]]
        if other:
            self._trouble = f"the server was replaced right after its proof ({', '.join(other)})"
        self._watching = [
            asyncio.create_task(self._watch_manager(proof, clean)),
            asyncio.create_task(self._watch_port()),
        ]

    async def forget(self) -> None:
        """Ends watching: the server is about to be restarted, or the session is over."""
        watching, self._watching = self._watching, []
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._proven = self._trouble = None

    async def changed(self) -> str | None:
        """Returns in words how the server is not the proven one any more, or `None`."""
        if self._proven is None or self._trouble is not None:
            return self._trouble
        now = await self._onlooker.look()
        if changed := self._proven.changed(now):
            facts = ", ".join(f"{name} {now.identity[name]}" for name in changed if len(now.identity[name]) < 60)
            return f"the server was replaced by another instance ({facts or ', '.join(changed)})"
        if self._proven.listeners and not now.listeners:
            return f"nothing listens on port {self._onlooker.port} any more"
        return None

    def _tell(self, words: str) -> None:
        self._trouble = self._trouble or words
        if self.alarm is not None:
            self.alarm(self._trouble)

    async def _watch_manager(self, proof: Proof, clean: Callable[[str], str]) -> None:
        trouble = await wait_for_trouble(proof, self._manager, on_log=self._on_log, clean=clean, look_s=LOOK_S)
        self._tell(trouble.words)

    async def _watch_port(self) -> None:
        proven = self._proven.listeners if self._proven is not None else ()
        closed = 0
        while closed < GONE_LOOKS:
            await asyncio.sleep(LOOK_S)
            if proven and not any(self._onlooker.processes.alive(one) for one in proven):
                return self._tell(f"the process that listened on port {self._onlooker.port} is gone")
            closed = 0 if await self._onlooker.server.port_open() else closed + 1
        return self._tell(f"port {self._onlooker.port} is closed")
