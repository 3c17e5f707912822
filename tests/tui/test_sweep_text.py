"""What `spectop init` writes is a sweep file that `spectop check` reads, whatever the server and whoever runs it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconfig.flags import arguments
from reconfig.interrogate import Interrogated, RunBy, preset_of, vocabulary_of
from reconfig.managers import CommandConfig, ManagerConfig, ManualConfig, SystemdConfig, manager_from
from reconfig.presets import AS_IS, Preset
from reconfig.server import ServerFacts
from reconfig.vocabularies import VOCABULARIES, vocabulary_from
from sessions.sweep import Sweep, parse_sweep
from tui.sweep_text import sweep_text

RUN_BY = {
    "systemd": RunBy(kind="systemd", unit="sglang-k2.6@a.service", words="pid 7 (python3) is of sglang-k2.6@a.service"),
    "user systemd": RunBy(kind="systemd", unit="sglang.service", user=True, words="pid 7 is of sglang.service"),
    "container": RunBy(kind="command", container="0123456789ab", words="pid 7 runs in container 0123456789ab"),
    "process": RunBy(
        kind="process",
        command=("python3", "-m", "sglang.launch_server", "--api-key", "***", "--note", 'a "b"\nc \\ # é'),
        words="pid 7 (python3) belongs to no service",
    ),
    "manual": RunBy(kind="manual", words="gpu1 is another machine"),
}
CONFIGS: dict[str, type] = {
    "systemd": SystemdConfig,
    "user systemd": SystemdConfig,
    "container": CommandConfig,
    "process": ManualConfig,
    "manual": ManualConfig,
}
DFLASH: dict[str, Any] = {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 9}
SERVERS: dict[str, dict[str, Any]] = {
    "no speculation": {"speculative_algorithm": None},
    "a chain": {**DFLASH, "speculative_dflash_block_size": 8},
    "a chain with a window": {**DFLASH, "speculative_draft_window_size": 2048},
    "ddtree": {
        "speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8, "speculative_ddtree_topk": 4,
        "speculative_num_draft_tokens": 9, "speculative_draft_window_size": 2048,
    },
    "ddtree-29907": {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 12},
    "ddtree-27509": {"speculative_algorithm": "DDTREE", "speculative_num_draft_tokens": 16},
    "fork": {**DFLASH, "speculative_dflash_enable_ddtree": True},
    "tree verify": {**DFLASH, "speculative_dflash_tree_verify": True, "speculative_eagle_topk": 4},
    "tree width": {**DFLASH, "speculative_dflash_tree_width": 4},
    "early window": {**DFLASH, "speculative_dflash_draft_window_size": 4096},
    "ngram": {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4},
    "eagle": {
        "speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": 16, "speculative_eagle_topk": 4,
        "speculative_num_steps": 3,
    },
}  # fmt: skip


def found(facts: dict[str, Any], **more: Any) -> Interrogated:
    shown = ServerFacts(facts)
    vocabulary = vocabulary_of(shown)
    values: dict[str, Any] = {
        "base_url": "http://127.0.0.1:30000", "models": ("moonshotai/Kimi-K2.6",), "dialect": "sglang",
        "version": "0.5.23", "max_model_len": 262_144, "vocabulary": vocabulary,
        "preset": preset_of(shown, VOCABULARIES[vocabulary]), "metrics": True,
    }  # fmt: skip
    return Interrogated(**{**values, **more})


def read(told: Interrogated, api_key_env: str | None = None) -> Sweep:
    return parse_sweep(sweep_text(told, api_key_env), "sweep.toml")


@pytest.mark.parametrize("who", RUN_BY)
def test_whoever_runs_the_server_the_file_is_read_and_gives_that_manager(who: str, tmp_path: Any) -> None:
    sweep = read(found(SERVERS["ddtree"], run_by=RUN_BY[who]), "SGLANG_API_KEY")
    manager: ManagerConfig = sweep.server.manager
    assert isinstance(manager, CONFIGS[who])
    assert manager_from(manager, state_dir=tmp_path).kind == manager.__struct_config__.tag
    assert sweep.server.api_key_env == "SGLANG_API_KEY"
    if isinstance(manager, SystemdConfig):
        assert (manager.unit, manager.user) == (RUN_BY[who].unit, who == "user systemd")


@pytest.mark.parametrize("server", SERVERS)
def test_the_server_s_present_settings_are_the_file_s_preset(server: str) -> None:
    told = found(SERVERS[server])
    sweep = read(told)
    presets = sweep.expanded()
    assert presets[0] == Preset(name="none", algorithm="NONE")
    assert sweep.reference_name() == "none"
    assert presets[1:] == ([told.preset] if told.preset.speculative else [])
    flags, env = arguments(presets[-1], vocabulary_from(sweep.flags))
    assert bool(flags or env) is told.preset.speculative


@pytest.mark.parametrize("dialect", ["vllm", "openai"])
def test_a_server_of_another_kind_gives_a_file_too(dialect: str) -> None:
    told = Interrogated(base_url="https://gpu1:8000/x", models=("m",), dialect=dialect, run_by=RUN_BY["manual"])  # type: ignore[arg-type]
    told = msgspec.structs.replace(told, preset=Preset(name="as-is", algorithm=AS_IS))
    assert "does not show its settings" in sweep_text(told, None)
    sweep = read(told)
    assert (sweep.server.dialect, sweep.server.base_url) == (dialect, "https://gpu1:8000/x")
    assert [preset.name for preset in sweep.expanded()] == ["none"]


def test_a_small_server_is_asked_for_no_more_than_it_can() -> None:
    sweep = read(found(SERVERS["no speculation"], max_model_len=2048, max_running_requests=4))
    assert sweep.matrix.contexts == (60, 1024)
    assert sweep.matrix.concurrency == (1,)
