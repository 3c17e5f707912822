"""The watcher of a process's own event loop."""

from __future__ import annotations

import asyncio
import time

from loadgen.lag import LagWatcher


async def test_a_blocked_loop_is_late_at_every_tick_of_the_block() -> None:
    watcher = LagWatcher()
    watcher.start()
    await asyncio.sleep(0.05)
    time.sleep(0.5)  # noqa: ASYNC251 - blocking the loop is the point
    await asyncio.sleep(0.05)
    watcher.stop()
    # Ticks each 10 ms in a block of 0.5 s: their lateness is spread evenly up to 0.5 s, over 5/6 of all ticks.
    assert watcher.lag_s(1.0) >= 0.45
    assert 0.05 <= watcher.lag_s(0.5) <= watcher.lag_s(0.9) <= watcher.lag_s(1.0)


async def test_starting_again_starts_from_nothing() -> None:
    watcher = LagWatcher()
    watcher.start()
    await asyncio.sleep(0.02)
    time.sleep(0.3)  # noqa: ASYNC251 - blocking the loop is the point
    await asyncio.sleep(0.02)
    watcher.start()
    watcher.stop()
    assert watcher.lag_s(0.99) == 0.0


async def test_cpu_share_is_of_this_process() -> None:
    watcher = LagWatcher()
    watcher.start()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    used = watcher.cpu_share()
    await asyncio.sleep(0.2)
    watcher.stop()
    assert 0 < watcher.cpu_share() < used <= 1.2
