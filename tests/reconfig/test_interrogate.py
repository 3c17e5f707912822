"""What a running server tells of itself, and every precondition of a sweep, good and broken."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loadgen.client import LocalGenerator
from loadgen.spec import Target
from reconfig.flags import arguments
from reconfig.interrogate import Interrogated, interrogate, preset_of, vocabulary_of
from reconfig.managers import CommandConfig, ManualConfig, ProcessConfig, manager_from
from reconfig.preconditions import Check, check_all, check_space
from reconfig.presets import Preset
from reconfig.server import ServerFacts
from reconfig.vocabularies import VOCABULARIES
from tests.reconfig.parts import B8T4, B16T4, NONE, Bench, bench, sim_command


@pytest.fixture
async def lab() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


async def started(lab: Bench, tmp_path: Path, preset: Preset, *more: str) -> Any:
    manager = manager_from(
        ProcessConfig(
            command=sim_command(lab.port, "--served-model-name", "kimi-k2.6", "--reasoning-parser", "kimi_k2", *more)
        ),
        state_dir=tmp_path,
    )
    proof = await lab.put(preset, manager)
    assert proof.in_effect, proof.failure
    return manager


async def test_a_running_server_is_written_down_as_its_first_preset(lab: Bench, tmp_path: Path) -> None:
    manager = await started(lab, tmp_path, B8T4, "--enable-metrics", "--max-running-requests", "32")
    found = await interrogate(lab.target)
    await manager.stop()
    assert found.problem is None
    assert (found.models, found.dialect, found.vocabulary) == (("kimi-k2.6",), "sglang", "ddtree")
    assert (found.preset.algorithm, found.preset.budget, found.preset.topk, found.preset.window) == (
        "DDTREE", 8, 4, 2048,
    )  # fmt: skip
    assert found.metrics is True
    assert found.max_running_requests == 32
    assert found.reasoning_parser == "kimi_k2"
    assert found.settings["speculative_ddtree_budget"] == "8"
    assert found.version
    assert found.run_by.kind in {"process", "systemd", "command"}
    assert str(lab.port) in " ".join(found.run_by.command)
    flags, _ = arguments(found.preset, VOCABULARIES[found.vocabulary])
    assert flags[:2] == ["--speculative-algorithm", "DDTREE"]


async def test_a_server_that_is_not_there_or_wants_a_key_is_told_in_words(lab: Bench, tmp_path: Path) -> None:
    found = await interrogate(lab.target)
    assert isinstance(found, Interrogated)
    assert "nothing answers" in (found.problem or "")
    key = "sk-secret-9876543210"
    open_target = lab.target
    lab.target = Target(base_url=open_target.base_url, model="kimi-k2.6", api_key=key)
    await lab.generator.close()
    lab.generator = LocalGenerator(lab.target, time.perf_counter_ns())
    manager = await started(lab, tmp_path, NONE, "--api-key", key)
    found = await interrogate(open_target)
    with_key = await interrogate(lab.target)
    await manager.stop()
    assert found.needs_key
    assert "api_key_env" in (found.problem or "")
    assert with_key.preset == NONE
    assert key not in repr(with_key)


FACTS: dict[str, Any] = {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 9}


@pytest.mark.parametrize(
    ("facts", "vocabulary", "name"),
    [
        ({**FACTS, "speculative_dflash_enable_ddtree": True}, "fork-ddtree", "b8t8-wnone"),
        ({**FACTS, "speculative_dflash_tree_verify": True, "speculative_eagle_topk": 4},
         "dflash-tree-31069", "b9t4-wnone"),
        ({**FACTS, "speculative_dflash_tree_width": 4, "speculative_draft_window_size": 2048},
         "dflash-tree-width-36196", "b9t4-w2048"),
        ({**FACTS, "speculative_dflash_draft_window_size": 4096}, "mainline-early-window", "dflash-k9-w4096"),
        (FACTS, "mainline", "dflash-k9-wnone"),
        ({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}, "mainline", "ngram-k4"),
        ({"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 12}, "ddtree-29907", "b12-wnone"),
        ({"speculative_algorithm": None}, "mainline", "none"),
    ],
)  # fmt: skip
def test_each_kind_of_server_is_read_with_its_own_vocabulary(facts: dict[str, Any], vocabulary: str, name: str) -> None:
    shown = ServerFacts(facts)
    assert vocabulary_of(shown) == vocabulary
    assert preset_of(shown, VOCABULARIES[vocabulary]).name == name


async def checks(lab: Bench, manager: Any, tmp_path: Path, **changes: Any) -> dict[str, list[Check]]:
    asked: dict[str, Any] = {
        "target": lab.target, "manager": manager, "presets": [B8T4, B16T4, NONE], "vocabulary": VOCABULARIES["ddtree"],
        "generator": lab.generator, "folder": tmp_path / "not" / "yet",
    }  # fmt: skip
    found: dict[str, list[Check]] = {}
    for check in await check_all(**{**asked, **changes}):
        found.setdefault(check.name, []).append(check)
        assert (check.state == "good") or check.cure, check
    return found


async def test_a_good_setup_is_good_in_every_line(lab: Bench, tmp_path: Path) -> None:
    manager = await started(lab, tmp_path, B8T4, "--enable-metrics")
    found = await checks(lab, manager, tmp_path)
    await manager.stop()
    assert set(found) == {
        "server", "manager", "flags", "model", "metrics", "generation", "acceptance", "clock", "disk",
    }  # fmt: skip
    assert {check.state for lines in found.values() for check in lines} == {"good"}


async def test_a_broken_setup_says_what_is_wrong_and_the_cure_of_each(lab: Bench, tmp_path: Path) -> None:
    gone = manager_from(ProcessConfig(command=["/no/such/server"]), state_dir=tmp_path)
    found = await checks(lab, gone, tmp_path, vocabulary=VOCABULARIES["mainline"])
    assert found["server"][0].state == "warning"
    assert found["manager"][0].state == "wrong"
    assert [check.state for check in found["flags"]] == ["wrong", "wrong"]
    assert "b8t4-w2048" in found["flags"][0].what

    manual = manager_from(ManualConfig(), state_dir=tmp_path)
    found = await checks(lab, manual, tmp_path)
    assert found["server"][0].state == "wrong"
    blind = manager_from(CommandConfig(start=["true", "{arguments}"], stop=["true"]), state_dir=tmp_path)
    assert (await checks(lab, blind, tmp_path))["manager"][0].state == "warning"


async def test_requests_that_the_server_cannot_hold_are_named(lab: Bench, tmp_path: Path) -> None:
    manager = await started(lab, tmp_path, NONE, "--context-length", "4096")
    found = await checks(lab, manager, tmp_path, lengths={"short ones": 4096, "long ones": 4097})
    await manager.stop()
    (told,) = found["length"]
    assert (told.state, told.what) == ("warning", "long ones: 4097 tokens, the server holds 4096")


async def test_a_running_server_with_another_model_no_metrics_and_other_flags(lab: Bench, tmp_path: Path) -> None:
    manager = await started(lab, tmp_path, NONE)
    other = Target(base_url=lab.target.base_url, model="lab/other")
    odd = Preset(name="odd", algorithm="NONE", flags=("--speculative-marvel", "1", "--tp", "8"))
    found = await checks(lab, manager, tmp_path, target=other, presets=[odd])
    await manager.stop()
    assert found["model"][0].state == "wrong"
    assert "kimi-k2.6 is served" in found["model"][0].what
    assert found["metrics"][0].state == "warning"
    assert found["acceptance"][0].state == "warning"
    states = {check.what.split("setting for ")[1].split(" ")[0]: check.state for check in found["flags"]}
    assert states == {"--speculative-marvel": "wrong", "--tp": "warning"}


def test_room_is_judged_where_the_sessions_will_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = shutil.disk_usage(tmp_path)
    for free, state in ((50 * 1024**2, "wrong"), (1024**3, "warning"), (50 * 1024**3, "good")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: real._replace(free=free))
        assert check_space(tmp_path / "deep" / "er").state == state
