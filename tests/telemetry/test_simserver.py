"""Telemetry against the simulated server, process against process: its GPUs, its gauges, and its own truth."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from telemetry.choose import TelemetryConfig, gpu_source
from telemetry.poller import Poller
from telemetry.samples import GpuSample, ServerSample
from telemetry.server import ServerGauges
from telemetry.windows import gpu_window, server_window

LIMIT_S = 60.0


@asynccontextmanager
async def simserver(*flags: str) -> AsyncIterator[str]:
    """Starts one on a free port; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simserver", "--model-path", "kimi-k2.6", "--port", "0", "--sim-load-seconds", "0.1",
        "--sim-warmup-seconds", "0", "--sim-drain-poll-seconds", "0.1", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    draining = None
    try:
        async with asyncio.timeout(LIMIT_S):
            url = ""
            while True:
                line = (await process.stdout.readline()).decode()
                assert line, "the simulated server ended before it served"
                if found := re.search(r"running on (http://[\d.:]+)", line):
                    url = found[1]
                if "fired up" in line:
                    break
        draining = asyncio.create_task(process.stdout.read())
        yield url
    finally:
        process.terminate()
        if draining is not None:
            await draining
        await process.wait()


def client_of(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=LIMIT_S, trust_env=False)


async def generate(client: httpx.AsyncClient, rid: str, tokens: int) -> None:
    body = {
        "rid": rid, "text": f"write a sort function, variant {rid}", "stream": True,
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0},
    }  # fmt: skip
    async with client.stream("POST", "/generate", json=body) as answer:
        assert answer.status_code == 200
        async for _ in answer.aiter_raw():
            pass


async def exact(client: httpx.AsyncClient) -> tuple[float, float, list[int]]:
    """Returns (session time, joules of all GPUs, used memory by GPU) as the server itself has them now."""
    answer = (await client.get("/sim/gpus")).json()
    return (
        answer["t_ns"] / 1e9,
        sum(gpu["energy_j"] for gpu in answer["gpus"]),
        [gpu["memory_used_bytes"] for gpu in answer["gpus"]],
    )


def tokens_between(truth: dict[str, Any], start: float, end: float) -> int:
    requests = truth["requests"]
    return sum(n for one in requests for t_ns, n in one["chunks"] if start <= t_ns / 1e9 <= end)


class Watching:
    """The GPUs polled as the engine does it, into a list."""

    def __init__(self, url: str, interval_s: float) -> None:
        self.samples: list[GpuSample] = []
        self._fresh = asyncio.Event()
        loop = asyncio.get_running_loop()
        choice = gpu_source(TelemetryConfig(base_url=url, source="simulated"))
        self.poller = Poller(
            choice.source,
            lambda sample: loop.call_soon_threadsafe(self._take, sample),
            clock=time.perf_counter,
            interval_s=interval_s,
        )
        self.poller.start()

    def _take(self, sample: GpuSample) -> None:
        self.samples.append(sample)
        self._fresh.set()

    async def until(self, t: float) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self.samples or self.samples[-1].t < t:
                self._fresh.clear()
                await self._fresh.wait()


async def test_energy_a_token_and_peak_memory_against_the_truth():
    async with simserver("--speculative-algorithm", "DFLASH") as url, client_of(url) as client:
        watching = Watching(url, 0.25)
        requests = [asyncio.create_task(generate(client, f"e{i}", 500)) for i in range(4)]
        began, _, _ = await exact(client)
        await watching.until(began + 0.8)  # a steady window begins and ends within the load
        start, joules_before, _ = await exact(client)
        await watching.until(start + 1.7)
        end, joules_after, memory = await exact(client)
        await watching.until(end)
        await asyncio.gather(*requests)
        assert watching.poller.stop()
        truth = (await client.get("/sim/truth", params={"chunks": "1", "prefix": "e"})).json()
    tokens = tokens_between(truth, start, end)
    assert tokens > 100
    facts = gpu_window(watching.samples, start, end)
    assert facts.energy_j is not None
    assert facts.energy_span_s == pytest.approx(end - start)
    assert facts.energy_j / tokens == pytest.approx((joules_after - joules_before) / tokens, rel=0.02)
    assert facts.memory_peak_bytes == tuple(memory)
    assert facts.gpus == tuple(range(8))
    assert facts.power_mean_w is not None
    assert facts.throttle_reasons == ()


async def test_gauges_and_counters_against_the_truth():
    flags = ("--speculative-algorithm", "DDTREE", "--enable-metrics", "--sim-speed", "10")
    async with simserver(*flags) as url, client_of(url) as client:
        source = ServerGauges(url, "sglang")
        samples: list[ServerSample] = [await source.sample(0.0)]
        requests = [asyncio.create_task(generate(client, f"g{i}", 400)) for i in range(3)]
        async with asyncio.timeout(LIMIT_S):
            while not all(request.done() for request in requests):
                samples.append(await source.sample(float(len(samples))))
        await asyncio.gather(*requests)
        samples.append(await source.sample(float(len(samples))))
        await source.close()
        truth = (await client.get("/sim/truth", params={"prefix": "g"})).json()["requests"]
    first, last = samples[0], samples[-1]
    assert first.problem is None
    facts = server_window(samples, 0.0, last.t)
    assert facts.generated == sum(one["completion_tokens"] for one in truth)
    assert facts.verify_calls == sum(one["verify_steps"] for one in truth)
    assert not facts.counters_reset
    assert {sample.running for sample in samples} <= {0, 1, 2, 3}
    assert max(sample.running or 0 for sample in samples) > 0
    assert last.running == 0
    assert last.stale
    assert last.gen_throughput_tok_s is None


async def test_faults_of_the_gpus_are_seen():
    async with simserver("--sim-fault", "gpu-lost=3", "--sim-fault", "gpu-throttle=5") as url:
        watching = Watching(url, 0.05)
        await watching.until(time.perf_counter())
        assert watching.poller.stop()
    sample = watching.samples[-1]
    assert [gpu.state for gpu in sample.gpus] == ["ok"] * 3 + ["lost"] + ["ok"] * 4
    assert sample.gpus[3].xid == 79
    facts = gpu_window(watching.samples, 0.0, sample.t)
    assert facts.throttled_gpus == (5,)
    assert facts.throttle_reasons == ("hw_thermal_slowdown", "sw_thermal_slowdown")
    assert facts.lost_gpus == (3,)
