"""Vocabularies: the arguments of a preset under each, what cannot be expressed, and own words of a sweep file."""

from __future__ import annotations

import pytest

from reconfig.expectations import expectations
from reconfig.flags import CannotExpress, FlagsTable, arguments, left_out
from reconfig.presets import AS_IS, Preset, PresetError
from reconfig.vocabularies import VOCABULARIES, vocabulary_from

TREE = Preset(name="b8t4-w2048", algorithm="DDTREE", budget=8, topk=4, window=2048)
CHAIN = Preset(name="chain", algorithm="DFLASH", block_size=8, window=2048)
NO_TREE_WINDOW = Preset(name="bare", algorithm="DDTREE", budget=8, topk=4, window="none")


@pytest.mark.parametrize(
    ("vocabulary", "preset", "flags", "env"),
    [
        ("mainline", CHAIN, "--speculative-algorithm DFLASH --speculative-num-draft-tokens 8 "
         "--speculative-draft-window-size 2048", {}),
        ("mainline-early-window", CHAIN, "--speculative-algorithm DFLASH --speculative-num-draft-tokens 8 "
         "--speculative-dflash-draft-window-size 2048", {}),
        ("ddtree", TREE, "--speculative-algorithm DDTREE --speculative-ddtree-budget 8 --speculative-ddtree-topk 4 "
         "--speculative-draft-window-size 2048", {}),
        ("ddtree", NO_TREE_WINDOW, "--speculative-algorithm DDTREE --speculative-ddtree-budget 8 "
         "--speculative-ddtree-topk 4", {}),
        ("ddtree-29907", TREE, "--speculative-algorithm DDTREE --speculative-ddtree-budget 8 "
         "--speculative-draft-window-size 2048",
         {"SGLANG_DDTREE_MAX_TOPK": "4", "SGLANG_EXPOSE_OWN_ENV_VARS": "1"}),
        ("dflash-tree-31069", TREE, "--speculative-algorithm DFLASH --speculative-dflash-tree-verify "
         "--speculative-num-draft-tokens 8 --speculative-eagle-topk 4 --speculative-draft-window-size 2048", {}),
        ("dflash-tree-width-36196", TREE, "--speculative-algorithm DFLASH --speculative-dflash-tree-width 4 "
         "--speculative-draft-window-size 2048",
         {"SGLANG_DFLASH_MAX_NUM_NODES": "8", "SGLANG_EXPOSE_OWN_ENV_VARS": "1"}),
        ("mainline", Preset(name="e", algorithm="EAGLE3", budget=16, topk=4), "--speculative-algorithm EAGLE3 "
         "--speculative-num-draft-tokens 16 --speculative-eagle-topk 4", {}),
        ("mainline", Preset(name="n", algorithm="NGRAM", block_size=4, flags=("--tp", "8"), env={"A": "b"}),
         "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4 --tp 8", {"A": "b"}),
        ("mainline", Preset(name="none", algorithm="NONE"), "", {}),
    ],
)  # fmt: skip
def test_each_vocabulary_spells_a_preset_in_its_way(
    vocabulary: str, preset: Preset, flags: str, env: dict[str, str]
) -> None:
    assert arguments(preset, VOCABULARIES[vocabulary]) == (flags.split(), env)


def test_the_fork_counts_the_bonus_token_and_has_no_topk_of_its_own() -> None:
    same = Preset(name="b8t8", algorithm="DDTREE", budget=8, topk=8)
    flags, _ = arguments(same, VOCABULARIES["fork-ddtree"])
    assert flags[-2:] == ["--speculative-num-draft-tokens", "9"]
    with pytest.raises(CannotExpress, match="always equals the budget"):
        arguments(TREE, VOCABULARIES["fork-ddtree"])


@pytest.mark.parametrize(
    ("vocabulary", "preset", "setting"),
    [
        ("mainline", TREE, "algorithm DDTREE"),
        ("mainline", Preset(name="x", algorithm="DFLASH", budget=8), "budget 8"),
        ("mainline", Preset(name="x", algorithm="NGRAM", window=2048), "window 2048"),
        ("ddtree-27509", TREE, "topk 4"),
        ("dflash-tree-31069", Preset(name="x", algorithm="DDTREE", budget=12, topk=6), "topk 6"),
    ],
)  # fmt: skip
def test_what_a_vocabulary_cannot_express_is_named_with_preset_and_vocabulary(
    vocabulary: str, preset: Preset, setting: str
) -> None:
    with pytest.raises(CannotExpress) as caught:
        expectations(preset, VOCABULARIES[vocabulary])
    assert (caught.value.preset, caught.value.setting, caught.value.vocabulary) == (preset.name, setting, vocabulary)
    assert all(word in str(caught.value) for word in (preset.name, setting, vocabulary))


def test_what_bench_calls_a_server_that_shows_nothing_cannot_be_asked_for() -> None:
    with pytest.raises(CannotExpress, match="AS_IS"):
        arguments(Preset(name="as-is", algorithm=AS_IS), VOCABULARIES["mainline"])


def test_own_words_of_a_sweep_file_stand_on_top_of_a_known_vocabulary() -> None:
    old = vocabulary_from(FlagsTable(vocabulary="ddtree", window=["--speculative-dflash-draft-window-size", "{value}"]))
    assert arguments(TREE, old)[0][-2:] == ["--speculative-dflash-draft-window-size", "2048"]
    assert arguments(CHAIN, old)[0][-2:] == ["--speculative-dflash-draft-window-size", "2048"]

    own = vocabulary_from(
        FlagsTable(
            budget=["--tree-nodes={value+1}"], topk=["env:TREE_TOPK={value}"], keys={"budget": "tree_nodes_in_effect"}
        )
    )
    flags, env = arguments(TREE, own)
    assert "--tree-nodes=9" in flags
    assert env == {"TREE_TOPK": "4"}
    keys = {item.setting: item.keys for item in expectations(TREE, own)}
    assert keys["budget"] == (("tree_nodes_in_effect", "9"),)
    assert keys["topk"] == (("env:TREE_TOPK", "4"),)

    named = vocabulary_from(FlagsTable(algorithm="tree9", switch=["--tree9"], budget=["--nodes", "{value}"]))
    assert arguments(Preset(name="x", algorithm="TREE9", budget=3), named)[0] == ["--tree9", "--nodes", "3"]


def test_faulty_flags_tables_are_refused_in_words() -> None:
    with pytest.raises(PresetError, match="known are: mainline"):
        vocabulary_from(FlagsTable(vocabulary="no-such"))
    with pytest.raises(PresetError, match=r"one of the words must hold"):
        vocabulary_from(FlagsTable(budget=["--nodes", "8"]))


def test_every_known_vocabulary_names_itself_and_still_knows_the_chain() -> None:
    for name, vocabulary in VOCABULARIES.items():
        assert vocabulary.name == name
        assert vocabulary.says
        assert arguments(Preset(name="c", algorithm="DFLASH", block_size=8), vocabulary)[0]


def test_what_a_server_must_not_have_is_named() -> None:
    words = VOCABULARIES["ddtree-29907"]
    without = left_out(Preset(name="none", algorithm="NONE", flags=("--speculative-eagle-topk", "1")), words)
    assert "--speculative-algorithm" in without
    assert "SGLANG_DDTREE_MAX_TOPK" in without
    assert "--speculative-eagle-topk" not in without
    no_window = Preset(name="a", algorithm="DDTREE", budget=8, topk=4, window="none")
    assert left_out(no_window, words) == ["--speculative-draft-window-size"]
    assert left_out(Preset(name="b", algorithm="DDTREE", budget=8, topk=4, window=2048), words) == []
