"""The simulated server as a child: presets in turn, faults, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reconfig.limits import Limits
from reconfig.loads import LoadMemory
from reconfig.managers import ManagerError, ProcessConfig, manager_from
from reconfig.managers.process import ProcessManager
from reconfig.presets import Preset
from reconfig.processes import LocalProcesses
from reconfig.putting import prove_running
from reconfig.vocabularies import VOCABULARIES
from reconfig.watching import wait_for_trouble
from tests.reconfig.parts import B8T4, B16T4, NONE, QUICK, Bench, bench, sim_command, until


@pytest.fixture
async def lab() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def child(lab: Bench, tmp_path: Path, *more: str, **config: Any) -> ProcessManager:
    manager = manager_from(
        ProcessConfig(command=sim_command(lab.port, *more), stop_timeout=20, **config), state_dir=tmp_path
    )
    assert isinstance(manager, ProcessManager)
    return manager


async def test_three_presets_in_turn_are_each_proven_by_what_the_server_shows(lab: Bench, tmp_path: Path) -> None:
    manager = child(lab, tmp_path)
    loads = LoadMemory(tmp_path / "loads.json")
    pids = []
    for preset in (B8T4, NONE, B16T4):
        proof = await lab.put(preset, manager, memory_of_loads=loads)
        assert proof.in_effect, proof.failure
        assert [step.name for step in proof.steps] == [
            "stop", "start", "old-gone", "port", "health", "generate", "settings", "model",
        ]  # fmt: skip
        assert all(step.state == "done" and step.ended_t is not None for step in proof.steps)
        assert proof.model == "kimi-k2.6"
        assert len(proof.generations) == 2 and all(proof.generations)
        pids.append(proof.instance["listener pid"])
    assert len(set(pids)) == 3
    shown = {found.setting: (found.found, found.source) for found in proof.settings}
    assert shown["window"] == ("draft_window_size=2048, compact_cache=True", "log")
    assert shown["budget"] == ("16", "/server_info speculative_ddtree_budget")
    assert loads.expected_s("kimi-k2.6", "127.0.0.1") is not None
    assert any("left" in step.detail for _, step in lab.steps if step.name == "port")
    await manager.stop()
    assert not psutil.pid_exists(int(pids[-1]))


@pytest.mark.parametrize("vocabulary", ["ddtree-29907", "dflash-tree-31069", "dflash-tree-width-36196", "fork-ddtree"])
async def test_every_vocabulary_of_a_tree_is_put_in_effect_and_seen(
    lab: Bench, tmp_path: Path, vocabulary: str
) -> None:
    topk = 8 if vocabulary == "fork-ddtree" else 4
    manager = child(lab, tmp_path)
    preset = Preset(name="tree", algorithm="DDTREE", budget=8, topk=topk)
    proof = await lab.put(preset, manager, vocabulary=VOCABULARIES[vocabulary])
    await manager.stop()
    assert proof.in_effect, proof.failure
    assert {found.setting for found in proof.settings} >= {"algorithm", "budget", "topk"}


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ("ignore-window", "setting", "window: asked 2048, found draft_window_size=None, compact_cache=False (log)"),
        ("ignore-topk", "setting", "topk: asked 4, found 1"),
        ("crash-while-loading", "oom", "CUDA out of memory during loading weights"),
        ("wrong-model-name=other/model", "model", 'serves "other/model", not "kimi-k2.6"'),
        ("port-in-use", "port", "the port is in use"),
        ("no-usage", "generate", "without usage"),
    ],
)
async def test_a_fault_ends_in_the_right_state_with_the_right_words(
    lab: Bench, tmp_path: Path, fault: str, cause: str, words: str
) -> None:
    manager = child(lab, tmp_path, f"--sim-fault={fault}")
    proof = await lab.put(B8T4, manager)
    await manager.stop()
    assert not proof.in_effect
    assert (proof.cause, words in (proof.failure or "")) == (cause, True), proof.failure
    assert proof.log_tail
    assert [step.state for step in proof.steps].count("failed") == 1


async def test_a_hanging_generation_is_up_and_not_generating(lab: Bench, tmp_path: Path) -> None:
    manager = child(lab, tmp_path, "--sim-fault=hang-generate")
    proof = await lab.put(B8T4, manager, limits=Limits(probe_s=0.5, generate_s=1.0, look_s=0.1))
    await manager.stop()
    assert proof.cause == "generate"
    assert "up, not generating" in (proof.failure or "")


async def test_arguments_that_the_server_refuses_are_shown_with_its_own_words(lab: Bench, tmp_path: Path) -> None:
    manager = child(lab, tmp_path)
    proof = await lab.put(Preset(name="odd", algorithm="NONE", flags=("--no-such-flag", "1")), manager)
    assert proof.cause == "arguments"
    assert "--no-such-flag" in (proof.failure or "")


async def test_a_program_that_is_not_there_is_named(lab: Bench, tmp_path: Path) -> None:
    manager = manager_from(ProcessConfig(command=["/no/such/server"]), state_dir=tmp_path)
    proof = await lab.put(NONE, manager)
    assert proof.cause == "manager"
    assert "/no/such/server" in (proof.failure or "")


async def test_a_foreign_process_on_the_port_is_named_before_anything_is_started(lab: Bench, tmp_path: Path) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", lab.port))
        squatter.listen()
        manager = child(lab, tmp_path)
        proof = await lab.put(NONE, manager)
    assert proof.cause == "port"
    assert f"pid {os.getpid()}" in (proof.failure or "")
    assert not (tmp_path / "server.log").exists()


async def test_a_vocabulary_without_words_for_it_refuses_before_anything_is_restarted(
    lab: Bench, tmp_path: Path
) -> None:
    manager = child(lab, tmp_path)
    proof = await lab.put(B8T4, manager, vocabulary=VOCABULARIES["mainline"])
    assert proof.cause == "vocabulary"
    assert "DDTREE" in (proof.failure or "")
    assert proof.steps == ()
    assert (await manager.status()).state == "stopped"


async def test_a_server_that_ignores_sigterm_is_killed_after_the_limit(lab: Bench, tmp_path: Path) -> None:
    manager = child(lab, tmp_path)
    proof = await lab.put(NONE, manager)
    assert proof.in_effect, proof.failure
    os.kill(int(proof.instance["manager pid"]), signal.SIGSTOP)
    manager._stop_limit_s = 0.3
    await manager.stop()
    assert not psutil.pid_exists(int(proof.instance["manager pid"]))


async def test_children_that_outlive_their_parent_are_ended_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconfig.managers.process.LAST_CHANCE_S", 0.5)
    orphan = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('child', flush=True); time.sleep(99)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {orphan!r}])"
    manager = manager_from(
        ProcessConfig(command=[sys.executable, "-c", parent, "{arguments}"], stop_timeout=5), state_dir=tmp_path
    )
    await manager.prepare([], {})
    await manager.start()
    log = tmp_path / "server.log"
    await until(lambda: log.exists() and "child" in log.read_text())
    pid = (await manager.status()).pid
    assert pid is not None
    children = psutil.Process(pid).children()
    assert len(children) == 1
    os.kill(pid, signal.SIGKILL)
    await manager.stop()
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in children)


async def test_a_server_that_was_left_running_is_found_again_and_proven_without_a_restart(
    lab: Bench, tmp_path: Path
) -> None:
    first = child(lab, tmp_path)
    proof = await lab.put(B8T4, first)
    assert proof.in_effect, proof.failure
    await first.leave()
    del first
    again = child(lab, tmp_path / "a later session")
    found = await prove_running(
        B8T4, vocabulary=VOCABULARIES["ddtree"], manager=again, target=lab.target, generator=lab.generator, limits=QUICK
    )
    assert found.in_effect, found.failure
    assert found.instance["listener pid"] == proof.instance["listener pid"]
    assert any(setting.source == "log" for setting in found.settings)
    wrong = await prove_running(
        B16T4, vocabulary=VOCABULARIES["ddtree"], target=lab.target, generator=lab.generator, limits=QUICK
    )
    assert "budget: asked 16, found 8" in (wrong.failure or "")
    window = next(setting for setting in wrong.settings if setting.setting == "window")
    assert window.ok and "/server_info" in window.source and "log that proves it can't be read" in window.source
    await again.stop()


async def test_a_server_that_dies_in_mid_cell_is_trouble_at_once(lab: Bench, tmp_path: Path) -> None:
    manager = child(lab, tmp_path)
    proof = await lab.put(NONE, manager)
    assert proof.in_effect, proof.failure
    watch = asyncio.create_task(wait_for_trouble(proof, manager, look_s=0.1))
    os.kill(int(proof.instance["manager pid"]), signal.SIGKILL)
    async with asyncio.timeout(10):
        trouble = await watch
    assert trouble.cause == "exited"
    assert "SIGKILL" in trouble.words
    with pytest.raises(ManagerError):
        await child(lab, tmp_path / "other").start()


async def test_keys_reach_neither_steps_nor_log_nor_proof(lab: Bench, tmp_path: Path) -> None:
    key = "sk-very-secret-1234567890"
    manager = child(lab, tmp_path, "--api-key", key)
    target = lab.target
    lab.target = type(target)(base_url=target.base_url, model=target.model, api_key=key)
    await lab.generator.close()
    lab.generator = type(lab.generator)(lab.target, 0)
    preset = Preset(name="keyed", algorithm="NONE", env={"HF_TOKEN": "hf-other-secret"})
    proof = await lab.put(preset, manager)
    await manager.stop()
    assert proof.in_effect, proof.failure
    everything = f"{proof} {lab.steps} {lab.lines}"
    assert key not in everything
    assert "hf-other-secret" not in everything


async def test_a_server_whose_owner_still_lives_is_not_taken_over(lab: Bench, tmp_path: Path) -> None:
    first = child(lab, tmp_path)
    proof = await lab.put(NONE, first)
    assert proof.in_effect, proof.failure
    [kept] = (tmp_path / "state" / "spectop" / "processes").glob("*.json")
    parent = psutil.Process(os.getppid())
    words = kept.read_text().replace(f'"pid":{os.getpid()},', f'"pid":{parent.pid},', 1)
    started = psutil.Process().create_time()
    kept.write_text(words.replace(str(started), str(parent.create_time())))
    other = child(lab, tmp_path / "other")
    refused = await lab.put(NONE, other)
    assert refused.cause == "port"
    assert f"pid {proof.instance['manager pid']}" in (refused.failure or "")
    await first.stop()


async def test_a_server_is_taken_over_whose_owner_was_killed_before_it_could_note_it(
    lab: Bench, tmp_path: Path
) -> None:
    script = """
        import asyncio, os, sys
        from pathlib import Path
        from reconfig.managers import manager_from, ProcessConfig
        async def main():
            manager = manager_from(ProcessConfig(command=sys.argv[2:]), state_dir=Path(sys.argv[1]))
            await manager.prepare([], {})
            await manager.start()
            print((await manager.status()).pid, flush=True)
            os.kill(os.getpid(), 9)
        asyncio.run(main())
    """
    ended = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), str(tmp_path), *sim_command(lab.port), stdout=subprocess.PIPE
    )
    assert ended.stdout is not None
    pid = int(await ended.stdout.readline())
    await ended.wait()
    for note in (tmp_path / "state" / "spectop" / "processes").glob("*.json"):
        note.unlink()
    manager = child(lab, tmp_path)
    assert (await manager.status()).pid == pid
    await manager.stop()
    assert LocalProcesses().seen(pid) is None
