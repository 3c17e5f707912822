"""The simulated server as a unit of a real systemd: drop-ins, switches while the old one drains, and other people.

`SPECTOP_SWITCHES=20` makes the switches as many as a long check wants.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadgen.records import Outcome
from reconfig.managers import SystemdConfig, manager_from
from reconfig.managers.systemd import SystemdManager
from reconfig.proof import probe_request
from reconfig.restart import GpuMemory
from reconfig.watching import wait_for_trouble
from tests.needs import needs
from tests.reconfig.parts import B8T4, B16T4, NONE, Bench, bench, sim_command, until

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "systemd_lab"
SWITCHES = int(os.environ.get("SPECTOP_SWITCHES", "2"))
DRAIN_S = 5 if SWITCHES >= 10 else 2

pytestmark = pytest.mark.systemd


class Systemd:
    """A systemd of our own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.units = folder / "units"

    def ctl(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [LAB, "ctl", self.folder, *words], check=check, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def unit(self, name: str, command: list[str], *lines: str, variable: str = "SERVER_ARGS") -> str:
        words = " ".join(command)
        text = ["[Service]", f"WorkingDirectory={ROOT}", f"ExecStart={words} ${variable}", *lines]
        (self.units / name).write_text("\n".join(text) + "\n")
        shutil.rmtree(self.units / f"{name}.d", ignore_errors=True)
        self.ctl("daemon-reload")
        return name

    def manager(self, unit: str, **changes: Any) -> SystemdManager:
        config: dict[str, Any] = {
            "unit": unit, "arguments": "SERVER_ARGS", "systemctl": [str(LAB), "ctl", str(self.folder)],
            "journalctl": [str(LAB), "journal", str(self.folder)], "dropin_dir": str(self.units), "stop_timeout": "60s",
        }  # fmt: skip
        manager = manager_from(SystemdConfig(**{**config, **changes}), state_dir=self.folder)
        assert isinstance(manager, SystemdManager)
        return manager


@pytest.fixture(scope="module")
def systemd() -> Iterator[Systemd]:
    folder = Path(tempfile.mkdtemp(prefix="systemd-lab-"))
    subprocess.run([LAB, "start", folder], check=True, capture_output=True, timeout=60)
    yield Systemd(folder)
    subprocess.run([LAB, "stop", folder], check=True, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def lab(systemd: Systemd) -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made
    systemd.ctl("stop", "sim.service", check=False)


def _text(path: Path) -> str:
    return path.read_text()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def _ask(lab: Bench, path: str) -> Any:
    async with httpx.AsyncClient(trust_env=False) as client:
        return json.loads((await client.get(lab.target.base_url + path)).content)


@needs("systemd")
@pytest.mark.timeout(120 + 30 * SWITCHES)
async def test_switches_while_the_old_process_drains_and_answers_measure_only_the_new_one(
    systemd: Systemd, lab: Bench
) -> None:
    unit = systemd.unit("sim.service", sim_command(lab.port, f"--sim-fault=slow-old-process={DRAIN_S}"))
    manager = systemd.manager(unit)
    first = await lab.put(NONE, manager)
    assert first.in_effect, first.failure
    seen = {first.instance["manager invocation"]}
    before = NONE
    for switch in range(SWITCHES):
        preset = (B8T4, B16T4, NONE)[switch % 3]
        old_answers: list[str] = []
        done = asyncio.Event()

        async def watch_old(answers: list[str] = old_answers, end: asyncio.Event = done) -> None:
            while not end.is_set():
                try:
                    answers.append((await _ask(lab, "/server_info"))["launch_command"])
                except (httpx.HTTPError, json.JSONDecodeError):
                    answers.append("")
                await asyncio.sleep(0.1)

        watching = asyncio.create_task(watch_old())
        proof = await lab.put(preset, manager)
        done.set()
        await watching
        assert proof.in_effect, proof.failure
        seen.add(proof.instance["manager invocation"])
        asked_for = f"--speculative-ddtree-budget {preset.budget}" if preset.budget else ""
        assert sum(bool(answer) and answer != old_answers[-1] for answer in old_answers) > 2, (before, old_answers)
        request = probe_request(20.0)
        generated = await lab.generator.generate(request)
        assert generated.record.outcome is Outcome.OK
        truth = json.dumps(await _ask(lab, "/sim/truth"))
        assert request.rid in truth
        assert asked_for in (await _ask(lab, "/server_info"))["launch_command"]
        shown = systemd.ctl("show", unit, "--property=DropInPaths,Environment")
        assert manager.dropin.path.rsplit("/", 1)[-1] in shown
        assert asked_for in shown
        before = preset
    assert len(seen) == SWITCHES + 1


@needs("systemd")
async def test_a_unit_of_its_own_command_and_a_dropin_written_through_commands(systemd: Systemd, lab: Bench) -> None:
    unit = systemd.unit("sim.service", ["/bin/false"])
    manager = systemd.manager(
        unit, arguments=None, exec_start=sim_command(lab.port, "--served-model-name", "kimi-k2.6"), write=["env"]
    )
    looks = iter([GpuMemory(False, "70.2 GB in use", (1,)), GpuMemory(True, "1.0 GB in use")])

    async def memory() -> GpuMemory:
        return next(looks)

    proof = await lab.put(B8T4, manager, gpu_memory_free=memory)
    assert proof.in_effect, proof.failure
    assert [step.name for step in proof.steps][:3] == ["stop", "memory", "start"]
    assert any(step.detail == "70.2 GB in use" for _, step in lab.steps)
    assert next(found for found in proof.settings if found.setting == "window").source == "log"
    await manager.remove_dropin()
    assert list((systemd.units / f"{unit}.d").iterdir()) == []


@needs("systemd")
async def test_a_stop_by_someone_else_is_seen_in_the_start_and_in_a_cell(systemd: Systemd, lab: Bench) -> None:
    unit = systemd.unit("sim.service", sim_command(lab.port, load_s=3.0))
    manager = systemd.manager(unit)
    putting = asyncio.create_task(lab.put(NONE, manager))
    await until(lambda: any(step.name == "port" and "load" in step.detail for _, step in lab.steps))
    await asyncio.to_thread(systemd.ctl, "stop", unit)
    proof = await putting
    assert proof.cause == "stopped", proof.failure
    assert "not by us" in (proof.failure or "")

    unit = systemd.unit("sim.service", sim_command(lab.port))
    proof = await lab.put(NONE, manager)
    assert proof.in_effect, proof.failure
    watch = asyncio.create_task(wait_for_trouble(proof, manager))
    await asyncio.to_thread(systemd.ctl, "stop", unit)
    async with asyncio.timeout(20):
        trouble = await watch
    assert trouble.cause == "stopped"
    assert "by someone else" in trouble.words

    proof = await lab.put(NONE, manager)
    watch = asyncio.create_task(wait_for_trouble(proof, manager))
    await asyncio.to_thread(systemd.ctl, "restart", unit)
    async with asyncio.timeout(20):
        assert (await watch).cause in {"restarted", "stopped"}


@needs("systemd")
@pytest.mark.parametrize("pause", ["100ms", "1s"])
async def test_a_crash_loop_is_told_with_the_first_fatal_line(systemd: Systemd, lab: Bench, pause: str) -> None:
    fatal = "ValueError: Free memory on device cuda:0 (30.10/119.00 GiB) is less than desired"
    script = systemd.folder / "crash.sh"
    script.write_text(f"#!/bin/sh\necho 'starting'\necho '{fatal}'\necho 'bye'\nexit 1\n")
    script.chmod(0o755)
    limits = ["StartLimitIntervalSec=0"] if pause == "1s" else []
    unit = systemd.unit("sim.service", [str(script)], "Restart=always", f"RestartSec={pause}", "[Unit]", *limits)
    proof = await lab.put(NONE, systemd.manager(unit))
    assert proof.cause == "crash loop", proof.failure
    assert fatal in (proof.failure or "")
    assert "bye" in proof.log_tail


@needs("systemd")
async def test_a_unit_that_is_not_there_and_rights_that_are_not_there(systemd: Systemd, lab: Bench) -> None:
    proof = await lab.put(NONE, systemd.manager("no-such.service"))
    assert proof.cause == "unit"
    assert "no-such.service was not found" in (proof.failure or "")
    assert not (systemd.units / "no-such.service.d").exists()

    unit = systemd.unit("sim.service", sim_command(lab.port))
    inner = (systemd.folder / "pid").read_text().strip()
    powerless = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    enter = ["nsenter", "-t", inner, "-m", "-p", "-C", *powerless, "systemctl"]
    proof = await lab.put(NONE, systemd.manager(unit, systemctl=enter))
    assert proof.cause == "permission", proof.failure
    assert "sudo" in (proof.failure or "")
    assert not list((systemd.units / f"{unit}.d").glob("*"))

    proof = await lab.put(NONE, systemd.manager(unit, write=powerless))
    assert proof.cause == "permission", proof.failure
    checks = await systemd.manager(unit).check()
    assert [check[1] for check in checks] == ["good", "good"]
    checks = await systemd.manager("no-such.service").check()
    assert checks[0][1] == "wrong"


@needs("systemd")
async def test_a_cancelled_restart_leaves_a_whole_dropin_or_the_one_before(systemd: Systemd, lab: Bench) -> None:
    unit = systemd.unit("sim.service", sim_command(lab.port))
    manager = systemd.manager(unit)
    proof = await lab.put(NONE, manager)
    assert proof.in_effect, proof.failure
    dropin = Path(manager.dropin.path)
    wholes = {_text(dropin), manager._text(["--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8",
              "--speculative-ddtree-topk", "4", "--speculative-draft-window-size", "2048"], {})}  # fmt: skip
    for pause_s in (0.0, 0.02, 0.05, 0.1, 0.2):
        putting = asyncio.create_task(lab.put(B8T4, manager))
        await asyncio.sleep(pause_s)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert _text(dropin) in wholes
        assert _names(dropin.parent) == [dropin.name]
    proof = await lab.put(NONE, manager)
    assert proof.in_effect, proof.failure
