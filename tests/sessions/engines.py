"""A whole engine for tests: a real process on a real simulated server, watched over its real socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from reconfig.flags import FlagsTable
from reconfig.managers.config import ProcessConfig
from reconfig.presets import PresetEntry
from sessions.client import EngineClient
from sessions.folder import create, describe_host
from sessions.launch import connect, start_engine
from sessions.state import SessionState
from sessions.sweep import EvalsTable, MatrixTable, Seconds, ServerTable, Sweep, TelemetryTable, sweep_to_json

DDTREE = PresetEntry(algorithm="DDTREE", budget=8, topk=4, window=2048)
PLAIN = PresetEntry(algorithm="DDTREE", budget=8, topk=4, window="none")


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sweep_on_simserver(
    *presets: PresetEntry,
    faults: tuple[str, ...] = (),
    speed: float = 8.0,
    load_seconds: float = 0.3,
    more: tuple[str, ...] = (),
    contexts: tuple[int, ...] = (60,),
    concurrency: tuple[int, ...] = (1, 4),
    max_tokens: int = 48,
    requests_per_slot: int = 3,
    repeats: int = 1,
    evals: EvalsTable | None = None,
    leave: str = "stopped",
) -> Sweep:
    """Returns a small sweep on a simulated server of its own."""
    port = free_port()
    command = [sys.executable, "-m", "simserver", "--host", "127.0.0.1", "--port", str(port), "--model-path", "sim/K"]
    command += ["--served-model-name", "kimi", "--enable-metrics", "--sim-speed", str(speed)]
    command += ["--sim-load-seconds", str(load_seconds), *more]
    for fault in faults:
        command += ["--sim-fault", fault]
    environment = {} if any("old" in fault for fault in faults) else {"SGL_FORCE_SHUTDOWN": "1"}
    return Sweep(
        label="test",
        server=ServerTable(
            base_url=f"http://127.0.0.1:{port}",
            model="kimi",
            dialect="sglang",
            manager=ProcessConfig(command=command, ready_timeout="60s", stop_timeout="30s", env=environment),
        ),
        flags=FlagsTable(vocabulary="ddtree"),
        presets=presets or (DDTREE,),
        matrix=MatrixTable(
            contexts=contexts,
            concurrency=concurrency,
            max_tokens=max_tokens,
            requests_per_slot=requests_per_slot,
            repeats=repeats,
            warmup=1,
        ),
        evals=evals or EvalsTable(),
        telemetry=TelemetryTable(gpus="simulated", interval=Seconds(0.25)),
        leave=leave,
    )


class Run:
    """A session's engine, started on a new (or the same) folder."""

    def __init__(self, sweep: Sweep, sessions: Path, folder: Path | None = None) -> None:
        self.sweep = sweep
        self.folder = folder or create(sessions, sweep.label, describe_host(sweep.label, sweep=sweep_to_json(sweep)))
        self.engine: subprocess.Popen[bytes] | None = None

    def start(self, *, resume: bool = False) -> None:
        """Starts the engine's process."""
        self.engine = start_engine(self.folder, resume=resume)

    async def client(self) -> EngineClient:
        """Connects to the engine."""
        return await connect(self.folder, self.engine)

    async def until(self, client: EngineClient, reached: Callable[[SessionState], bool]) -> SessionState:
        """Watches until a state is reached, or the session ends."""
        async with asyncio.timeout(100):
            async for state in client.states():
                if reached(state):
                    return state
        return client.state

    async def to_end(self) -> SessionState:
        """Starts, watches to the end, and returns the last state."""
        self.start()
        client = await self.client()
        state = await self.until(client, lambda _: False)
        await client.close()
        await self.wait()
        return state

    async def wait(self) -> int:
        """Waits until the engine's process has ended and returns its status."""
        assert self.engine is not None
        return await asyncio.to_thread(self.engine.wait, 90)

    def get(self, path: str) -> Any:
        """Asks the simulated server."""
        with urllib.request.urlopen(self.sweep.server.base_url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def end(self) -> None:
        """Ends what a failed test may have left: the engine, and the server it started."""
        if self.engine is not None and self.engine.poll() is None:
            self.engine.kill()
            self.engine.wait()
        port = self.sweep.server.base_url.rsplit(":", 1)[1]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "simserver" in words and port in words:
                os.kill(int(process.name), 9)


def with_label(sweep: Sweep, label: str) -> Sweep:
    """Returns the sweep under another name."""
    return replace(sweep, label=label)
