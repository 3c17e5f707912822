"""The simulated server as a real process, and what the tests of managers need around it."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from loadgen.client import LocalGenerator
from loadgen.spec import Target
from reconfig.limits import Limits
from reconfig.loglines import LogLine
from reconfig.managers import Manager
from reconfig.presets import Preset, Proof, ProofStep
from reconfig.putting import put_in_effect
from reconfig.vocabularies import VOCABULARIES
from reconfig.waiting import wait_until

B8T4 = Preset(name="b8t4-w2048", algorithm="DDTREE", budget=8, topk=4, window=2048)
B16T4 = Preset(name="b16t4-w2048", algorithm="DDTREE", budget=16, topk=4, window=2048)
NONE = Preset(name="none", algorithm="NONE")
QUICK = Limits(probe_s=20.0, generate_s=40.0, look_s=0.05, stop_s=60.0, ready_s=90.0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def sim_command(port: int, *more: str, load_s: float = 0.1) -> list[str]:
    return [
        sys.executable, "-m", "simserver", "--model-path", "kimi-k2.6", "--port", str(port),
        "--sim-load-seconds", str(load_s), "--sim-warmup-seconds", "0", "--sim-drain-poll-seconds", "0.1",
        "--sim-speed", "50", *more,
    ]  # fmt: skip


async def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Waits for a condition; fails when it does not come."""
    assert await wait_until(condition, limit_s=limit_s, every_s=0.02), "did not come in time"


class Bench:
    """One server's surroundings, and what was seen of it."""

    def __init__(self, port: int, generator: LocalGenerator, target: Target) -> None:
        self.port = port
        self.generator = generator
        self.target = target
        self.steps: list[tuple[float, ProofStep]] = []
        self.lines: list[tuple[float, LogLine]] = []

    async def put(self, preset: Preset, manager: Manager, *, limits: Limits = QUICK, **more: Any) -> Proof:
        more.setdefault("vocabulary", VOCABULARIES["ddtree"])
        return await put_in_effect(
            preset, manager=manager, target=self.target, generator=self.generator, limits=limits,
            on_step=lambda step: self.steps.append((time.monotonic(), step)),
            on_log=lambda line: self.lines.append((time.monotonic(), line)), **more,
        )  # fmt: skip

    def step(self, name: str) -> ProofStep | None:
        return next((step for _, step in reversed(self.steps) if step.name == name), None)


@asynccontextmanager
async def bench(model: str = "kimi-k2.6") -> Any:
    port = free_port()
    target = Target(base_url=f"http://127.0.0.1:{port}", model=model)
    generator = LocalGenerator(target, time.perf_counter_ns())
    made = Bench(port, generator, target)
    try:
        yield made
    finally:
        await made.generator.close()
