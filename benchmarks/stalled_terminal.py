"""What a terminal costs the engine that stops reading, as after Ctrl-S: the same sweep with and without one.

Both are run side by side in time, one after the other, in ten-second cells of 1, 8 and 32 streams; the stalled terminal
has the live screen open and is not read for the whole sweep. The lateness of the engine's event loop is the engine's
own measurement, the figures are those of its cells. The machine's load changes both alike: read the differences.
"""

from __future__ import annotations

import asyncio
import os
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
        rows = []
        for name, stalled in (("undisturbed", False), ("stalled", True)):
            state, stalled_s = asyncio.run(run(Path(folder), stalled=stalled))
            rows.append(_row(name, state, stalled_s))
            own = [news.words for news in state.news if "event loop was" in news.words]
            rows.append((f"{'':12} whole session: {own[-1] if own else 'not finished'}", 0.0))
    print(f"{'terminal':12} {'stalled':>9} {'engine lag':>12} {'worker lag':>12}   tok/s of each cell")
    print(f"{'':12} {'':>9} {'worst p99':>12} {'worst p99':>12}")
    for row, _ in rows:
        print(row)
    worst = rows[2][1]
    verdict = "within" if worst < LIMIT_S else "OVER"
    print(
        f"engine lag p99 beside a stalled terminal is {verdict} {LIMIT_S * 1e3:.0f} ms (load {os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    main()
