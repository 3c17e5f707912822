"""What a terminal costs the engine that stops reading, as after Ctrl-S: the same sweep with and without one.

Both are run side by side in time, one after the other, in ten-second cells of 1, 8 and 32 streams; the stalled terminal
has the live screen open and is not read for the whole sweep. The lateness of the engine's event loop is the engine's
own measurement, the figures are those of its cells. Beside them a process runs an event loop that does nothing: its
lateness is the machine's, and no loop on it can be more punctual.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from sessions.state import SessionState
from sessions.sweep import Seconds, Sweep
from tests.sessions.engines import DDTREE, Run, sweep_on_simserver
from tests.sessions.terminals import SPECTOP, Terminal

CELL_S = 10.0
REPEATS = 2
LIMIT_S = 0.020


def sweep() -> Sweep:
    """Six cells of ten seconds."""
    small = sweep_on_simserver(DDTREE, speed=1.0, max_tokens=128)
    matrix = replace(small.matrix, concurrency=(1, 8, 32), duration=Seconds(CELL_S), repeats=REPEATS)
    return replace(small, matrix=matrix)


IDLE = """
import asyncio, sys
from loadgen.lag import LagWatcher

async def watch():
    watcher = LagWatcher()
    watcher.start()
    await asyncio.to_thread(sys.stdin.read)
    print(watcher.lag_s(0.99))

asyncio.run(watch())
"""


class Floor:
    """The lateness of an idle event loop, meanwhile, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def p99_s(self) -> float:
        """Ends it and returns the 99th percentile in seconds."""
        return float(self._process.communicate("")[0])


async def run(sessions: Path, *, stalled: bool) -> tuple[SessionState, float]:
    """Runs the sweep; returns its last state, and the seconds that a terminal was stalled."""
    one = Run(sweep(), sessions)
    one.start()
    terminal, stalled_s = None, 0.0
    try:
        client = await one.client()
        if stalled:
            terminal = Terminal([SPECTOP, "attach", str(one.folder)])
            await asyncio.to_thread(terminal.shows, "b8t4-w2048")
            terminal.stall()
        began = time.monotonic()
        async for _ in client.states():
            pass
        stalled_s = time.monotonic() - began
        await client.close()
        await one.wait()
        return client.state, stalled_s if stalled else 0.0
    finally:
        if terminal is not None:
            terminal.kill()
        one.end()


def _row(name: str, state: SessionState, stalled_s: float) -> tuple[str, float]:
    figures = [cell.figures for cell in state.cells.values() if cell.figures is not None]
    engine = max(f.client.engine_lag_p99_s or 0.0 for f in figures)
    workers = max(f.client.loop_lag_p99_s or 0.0 for f in figures)
    rates = " ".join(f"{f.throughput_tok_s:8.0f}" for f in figures)
    row = f"{name:12} {stalled_s:7.0f} s {engine * 1e3:9.1f} ms {workers * 1e3:9.1f} ms   {rates}"
    return row, engine


def main() -> None:
    """Prints a table of both."""
    with tempfile.TemporaryDirectory(prefix="stalled-") as folder:
        rows, lags, floors = [], [], []
        for name, stalled in (("undisturbed", False), ("stalled", True)):
            floor = Floor()
            state, stalled_s = asyncio.run(run(Path(folder), stalled=stalled))
            floors.append(floor.p99_s())
            row, lag = _row(name, state, stalled_s)
            lags.append(lag)
            own = [news.words for news in state.news if "event loop was" in news.words]
            rows += [row, f"{'':12} whole session: {own[-1] if own else 'not finished'}"]
            rows.append(f"{'':12} an idle loop meanwhile: {floors[-1] * 1e3:.1f} ms late (p99)")
    print(f"{'terminal':12} {'stalled':>9} {'engine lag':>12} {'worker lag':>12}   tok/s of each cell")
    print(f"{'':12} {'':>9} {'worst p99':>12} {'worst p99':>12}")
    print("\n".join(rows))
    verdict = "within" if lags[1] < LIMIT_S else "beyond"
    machine = "" if floors[1] < LIMIT_S else "; so is an idle loop: this machine is too busy to tell"
    print(f"beside a stalled terminal the engine's lag p99 is {verdict} {LIMIT_S * 1e3:.0f} ms{machine}")
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
