"""What the load generator costs: events/s and CPU an event, beside a bare reader and stock httpx, in one run.

The server is `firehose.c`, compiled here. The machine's load changes every figure: read the ratios.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil

from loadgen.pool import WorkerPool
from loadgen.records import RequestRecord
from loadgen.spec import CellSpec, Stop, Target, WorkerHealth

FAST_STREAMS, FAST_CHUNKS = 32, 4000
PACED_STREAMS, PACED_CHUNKS, PACED_US = 64, 400, 5000
GAP_CHUNKS, GAP_US = 1000, 2000
ROUNDS = 3
EXTRA_EVENTS = 3  # finish, usage, [DONE]


class Figures:
    """What one reader did."""

    def __init__(self, name: str, events: int, wall_s: float, cpu_s: float, gap_ms: float) -> None:
        self.name = name
        self.events = events
        self.events_s = events / wall_s
        self.cpu_us = cpu_s / events * 1e6
        self.gap_ms = gap_ms


def compile_firehose(folder: Path) -> Path:
    """Compiles the server.

    Raises:
        SystemExit: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the client benchmark needs a C compiler (make system-packages)")
    program = folder / "firehose"
    source = Path(__file__).with_name("firehose.c")
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(program), str(source)], check=True)
    return program


@contextmanager
def firehose(program: Path, chunks: int, delay_us: int) -> Iterator[int]:
    """Runs the server; gives its port."""
    arguments = [str(program), str(chunks), str(delay_us)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()


def read_by(kind: str, port: int, streams: int) -> Figures:
    """Runs one of the readers to compare with."""
    command = [sys.executable, "-m", "benchmarks.readers", kind, str(port), str(streams)]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    name = {"bare": "bare aiohttp + uvloop", "stock": "stock httpx"}[kind]
    return Figures(name, done["events"], done["wall_s"], done["cpu_s"], done["gap_ms"])


async def _run_cell(port: int, streams: int, workers: int) -> tuple[list[RequestRecord], float, float, WorkerHealth]:
    """Runs one cell as in a sweep; returns records, CPU seconds of the workers, seconds of the call, and health."""
    target = Target(base_url=f"http://127.0.0.1:{port}", model="mock")
    pool = WorkerPool(workers, time.perf_counter_ns(), target)
    await pool.start()
    spec = CellSpec(cell="bench", context=60, concurrency=streams, stop=Stop(requests=streams), max_tokens=200)
    try:
        await pool.run_cell(
            CellSpec(cell="warm", context=60, concurrency=workers, stop=Stop(requests=workers)),
            lambda _: None,
            lambda _: None,
        )
        records: list[RequestRecord] = []
        processes = [psutil.Process(child.pid) for child in psutil.Process().children() if _is_worker(child)]
        before = sum(sum(process.cpu_times()[:2]) for process in processes)
        began = time.perf_counter()
        health = await pool.run_cell(spec, records.append, lambda _: None)
        took = time.perf_counter() - began
        used = sum(sum(process.cpu_times()[:2]) for process in processes) - before
    finally:
        await pool.close()
    return records, used, took, health


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "loadgen.worker" in process.cmdline()
    except psutil.Error:  # a child that has just ended
        return False


def read_by_us(port: int, streams: int, workers: int) -> tuple[Figures, float, WorkerHealth]:
    """Runs the load generator; returns its figures, its fixed cost in seconds, and how it fared."""
    records, used, took, health = asyncio.run(_run_cell(port, streams, workers))
    failed = [record for record in records if not record.valid]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(records)} requests failed: {failed[0].error}")
    events = sum(len(record.chunks) + EXTRA_EVENTS for record in records)
    wall = max(record.t for record in records) - min(record.t_send for record in records)
    gaps = [b.t - a.t for record in records for a, b in pairwise(record.chunks)]
    name = f"spectop, {workers} worker{'s' if workers > 1 else ''}"
    return Figures(name, events, wall, used, statistics.median(gaps) * 1e3), took - wall, health


def _readers(port: int, streams: int) -> list[Callable[[], Figures]]:
    return [
        lambda: read_by_us(port, streams, 1)[0],
        lambda: read_by_us(port, streams, 2)[0],
        lambda: read_by("bare", port, streams),
        lambda: read_by("stock", port, streams),
    ]


def median_of_rounds(readers: list[Callable[[], Figures]]) -> list[Figures]:
    """Lets the readers take turns, a few rounds of them; each one's median round by CPU an event."""
    rounds = [[read() for read in readers] for _ in range(ROUNDS)]
    return [sorted(figures, key=lambda row: row.cpu_us)[ROUNDS // 2] for figures in zip(*rounds, strict=True)]


def _table(title: str, rows: list[Figures], base: Figures, *, paced: bool) -> None:
    print(title)
    print(f"  {'':24} {'events/s':>10} {'CPU an event':>13} {'median gap':>11}   against {base.name}")
    for row in rows:
        ratio = row.cpu_us / base.cpu_us if paced else row.events_s / base.events_s
        of = "CPU an event" if paced else "events/s"
        gap = f"{row.gap_ms:8.3f} ms" if paced else ""
        print(f"  {row.name:24} {row.events_s:10,.0f} {row.cpu_us:10.1f} us {gap:>11}   {ratio:.2f} x {of}")


def main() -> None:
    """Prints the comparison."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_firehose(Path(folder))
        with firehose(program, FAST_CHUNKS, 0) as port:
            rows = median_of_rounds(_readers(port, FAST_STREAMS))
            _table(f"{FAST_STREAMS} streams, as fast as possible", rows, rows[-1], paced=False)
        with firehose(program, PACED_CHUNKS, PACED_US) as port:
            rows = median_of_rounds(_readers(port, PACED_STREAMS))
            _table(f"{PACED_STREAMS} streams, one event each {PACED_US / 1e3:g} ms", rows, rows[-2], paced=True)
        with firehose(program, GAP_CHUNKS, GAP_US) as port:
            measured = [read_by_us(port, PACED_STREAMS, 1) for _ in range(ROUNDS)]
            row, fixed, health = sorted(measured, key=lambda one: one[0].gap_ms)[ROUNDS // 2]
            off = row.gap_ms / (GAP_US / 1e3) - 1
            print(f"{PACED_STREAMS} streams, one event each {GAP_US / 1e3:g} ms")
            print(f"  median chunk gap {row.gap_ms:.3f} ms ({off:+.1%}), {row.events_s:,.0f} events/s, 1 worker,")
            print(f"  event loop late by {health.loop_lag_p99_s * 1e3:.1f} ms (p99), CPU share {health.cpu_share:.0%}")
        print(f"fixed cost of a cell, outside its requests: {fixed * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
