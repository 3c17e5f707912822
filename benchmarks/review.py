"""Opens a very large session: a million requests (ten million chunks) and a day of events and 8-GPU samples.

Prints wall time, CPU time and peak memory of a fresh process for each way of looking at it, before the session was
ended cleanly (logs only) and after (Parquet beside them). On a busy machine the CPU time is the figure to read. The
limits that are meant to hold: opened in under 2 s and under 1 GB.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from loadgen.figures import CellFigures, Interval, Percentiles, RequestCounts
from loadgen.records import AcceptanceSource, Chunk, Outcome, RequestRecord
from loadgen.spec import CellProgress
from reconfig.presets import Preset
from sessions import events as ev
from sessions.events import CellKey
from sessions.folder import create, describe_host
from telemetry.samples import GpuReading, GpuSample, ServerSample

REQUESTS = 1_000_000
CHUNKS = 10
DAY_S = 86_400
PROGRESS_HZ = 4
RUNS = 3
PRESETS = 9
POINTS = [(context, concurrency) for context in (60, 1024, 4096, 8192) for concurrency in (1, 8, 32, 64)]
REPEATS = 3

_LOOKS = {
    "spectop show": """
from io import StringIO
from sessions.review import open_session
from sessions.show import print_session
out = StringIO()
print_session(open_session(folder), out)
assert "cells measured" in out.getvalue()
""",
    "spectop show --json": """
import msgspec
from sessions.review import open_session
from sessions.show import session_json
session = open_session(folder)
assert len(msgspec.json.encode(session_json(session.state, folder, info=session.info))) > 100_000
""",
    "spectop view (open at its end)": """
from sessions.replay import Replay
replay = Replay(folder)
assert replay.seek(replay.length_s).cells
""",
    "figures of all requests, by cell": """
import polars as pl
from sessions.tables import scan_requests
found = (scan_requests(folder).group_by("cell").agg(pl.len(), pl.col("n_out").sum(), pl.col("ttft").median())
    .collect(engine="streaming"))
assert found["len"].sum() == 1_000_000
""",
    "one cell's requests with their chunks": """
import polars as pl
from sessions.tables import scan_requests
key = scan_requests(folder).select(pl.col("cell").first()).collect(engine="streaming").item()
found = scan_requests(folder).filter(pl.col("cell") == key).collect(engine="streaming")
assert found["chunks"].list.len().sum() == 10 * found.height > 0
""",
    "GPU power over the day": """
from sessions.report.machine import gpu_pictures
assert len(gpu_pictures(folder)) == 2
""",
}

_WRITE = """
from sessions.tables import write_parquet
assert write_parquet(folder) == []
"""

_CHILD = """
import resource, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime
began = time.perf_counter()
{look}
took = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_SELF)
print(took, used.ru_utime + used.ru_stime - cpu, used.ru_maxrss / 1024)
"""


def main() -> None:
    """Makes the session, measures every way of looking at it, and removes it."""
    root = Path(tempfile.mkdtemp(prefix="spectop-review-"))
    try:
        began = time.perf_counter()
        folder = make_session(root)
        size = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
        print(f"made in {time.perf_counter() - began:.0f} s: {size:.0f} MB of logs, {REQUESTS:,} requests,")
        print(f"{REQUESTS * CHUNKS:,} chunks, {DAY_S * PROGRESS_HZ:,} progress events, {DAY_S:,} samples of 8 GPUs")
        _measure(folder, "logs only")
        seconds, cpu, memory = _run(folder, _WRITE)
        small = sum(p.stat().st_size for p in folder.glob("*.parquet")) / 1e6
        print(
            f"Parquet written in {seconds:.0f} s ({cpu:.0f} s of CPU), peak {memory:.0f} MB of memory: {small:.0f} MB"
        )
        _measure(folder, "with Parquet")
    finally:
        shutil.rmtree(root)


def _measure(folder: Path, state: str) -> None:
    print(f"{state:40} wall s: best  median   CPU s   peak MB   ({RUNS} runs)")
    for name, look in _LOOKS.items():
        runs = [_run(folder, look) for _ in range(RUNS)]
        wall = [r[0] for r in runs]
        cpu, memory = min(r[1] for r in runs), max(r[2] for r in runs)
        print(f"  {name:40} {min(wall):10.2f} {statistics.median(wall):7.2f} {cpu:7.2f} {memory:9.0f}")


def _run(folder: Path, look: str) -> tuple[float, float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(look=look), str(folder)], capture_output=True, text=True, check=True
    )
    seconds, cpu, memory = done.stdout.split()
    return float(seconds), float(cpu), float(memory)


def make_session(root: Path) -> Path:
    """Writes the session's files and returns its folder."""
    presets = tuple(
        Preset(name="none" if i == 0 else f"b{4 * i}t4", algorithm="DDTREE" if i else "NONE") for i in range(PRESETS)
    )
    keys = [
        CellKey(preset=p.name, context=x, concurrency=c, repetition=r)
        for p in presets
        for r in range(1, REPEATS + 1)
        for x, c in POINTS
    ]
    folder = create(root, "large", describe_host("large", gpus=("NVIDIA RTX PRO 6000",) * 8))
    _write_requests(folder, keys)
    _write_samples(folder)
    _write_events(folder, presets, keys)
    return folder


def _write_requests(folder: Path, keys: list[CellKey]) -> None:
    record = RequestRecord(
        t=0.0,
        cell="CELL",
        rid="RID",
        purpose="cell",
        category="code",
        t_due=0.0,
        t_send=0.0,
        ttft=0.2137,
        ttfo=0.2137,
        e2e=0.6511,
        n_out=38,
        n_first=2,
        n_first_known=True,
        prompt_tokens=4096,
        cached_tokens=0,
        finish_reason="length",
        outcome=Outcome.OK,
        http_status=200,
        chunks=tuple(Chunk(round(0.2137 + 0.0486 * i, 6), 2 + i % 5) for i in range(CHUNKS)),
        verify_steps=10,
        correct_drafts=28,
        proposed_drafts=80,
        accepted_histogram=(1, 2, 2, 1, 2, 1, 1),
        acceptance_source=AcceptanceSource.PER_REQUEST,
        max_tokens=512,
    )
    line = msgspec.json.encode(record).decode()
    head, _, rest = line.partition('"CELL"')
    middle, _, tail = rest.partition('"RID"')
    head = head.removeprefix('{"t":0.0')
    with (folder / "requests.jsonl").open("w") as file:
        for i in range(REQUESTS):
            t = DAY_S * i / REQUESTS
            ttft = tail.replace("0.2137", f"{0.15 + i % 997 / 5000:.4f}", 1)
            file.write(f'{{"t":{t:.6f}{head}"{keys[i * len(keys) // REQUESTS].text}"{middle}"r{i}"{ttft}\n')


def _write_samples(folder: Path) -> None:
    encode = msgspec.json.Encoder().encode
    with (folder / "gpus.jsonl").open("wb") as gpus, (folder / "server.jsonl").open("wb") as server:
        for t in range(DAY_S):
            readings = tuple(
                GpuReading(
                    index=i,
                    uuid=f"GPU-{i}",
                    name="NVIDIA RTX PRO 6000",
                    pci_bus_id=f"0000:{i:02d}:00.0",
                    memory_used_bytes=94_600_000_000,
                    memory_total_bytes=102_600_000_000,
                    memory_kind="v2",
                    utilisation=0.97,
                    power_w=400.0 + (t + i) % 50,
                    power_limit_w=600.0,
                    temperature_c=70.0 + i,
                    sm_clock_mhz=2400.0,
                    memory_clock_mhz=1700.0,
                    throttle=(),
                    energy_j=400.0 * t,
                )
                for i in range(8)
            )
            gpus.write(encode(GpuSample(t=float(t), source="nvml", gpus=readings, driver="595.10")) + b"\n")
            server.write(encode(ServerSample(t=float(t), source="sglang", running=32, waiting=0)) + b"\n")


def _write_events(folder: Path, presets: tuple[Preset, ...], keys: list[CellKey]) -> None:
    encode = msgspec.json.Encoder().encode
    step = DAY_S / len(keys)
    with (folder / "events.jsonl").open("wb") as file:

        def write(event: ev.AnyEvent) -> None:
            file.write(encode(event) + b"\n")

        write(
            ev.SessionStarted(
                t=0.0,
                at="2026-11-03T10:00:00Z",
                label="large",
                session=folder.name,
                base_url="http://127.0.0.1:30000",
                model="kimi-k2.6",
                presets=presets,
                cells=tuple(keys),
                reference="none",
                repeats=REPEATS,
            )
        )
        for number, key in enumerate(keys):
            began = number * step
            write(ev.CellStarted(t=began, cell=key, run=key.text))
            for i in range(int(step * PROGRESS_HZ)):
                t = began + i / PROGRESS_HZ
                progress = CellProgress(
                    cell=key.text,
                    phase="steady",
                    t=t,
                    started=i,
                    finished=i,
                    failed=0,
                    running=32,
                    total=2000,
                    share_done=i / (step * PROGRESS_HZ),
                    tokens=40 * i,
                    tok_s=1600.0 + i % 40,
                    acceptance_length=4.3,
                )
                write(ev.CellProgressed(t=t, at="2026-11-03T10:00:00Z", cell=key, progress=progress))
            tok_s = 80.0 * key.concurrency**0.75 * (1 + presets.index(next(p for p in presets if p.name == key.preset)))
            figures = CellFigures(
                throughput_tok_s=tok_s,
                throughput_ci95=Interval(tok_s * 0.98, tok_s * 1.02),
                ttft_s=Percentiles(0.2, 0.3, 0.4, 2314),
                acceptance_length=4.3,
                requests=RequestCounts(valid=2314),
            )
            write(ev.CellEnded(t=began + step, cell=key, run=key.text, outcome="measured", figures=figures))
        write(ev.SessionEnded(t=float(DAY_S), at="2026-11-04T10:00:00Z", status="finished", words="all cells done"))


if __name__ == "__main__":
    main()
