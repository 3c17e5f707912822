"""What telemetry costs and how near it comes: a poll of eight GPUs, a hanging driver, a `/metrics`, energy a token.

The driver is the tests' stub of its library, under the real binding, with the times that real calls take.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from telemetry import gauges
from telemetry.gpus import NvmlSource
from telemetry.ownership import ServerHint
from telemetry.poller import Poller
from telemetry.windows import gpu_window
from tests.telemetry.captured import body
from tests.telemetry.stub_nvml.stub import COUNT, GIB, StubState, compile_library
from tests.telemetry.test_simserver import Watching, client_of, exact, generate, simserver, tokens_between

POLLS = 20
HANG_S = 10.0
TURN_S = 0.002
CALL_US = {"nvmlDeviceGetMemoryInfo_v2": 11.6, "nvmlDeviceGetUtilizationRates": 2.5}
OTHER_US = 60.0
PROCESSES_US = 4500.0
OTHERS = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetMigMode",
)


def main() -> None:
    """Runs all four and prints their figures."""
    with tempfile.TemporaryDirectory(prefix="spectop-bench-") as folder:
        place = Path(folder)
        library = compile_library(place / "lib")
        _poll_cost(library, place)
        _hanging(library, place)
    _parsing()
    asyncio.run(_energy())


def realistic(place: Path) -> StubState:
    """Returns a state in which each call takes the time it takes on a real machine."""
    state = StubState(place / "nvml.state")
    for call, microseconds in CALL_US.items():
        state.spin(call, microseconds)
    for call in OTHERS:
        state.spin(call, OTHER_US)
    state.spin("nvmlDeviceGetComputeRunningProcesses_v3", PROCESSES_US)
    state.processes = [(index, os.getpid(), 80 * GIB) for index in range(COUNT)]
    return state


def _in_process(function: str, library: Path, state: StubState, *arguments: str) -> dict[str, float]:
    """Runs a function of this module in a process that loads the stub as the driver's library."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "STUB_NVML_STATE": str(state.path)}
    command = [sys.executable, "-c", f"import sys; from benchmarks.telemetry import {function} as f; f(*sys.argv[1:])"]
    done = subprocess.run([*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _poll_cost(library: Path, place: Path) -> None:
    state = realistic(place)
    state.write()
    found = _in_process("poll", library, state, str(os.getpid()))
    print(
        f"poll of {COUNT} GPUs at 1 Hz: {100 * found['cpu_share']:.2f} % of a core, "
        f"{1e3 * found['wall_mean_s']:.1f} ms a poll (slowest {1e3 * found['wall_max_s']:.1f}) over {POLLS} polls"
    )


def poll(pid: str) -> None:
    """Polls at 1 Hz and prints the poller's own account."""
    enough = threading.Semaphore(0)
    source = NvmlSource(ServerHint(pids=(int(pid),)))
    poller = Poller(source, lambda sample: enough.release())
    poller.start()
    for _ in range(POLLS):
        enough.acquire()
    time.sleep(1.0)
    cost = poller.cost()
    poller.stop()
    mean = cost.wall_s / cost.reads
    print(json.dumps({"cpu_share": cost.cpu_share, "wall_mean_s": mean, "wall_max_s": cost.wall_max_s}))


def _hanging(library: Path, place: Path) -> None:
    for words, hang in (("no poller at all", ""), ("a driver that hangs", str(place / "hang"))):
        state = realistic(place)
        if hang:
            Path(hang).touch()
            state.block("nvmlDeviceGetPowerUsage", Path(hang), 3)
        state.write()
        found = _in_process("lag", library, state, hang)
        print(
            f"loop lag over {HANG_S:.0f} s with {words}: p50 {1e3 * found['p50']:.2f} ms, "
            f"p99 {1e3 * found['p99']:.2f} ms, worst {1e3 * found['worst']:.2f} ms; "
            f"the read hung {found['hanging_s']:.1f} s"
        )


def lag(hang: str) -> None:
    """Measures how late a loop's turns are while a read hangs, if one is asked to; prints the figures."""

    async def turns() -> tuple[list[float], float]:
        poller = Poller(NvmlSource(), lambda sample: None) if hang else None
        if poller is not None:
            poller.start()
        late: list[float] = []
        end = time.perf_counter() + HANG_S
        while (before := time.perf_counter()) < end:
            await asyncio.sleep(TURN_S)
            late.append(time.perf_counter() - before - TURN_S)
        hanging_s = poller.cost().hanging_s if poller is not None else 0.0
        if poller is not None:
            poller.stop()
        return late, hanging_s or 0.0

    late, hanging_s = uvloop.run(turns())
    p99 = statistics.quantiles(late, n=100)[98]
    print(json.dumps({"p50": statistics.median(late), "p99": p99, "worst": max(late), "hanging_s": hanging_s}))
    sys.stdout.flush()
    os._exit(0)  # the thread is in the driver for as long as the file stands


def _parsing() -> None:
    text = body("sglang-ngram", "metrics.during_load")
    ours = _best(lambda: gauges.read_metrics(text))
    whole = _best(lambda: list(text_string_to_metric_families(text)))
    print(f"/metrics of {len(text) // 1024} KiB: {1e3 * ours:.2f} ms, all of it parsed {1e3 * whole:.1f} ms")


def _best(work: object, rounds: int = 7) -> float:
    assert callable(work)
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    return min(times)


async def _energy() -> None:
    """Compares energy a token, as a cell gets it at 1 Hz, with the simulated server's truth."""
    async with simserver("--speculative-algorithm", "DFLASH") as url, client_of(url) as client:
        for concurrency in (1, 8):
            await _energy_of(url, client, concurrency)


async def _energy_of(url: str, client: httpx.AsyncClient, concurrency: int) -> None:
    watching = Watching(url, 1.0)
    prefix = f"bench{concurrency}-"
    requests = [asyncio.create_task(generate(client, f"{prefix}{i}", 900)) for i in range(concurrency)]
    await asyncio.sleep(0.7)
    start, before, _ = await exact(client)
    await asyncio.sleep(3.6)
    end, after, memory = await exact(client)
    await watching.until(end)
    await asyncio.gather(*requests)
    watching.poller.stop()
    truth = (await client.get("/sim/truth", params={"chunks": "1", "prefix": prefix})).json()
    tokens = tokens_between(truth, start, end)
    facts = gpu_window(watching.samples, start, end)
    assert facts.energy_j is not None
    found, real = facts.energy_j / tokens, (after - before) / tokens
    exactly = "exact" if facts.memory_peak_bytes == tuple(memory) else "WRONG"
    print(
        f"energy at concurrency {concurrency}: {found:.3f} J a token, truth {real:.3f} "
        f"({100 * (found / real - 1):+.2f} %), {end - start:.1f} s, {tokens} tokens; peak memory {exactly}"
    )


if __name__ == "__main__":
    main()
