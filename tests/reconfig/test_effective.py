"""Asked and found: which key, which line of the log, which environment proves a setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reconfig.effective import compare, shown_settings
from reconfig.expectations import expectations
from reconfig.flags import FlagsTable
from reconfig.presets import Preset, SettingFound
from reconfig.server import ServerFacts
from reconfig.vocabularies import VOCABULARIES, vocabulary_from

COMPACT = "Initialized DFLASH draft runner. block_size=8, draft_window_size=2048, compact_cache=True"
LOOSE = "Initialized DFLASH draft runner. block_size=8, draft_window_size=None, compact_cache=False"
FACTS = {
    "speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8, "speculative_ddtree_topk": 4,
    "speculative_num_draft_tokens": 9, "speculative_draft_window_size": 2048,
}  # fmt: skip
TREE = Preset(name="b8t4", algorithm="DDTREE", budget=8, topk=4, window=2048)


def found(preset: Preset, facts: dict[str, Any] | None, vocabulary: str = "ddtree", **more: Any) -> Any:
    more = {"window_line": None, "log_read": False, **more}
    settings = compare(
        expectations(preset, VOCABULARIES[vocabulary]), ServerFacts(facts) if facts is not None else None, **more
    )
    return {setting.setting: setting for setting in settings}


def test_the_window_is_proven_by_the_log_alone_where_the_log_is_read() -> None:
    for line, ok in ((COMPACT, True), (LOOSE, False), (None, False)):
        window = found(TREE, FACTS, window_line=line, log_read=True)["window"]
        assert window.ok is ok
        assert window.source.startswith("log")
    half = COMPACT.replace("True", "False")
    assert not found(TREE, FACTS, window_line=half, log_read=True)["window"].ok
    bare = Preset(name="x", algorithm="DDTREE", window="none")
    assert found(bare, FACTS, window_line=LOOSE, log_read=True)["window"].ok
    assert not found(bare, FACTS, window_line=COMPACT, log_read=True)["window"].ok


def test_without_the_log_the_window_is_taken_from_server_info_and_says_so() -> None:
    window = found(TREE, FACTS)["window"]
    assert window.ok
    assert window.source == "/server_info speculative_draft_window_size (the log that proves it can't be read)"
    older = {**FACTS, "speculative_dflash_draft_window_size": 2048}
    del older["speculative_draft_window_size"]
    assert found(TREE, older)["window"].ok
    assert not found(TREE, {**FACTS, "speculative_draft_window_size": None})["window"].ok


def test_the_ranks_own_values_win_over_the_start_up_ones_and_differing_ranks_are_no_proof() -> None:
    ranks = [{"speculative_ddtree_budget": 16}]
    assert found(TREE, {**FACTS, "internal_states": ranks})["budget"].found == "16"
    ranks = [{"speculative_ddtree_budget": 8}, {"speculative_ddtree_budget": 16}]
    budget = found(TREE, {**FACTS, "internal_states": ranks})["budget"]
    assert (budget.ok, budget.found) == (False, "16 and 8")


def test_the_number_of_draft_tokens_shows_a_tree_with_its_bonus() -> None:
    facts = {name: value for name, value in FACTS.items() if "budget" not in name}
    assert found(TREE, facts)["budget"] == SettingFound(
        "budget", "8", "9", "/server_info speculative_num_draft_tokens", True
    )
    block = Preset(name="x", algorithm="DDTREE", budget=8, block_size=16)
    assert found(block, FACTS)["block size"].ok  # the width of the tree is shown in its place
    assert found(block, {**FACTS, "speculative_dflash_block_size": 16})["block size"].found == "16"
    assert not found(block, {**FACTS, "speculative_num_draft_tokens": 12})["block size"].ok


def test_keys_that_no_vocabulary_names_are_discovered_by_their_looks() -> None:
    facts = {"speculative_algorithm": "DDTREE", "speculative_fancytree_node_budget": 8, "speculative_tree_topk": 2}
    settings = found(TREE, facts)
    assert settings["topk"].found == "2"
    assert not settings["topk"].ok
    assert shown_settings(ServerFacts(facts)) == {
        "speculative_fancytree_node_budget": "8",
        "speculative_tree_topk": "2",
    }


def test_a_setting_that_only_the_environment_shows() -> None:
    facts = {**FACTS, "internal_states": [{"env_vars": {"SGLANG_DDTREE_MAX_TOPK": "4"}}]}
    del facts["speculative_ddtree_topk"]
    topk = found(TREE, facts, "ddtree-29907")["topk"]
    assert (topk.ok, topk.source) == (True, "/server_info env:SGLANG_DDTREE_MAX_TOPK")
    assert not found(TREE, {k: v for k, v in facts.items() if k != "internal_states"}, "ddtree-29907")["topk"].ok


def test_the_baseline_wants_no_algorithm_at_all() -> None:
    none = Preset(name="none", algorithm="NONE")
    assert found(none, {"speculative_algorithm": None})["algorithm"].ok
    assert found(none, {})["algorithm"].ok
    assert not found(none, FACTS)["algorithm"].ok
    assert not found(none, None)["algorithm"].ok


def test_further_flags_are_read_back_by_key_and_else_by_the_start_line() -> None:
    preset = Preset(
        name="x", algorithm="NONE",
        flags=("--max-running-requests", "64", "--enable-metrics", "--odd=1", "--json", '{"a": 1}'),
    )  # fmt: skip
    facts = {"max_running_requests": 48, "enable_metrics": True, "launch_command": "--odd=1 --json '{\"a\": 1}'"}
    settings = found(preset, facts)
    assert settings["--max-running-requests"].found == "48"
    assert not settings["--max-running-requests"].ok
    assert settings["--enable-metrics"].ok
    assert settings["--odd"].ok
    assert settings["--json"].source == "/server_info launch_command (the flag only)"
    assert settings["--json"].ok
    assert not found(preset, {"launch_command": ""})["--odd"].ok


def test_variables_are_looked_for_in_the_process_where_the_server_does_not_show_them() -> None:
    preset = Preset(name="x", algorithm="NONE", env={"NCCL_P2P": "0"})
    assert found(preset, {}, given_env={"NCCL_P2P": "0"})["environment NCCL_P2P"].ok
    assert not found(preset, {}, given_env={})["environment NCCL_P2P"].ok
    taken = found(preset, {})["environment NCCL_P2P"]
    assert (taken.ok, taken.found) == (True, None)
    assert "not shown" in taken.source


def test_floats_and_truth_values_compare_by_meaning() -> None:
    preset = Preset(name="x", algorithm="NONE", flags=("--mem-fraction-static", "0.80", "--page-size", "16"))
    settings = found(preset, {"mem_fraction_static": 0.8, "page_size": 16.0})
    assert settings["--mem-fraction-static"].ok
    assert settings["--page-size"].ok


def test_own_words_are_found_under_the_key_that_the_sweep_file_names() -> None:
    own = vocabulary_from(FlagsTable(vocabulary="ddtree", topk=["--k", "{value}"], keys={"topk": "kk"}))
    [*_, topk, _] = compare(expectations(TREE, own), ServerFacts({**FACTS, "kk": 4}), window_line=None, log_read=False)
    assert (topk.setting, topk.source) == ("topk", "/server_info kk")


def test_a_real_servers_facts_are_read(tmp_path: Path) -> None:
    # The keys of a real SGLang 0.5.23 with NGRAM, as far as they matter here.
    real = json.loads(
        '{"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4, "speculative_eagle_topk": 10,'
        ' "speculative_ngram_external_sam_budget": 0, "speculative_domino_candidate_pool_size": 2048,'
        ' "speculative_draft_window_size": null, "launch_command": "--speculative-algorithm NGRAM"}'
    )
    preset = Preset(name="n", algorithm="NGRAM", block_size=4)
    settings = found(preset, real, "mainline")
    assert all(setting.ok for setting in settings.values())
    assert "speculative_ngram_external_sam_budget" in shown_settings(ServerFacts(real))
    other = Preset(name="n", algorithm="NGRAM", block_size=6)
    assert not found(other, real, "mainline")["block size"].ok
