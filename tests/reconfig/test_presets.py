"""Presets from the sweep file's entries: grids, names, and what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconfig.presets import Preset, PresetEntry, PresetError, expand, name_of


class _Sweep(msgspec.Struct):
    presets: list[PresetEntry]


def names(toml: str) -> list[str]:
    return [preset.name for preset in expand(msgspec.toml.decode(toml, type=_Sweep).presets)]


def test_the_campaign_of_the_field_is_a_grid_of_pairs_with_and_without_the_window() -> None:
    assert names("""
        [[presets]]
        algorithm = "NONE"
        [[presets]]
        algorithm = "ddtree"
        budget_topk = [[8, 4], [16, 4], [4, 4], [12, 6]]
        window = [2048, "none"]
    """) == [
        "none", "b8t4-w2048", "b8t4-wnone", "b16t4-w2048", "b16t4-wnone",
        "b4t4-w2048", "b4t4-wnone", "b12t6-w2048", "b12t6-wnone",
    ]  # fmt: skip


def test_lists_make_a_grid_and_the_algorithm_names_what_has_no_tree() -> None:
    assert names("""
        [[presets]]
        algorithm = ["DFLASH", "DDTREE"]
        block_size = [8, 16]
    """) == ["dflash-k8", "dflash-k16", "ddtree-k8", "ddtree-k16"]
    assert names('presets = [{algorithm = "DDTREE", budget = [4, 8], topk = 4}]') == ["b4t4", "b8t4"]


def test_a_list_of_algorithms_with_none_in_it_gives_one_baseline() -> None:
    assert names('presets = [{algorithm = ["NONE", "DFLASH"], block_size = [8, 16]}]') == [
        "none", "dflash-k8", "dflash-k16",
    ]  # fmt: skip


def test_a_given_name_is_kept_and_leads_the_names_of_a_grid() -> None:
    assert names('presets = [{algorithm = "NONE", name = "plain"}]') == ["plain"]
    assert names('presets = [{algorithm = "DFLASH", block_size = [8, 16], name = "chain"}]') == [
        "chain-dflash-k8", "chain-dflash-k16",
    ]  # fmt: skip


def test_presets_that_differ_in_flags_or_environment_alone_are_told_apart_by_them() -> None:
    assert names("""
        [[presets]]
        algorithm = "DFLASH"
        flags = ["--max-running-requests", "64"]
        [[presets]]
        algorithm = "DFLASH"
        env = {SGLANG_X = "1"}
        [[presets]]
        algorithm = "DFLASH"
    """) == ["dflash-max-running-requests-64", "dflash-sglang-x-1", "dflash"]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('presets = [{algorithm = "NONE"}, {algorithm = "none"}]', 'called "none" (presets[1], presets[2])'),
        ('presets = [{algorithm = "NONE", budget = 4}]', "remove budget"),
        ('presets = [{algorithm = "DDTREE", budget = 4, budget_topk = [[8, 4]]}]', "remove budget and topk"),
        ('presets = [{algorithm = "DDTREE", budget = 0}]', "budget: every number must be 1 or more"),
        ('presets = [{algorithm = "DDTREE", window = []}]', "window = []"),
        ('presets = [{algorithm = "DDTREE", budget_topk = []}]', "budget_topk = []"),
        ('presets = [{algorithm = "a b"}]', "algorithm = 'a b'"),
        ('presets = [{algorithm = "DFLASH", flags = ["--x\\n--y"]}]', "no line breaks"),
        ('presets = [{algorithm = "DFLASH", name = " "}]', "leave it out"),
        ('presets = [{algorithm = "DFLASH", env = {HF_TOKEN = "x"}}]', "HF_TOKEN: a session keeps its presets"),
        ('presets = [{algorithm = "NONE", flags = ["--tp 8"]}]', "write ['--tp', '8']"),
        ('presets = [{algorithm = "NONE", flags = ["--api-key=x"]}]', "--api-key: a session keeps"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_entry_and_cure(toml: str, words: str) -> None:
    with pytest.raises(PresetError) as caught:
        names(toml)
    assert "presets[" in str(caught.value)
    assert words in str(caught.value)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(PresetError) as caught:
        names('presets = [{algorithm = "DDTREE", budget = 0, topk = -1}, {algorithm = "NONE", window = 2048}]')
    assert len(str(caught.value).splitlines()) == 3


sizes = st.one_of(st.none(), st.integers(1, 64), st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True))


@given(budget=sizes, topk=sizes, block_size=sizes, window=st.one_of(sizes, st.just("none")))
def test_names_of_a_grid_are_unique_and_say_what_is_asked(
    budget: int | list[int] | None, topk: int | list[int] | None, block_size: int | list[int] | None, window: object
) -> None:
    entry = PresetEntry(
        algorithm="DDTREE", budget=budget, topk=topk, block_size=block_size, window=window,  # type: ignore[arg-type]
    )  # fmt: skip
    presets = expand([entry])
    assert len({preset.name for preset in presets}) == len(presets)
    assert all(preset.name == name_of(preset) for preset in presets)
    bare = [msgspec.structs.replace(preset, name="") for preset in presets]
    assert all(bare.count(preset) == 1 for preset in bare)


def test_only_the_baseline_speculates_not_at_all() -> None:
    assert not Preset(name="none", algorithm="NONE").speculative
    assert Preset(name="x", algorithm="NGRAM").speculative
