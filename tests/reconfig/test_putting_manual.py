"""The operator restarts the server: what is asked of them, and what proves that they did it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loadgen.records import Outcome
from loadgen.spec import Target
from reconfig.limits import Limits
from reconfig.managers import ManualConfig, ProcessConfig, manager_from
from reconfig.managers.protocol import ManagerStatus
from reconfig.putting import prove_running, put_in_effect
from reconfig.vocabularies import VOCABULARIES
from tests.reconfig.parts import B8T4, B16T4, NONE, Bench, bench, sim_command, until
from tests.reconfig.scripted import (
    ScriptedGenerator,
    ScriptedManager,
    ScriptedProcesses,
    ScriptedServer,
    World,
    generation,
    run_jumping,
)


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Bench]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with bench() as made:
        yield made


async def test_the_operator_is_told_what_to_do_and_the_result_is_proven(lab: Bench, tmp_path: Path) -> None:
    hands = manager_from(ProcessConfig(command=sim_command(lab.port)), state_dir=tmp_path)
    manual = manager_from(ManualConfig(command=["launch-server"]), state_dir=tmp_path)
    assert (await lab.put(NONE, hands)).in_effect
    lab.steps.clear()
    putting = asyncio.create_task(lab.put(B8T4, manual))
    await until(lambda: any("algorithm is none" in step.detail for _, step in lab.steps))
    told = lab.step("start")
    assert told is not None
    assert "launch-server --speculative-algorithm DDTREE --speculative-ddtree-budget 8" in told.detail
    assert not putting.done()

    await hands.prepare(
        ["--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4",
         "--speculative-draft-window-size", "2048"], {},
    )  # fmt: skip
    await hands.stop()
    await hands.start()
    proof = await putting
    assert proof.in_effect, proof.failure
    assert "log that proves it can't be read" in next(
        found.source for found in proof.settings if found.setting == "window"
    )
    again = await lab.put(B8T4, manual)  # it is there already: nothing is asked
    assert again.in_effect
    never = await lab.put(B16T4, manual, limits=Limits(ready_s=0.2))
    assert never.cause == "timeout"
    lab.steps.clear()
    plain = await lab.put(NONE, manual, limits=Limits(ready_s=0.2))
    assert plain.cause == "timeout"
    said = [step.detail for _, step in lab.steps]
    assert any("now algorithm is DDTREE" in s and "leave out --speculative-algorithm, " in s for s in said)
    assert any("--speculative-ddtree-budget" in s and s.endswith("with: launch-server") for s in said)
    await hands.stop()
    lab.steps.clear()
    assert (await lab.put(B8T4, manual, limits=Limits(ready_s=0.2))).cause == "timeout"
    assert any(f"nothing answers at {lab.target.base_url} now; restart" in step.detail for _, step in lab.steps)


def test_a_preset_without_a_command_says_what_to_add_or_that_nothing_is(tmp_path: Path) -> None:
    manual = manager_from(ManualConfig(), state_dir=tmp_path)
    assert manual.instructions(["--flag", "a b"], {"X": "1"}).endswith("added to it: X=1 --flag 'a b'")
    assert manual.instructions([], {}).endswith("nothing added to it")


async def test_a_server_that_is_not_there_is_told_at_once(lab: Bench) -> None:
    proof = await prove_running(None, target=lab.target, generator=lab.generator)
    assert proof.preset == "as it stands"
    assert "nothing answers" in (proof.failure or "")


def test_a_server_that_refuses_the_key_is_not_waited_for() -> None:
    world = World()
    world.state.update(port=True, health=401, answer=generation("", None, None, outcome=Outcome.HTTP_4XX))

    async def work() -> tuple[str | None, float]:
        begun = asyncio.get_running_loop().time()
        proof = await put_in_effect(
            NONE, vocabulary=VOCABULARIES["mainline"], manager=ScriptedManager(world),
            target=Target(base_url="http://127.0.0.1:9", model=""), generator=ScriptedGenerator(world),
            server=ScriptedServer(world), processes=ScriptedProcesses(world),
        )  # fmt: skip
        return proof.cause, asyncio.get_running_loop().time() - begun

    world.at(0, status=ManagerStatus(state="running", words="active", pid=7, facts={"pid": "7"}))
    cause, took_s = run_jumping(work)
    assert cause == "key"
    assert took_s < 5
