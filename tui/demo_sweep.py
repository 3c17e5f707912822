"""The sweep of `spectop demo`: small enough for a coffee, whole enough to show every part."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from loadgen.spec import Workload
from reconfig.flags import FlagsTable
from reconfig.managers.config import ProcessConfig
from reconfig.presets import PresetEntry
from sessions.sweep import EvalsTable, LoadTable, MatrixTable, ServerTable, Sweep, TelemetryTable

MODEL = "kimi-k2.6-simulated"


def demo_sweep(*, faults: Sequence[str], speed: float, load_seconds: float, seed: int) -> Sweep:
    """Returns the sweep of the demonstration.

    Args:
        faults: faults of the simulated server, NAME or NAME=VALUE.
        speed: how much faster than real time it is.
        load_seconds: seconds its model takes to load.
        seed: makes it reproducible.
    """
    port = _free_port()
    command = [sys.executable, "-m", "simserver", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model-path", "simulated/Kimi-K2.6", "--served-model-name", MODEL, "--enable-metrics"]
    command += ["--enable-cache-report", "--max-running-requests", "48"]
    command += ["--sim-speed", str(speed), "--sim-load-seconds", str(load_seconds), "--sim-seed", str(seed)]
    command += ["--sim-drain-poll-seconds", f"{1 / speed:g}"]  # a real server looks every 5 s
    for fault in faults:
        command += ["--sim-fault", fault]
    return Sweep(
        label="demo",
        server=ServerTable(
            base_url=f"http://127.0.0.1:{port}",
            model=MODEL,
            dialect="sglang",
            manager=ProcessConfig(command=command, ready_timeout="60s"),
        ),
        flags=FlagsTable(vocabulary="ddtree"),
        presets=(PresetEntry(algorithm="DDTREE", budget=8, topk=4, window=["none", 2048]),),
        matrix=MatrixTable(contexts=(60, 2560), concurrency=(1, 4, 8), max_tokens=64, requests_per_slot=3, warmup=1),
        load=LoadTable(workload=Workload(kind="coding"), seed=seed),
        evals=EvalsTable(coding="core-5", max_tokens=1024, concurrency=5),
        telemetry=TelemetryTable(gpus="simulated"),
        leave="stopped",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
