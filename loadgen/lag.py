"""Watches a process's own event loop: how late does it run what is due, and how much CPU does it use?"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

TICK_S = 0.010
_BIN_S = 0.0001


class LagWatcher:
    """Measures the lateness of a 10 ms tick.

    A block of the loop delays every tick inside it, so each of those is counted with its own lateness: a loop blocked
    for one second is late at a hundred ticks, not at one.
    """

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._wall = 0.0
        self._cpu = 0.0

    def start(self) -> None:
        """Starts watching, from nothing."""
        self.stop()
        self._bins.clear()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Stops watching."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def lag_s(self, share: float) -> float:
        """Returns the lateness in seconds that `share` of the ticks (0 to 1) stay within; 0 before the first tick."""
        rank, seen = share * sum(self._bins.values()), 0
        for bin_, count in sorted(self._bins.items()):
            seen += count
            if seen >= rank:
                return bin_ * _BIN_S
        return 0.0

    def cpu_share(self) -> float:
        """Returns the CPU time of this process since the start of watching / the wall time."""
        wall = time.perf_counter() - self._wall
        return (time.process_time() - self._cpu) / wall if wall > 0 else 0.0

    async def _watch(self) -> None:
        due = time.perf_counter() + TICK_S
        while True:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            now = time.perf_counter()
            while due <= now:
                self._bins[int((now - due) / _BIN_S)] += 1
                due += TICK_S
