"""What goes wrong around a sweep: workers die, servers hang or come back different, operators change their mind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from reconfig.managers.config import ManualConfig
from reconfig.presets import PresetEntry
from sessions.commands import Command
from sessions.events import CellKey
from sessions.reduce import reduce_all
from sessions.sweep import Sweep
from tests.sessions.engines import DDTREE, PLAIN, Run, free_port, sweep_on_simserver
from tests.sessions.test_plan import measured, started

Start = Callable[[Sweep], Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def begun(sweep: Sweep) -> Run:
        runs.append(Run(sweep, tmp_path / "sessions"))
        return runs[-1]

    yield begun
    for run in runs:
        run.end()


def worker_of(run: Run) -> psutil.Process:
    assert run.engine is not None
    return next(p for p in psutil.Process(run.engine.pid).children() if "loadgen.worker" in p.cmdline())


async def test_a_load_process_that_dies_while_a_preset_loads_costs_nothing(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1,), load_seconds=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "reconfiguring")
    worker_of(run).kill()
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    assert state.status == "finished" and [c.status for c in state.cells.values()] == ["measured"]


async def test_a_load_process_that_dies_in_mid_cell_fails_that_cell_alone(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1, 2), requests_per_slot=8, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    worker_of(run).kill()
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    first, second = state.cells.values()
    assert first.status == "failed" and "load process" in first.reason
    assert second.status == "measured"


async def test_skipping_a_preset_that_was_applied_by_hand_does_not_start_it_again(start: Start):
    run = start(sweep_on_simserver(PLAIN, DDTREE, concurrency=(1,), requests_per_slot=20, load_seconds=1.5, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="apply", argument="b8t4-w2048"))).ok
    await run.until(client, lambda s: s.presets["b8t4-w2048"].status == "switching")
    assert (await client.command(Command(name="skip"))).ok
    state = await run.until(client, lambda s: s.phase == "measuring")
    assert state.current_preset == "b8t4-wnone"
    assert state.presets["b8t4-w2048"].status == "skipped"
    assert sum("putting b8t4-w2048" in n.words for n in state.news) == 1
    assert (await client.command(Command(name="stop"))).ok
    state = await run.until(client, lambda _: False)
    assert state.status == "stopped" and state.phase == "stopped"
    await client.close()
    await run.wait()


async def test_a_server_that_never_answers_between_cells_cannot_keep_the_engine_from_stopping(start: Start):
    run = start(sweep_on_simserver(DDTREE, contexts=(60, 900), concurrency=(1,), requests_per_slot=6, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="pause"))).ok
    await run.until(client, lambda s: s.paused)
    fault = urllib.request.Request(run.sweep.server.base_url + "/sim/fault", b'{"set": ["hang-generate"]}')
    fault.add_header("content-type", "application/json")
    assert await asyncio.to_thread(lambda: urllib.request.urlopen(fault, timeout=10).read())
    assert (await client.command(Command(name="resume"))).ok
    await run.until(client, lambda s: s.phase == "warming")
    assert (await client.command(Command(name="stop"))).ok
    state = await run.until(client, lambda _: False)
    assert state.status == "stopped"
    await client.close()
    await run.wait()


async def test_a_server_as_it_stands_that_comes_back_with_other_settings_is_not_measured_on(start: Start):
    port = free_port()

    def serve(budget: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "simserver", "--port", str(port), "--model-path", "sim/K"]
        command += ["--served-model-name", "kimi", "--speculative-algorithm", "DDTREE", "--sim-load-seconds", "0"]
        command += ["--speculative-ddtree-budget", str(budget), "--speculative-ddtree-topk", "4", "--sim-speed", "4"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert server.stdout is not None
        assert any("ready to roll" in line for line in server.stdout)
        return server

    def end(server: subprocess.Popen[str]) -> None:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()

    base = sweep_on_simserver(PresetEntry(algorithm="DDTREE", budget=8, topk=4, name="mine"), requests_per_slot=30)
    table = replace(base.server, base_url=f"http://127.0.0.1:{port}", manager=ManualConfig())
    run = start(replace(base, server=table, as_it_stands=True, leave="as-is"))
    server = serve(8)
    try:
        run.start()
        client = await run.client()
        await run.until(client, lambda s: s.phase == "measuring")
        end(server)
        server = await asyncio.to_thread(serve, 16)
        state = await run.until(client, lambda _: False)
        await client.close()
        await run.wait()
    finally:
        end(server)
    assert all(c.figures is None for c in state.cells.values())
    assert "other settings" in state.presets["mine"].reason


def test_resume_tries_again_what_failed_and_leaves_what_was_measured_or_skipped():
    begin = started()
    ends = {
        "a/60x1/t0/r1": measured(begin.cells[0]),
        "a/60x8/t0/r1": replace(measured(begin.cells[1]), outcome="failed", figures=None),
        "b/60x1/t0/r1": replace(measured(begin.cells[2]), outcome="not-in-effect", figures=None),
        "b/60x8/t0/r1": replace(measured(begin.cells[3]), outcome="skipped", figures=None),
    }
    from sessions import events as ev

    state = reduce_all([begin, *ends.values(), ev.SessionResumed(t=9.0)])
    assert [c.status for c in state.cells.values()] == ["measured", "waiting", "waiting", "skipped"]


def test_keys_are_told_apart_by_every_part():
    base = CellKey(preset="a", context=60, concurrency=1)
    others = [
        replace(base, **change)
        for change in ({"preset": "b"}, {"context": 61}, {"temperature": 0.5}, {"repetition": 2})
    ]
    assert len({base.text, *(o.text for o in others)}) == 5
    assert os.sep not in base.preset
