"""Whether the live screen disturbs what is measured: the chunk gap of 64 paced streams, with and without a screen.

The server is `firehose.c`: one chunk each 2 ms in every stream, 32,000 a second in all. A session of one cell measures
it, as in a sweep: an engine, load processes, the log on disk; the screen is attached, and its terminal is read. The gap
is the cell's own figure, a median over its requests. Beside it stands a bare reader, alone on the machine: what it is
off by, the machine is.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.client import compile_firehose, firehose, read_by
from loadgen.figures import CellFigures
from sessions.state import SessionState
from sessions.sweep import LoadTable, MatrixTable, ServerTable, Sweep, TelemetryTable
from tests.sessions.engines import DDTREE, Run
from tests.sessions.terminals import SPECTOP, Terminal
from tui.words import english

STREAMS, CHUNKS, GAP_US = 64, 1000, 2000
ASKED_MS = GAP_US / 1e3
REQUESTS = 4 * STREAMS
ROUNDS = 3
LIMIT = 0.05


def sweep(port: int, workers: int) -> Sweep:
    """One cell of 64 streams."""
    return Sweep(
        label="gap",
        server=ServerTable(base_url=f"http://127.0.0.1:{port}", model="mock", dialect="openai"),
        presets=(DDTREE,),
        matrix=MatrixTable(contexts=(64,), concurrency=(STREAMS,), max_tokens=CHUNKS, requests=REQUESTS, warmup=0),
        load=LoadTable(workers=workers),
        telemetry=TelemetryTable(gpus="none"),
        as_it_stands=True,
    )


async def measure(port: int, folder: Path, *, workers: int, screen: bool) -> SessionState:
    """Runs the session to its end, with the screen attached from its beginning or without one."""
    run = Run(sweep(port, workers), folder)
    terminal = None
    run.start()
    try:
        client = await run.client()
        if screen:
            terminal = Terminal([SPECTOP, "attach", str(run.folder)])
            await asyncio.to_thread(terminal.shows, "tok/s")
        state = await run.until(client, lambda _: False)
        await client.close()
        await run.wait()
        return state
    finally:
        if terminal is not None:
            terminal.kill()
        run.end()


def figures_of(state: SessionState) -> CellFigures:
    """Returns the figures of the only cell.

    Raises:
        SystemExit: it was not measured.
    """
    for cell in state.cells.values():
        if cell.figures is not None:
            return cell.figures
    raise SystemExit(f"the cell was not measured: {[news.words for news in state.news]}")


def _paced(folder: Path) -> AbstractContextManager[int]:
    return firehose(compile_firehose(folder), CHUNKS, GAP_US)


def _off(gap_ms: float) -> str:
    return f"{gap_ms:6.3f} ms ({gap_ms / ASKED_MS - 1:+.1%})"


def main() -> None:
    """Prints the gaps of all, a few rounds in turn."""
    ways = ((1, False), (1, True), (2, True))
    found: dict[int, list[float]] = {workers: [] for workers, _ in ways}
    print(f"{STREAMS} streams, one chunk each {ASKED_MS:g} ms: median gap and tok/s of the cell")
    with tempfile.TemporaryDirectory(prefix="gap-") as made, _paced(Path(made)) as port:
        for _ in range(ROUNDS):
            bare = read_by("bare", port, STREAMS)
            cost = f"{bare.cpu_us:.0f} us CPU an event"
            print(f"  {'bare reader':24} {_off(bare.gap_ms)}  {bare.events_s:8,.0f} events/s, {cost}")
            for workers, screen in ways:
                figures = figures_of(asyncio.run(measure(port, Path(made), workers=workers, screen=screen)))
                gap = (figures.chunk_gap_s.p50 or 0.0) * 1e3
                if screen:
                    found[workers].append(gap)
                name = f"{english(workers, 'worker')}{', live screen' if screen else ''}"
                client = figures.client
                health = (
                    f"CPU {client.cpu_share or 0.0:.0%} of a core, late by {(client.loop_lag_p99_s or 0) * 1e3:.1f} ms"
                )
                marks = " ".join(sorted(m.kind.value for m in figures.marks)) or "no marks"
                print(f"  {name:24} {_off(gap)}  {figures.throughput_tok_s or 0.0:8,.0f} tok/s, {health}; {marks}")
    for workers, gaps in found.items():
        worst = max(abs(gap / ASKED_MS - 1) for gap in gaps)
        verdict = "within" if worst <= LIMIT else "beyond"
        print(
            f"beside the live screen, {english(workers, 'worker')}: off by {worst:.1%} at most, {verdict} {LIMIT:.0%}"
        )
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
