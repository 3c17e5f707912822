"""The command line: what is accepted, what it resolves to, what is refused and how."""

from __future__ import annotations

import re

import pytest

from simserver.flags import parse
from simserver.settings import Settings, StartError


def resolve(flags: str, **environment: str) -> Settings:
    return parse(["--model-path", "m", *flags.split()], environment)


def test_unknown_flags_end_with_status_2_and_argparses_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        resolve("--speculative-no-such-thing 3")
    assert exit_info.value.code == 2
    assert "error: unrecognized arguments: --speculative-no-such-thing 3" in capsys.readouterr().err


def test_common_flags_are_accepted_and_shown() -> None:
    args = resolve(
        "--tp-size 8 --context-length 32768 --mem-fraction-static 0.9 --attention-backend flashinfer --host 0.0.0.0 "
        "--served-model-name k --trust-remote-code --reasoning-parser kimi_k2 --kv-cache-dtype fp8_e4m3 "
        "--chunked-prefill-size 4096 --disable-radix-cache"
    ).args
    assert (args["tp_size"], args["context_length"], args["mem_fraction_static"]) == (8, 32768, 0.9)
    assert (args["served_model_name"], args["reasoning_parser"], args["disable_radix_cache"]) == ("k", "kimi_k2", True)
    assert args["tokenizer_path"] == "m"


def test_no_speculation() -> None:
    settings = resolve("")
    assert not settings.speculative
    assert settings.verification.width == 1
    assert settings.args["speculative_algorithm"] is None
    assert settings.args["max_running_requests"] is None


def test_a_chain_resolves_to_the_drafters_block_and_48_requests() -> None:
    settings = resolve("--speculative-algorithm dflash --speculative-draft-window-size 2048")
    assert settings.args["speculative_algorithm"] == "DFLASH"
    assert settings.args["speculative_num_draft_tokens"] == 8
    assert (settings.verification.kind, settings.verification.depth, settings.window) == ("chain", 7, 2048)
    assert settings.args["max_running_requests"] == 48
    assert "reset to 48 for speculative decoding" in settings.notes[0]
    assert resolve("--speculative-algorithm DFLASH --sim-profile qwen3-8b").verification.depth == 15


def test_both_spellings_of_the_window() -> None:
    for flag in ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size"):
        settings = resolve(f"--speculative-algorithm DFLASH {flag} 4096")
        assert settings.args["speculative_draft_window_size"] == settings.window == 4096


TREES = [
    ("--speculative-algorithm DDTREE --speculative-ddtree-budget 16 --speculative-ddtree-topk 4", {}, 16, 4, 17),
    ("--speculative-algorithm DDTREE --speculative-ddtree-budget 12", {"SGLANG_DDTREE_MAX_TOPK": "6"}, 12, 6, 13),
    ("--speculative-algorithm DDTREE --speculative-num-draft-tokens 16", {}, 16, 4, 16),
    (
        "--speculative-algorithm DFLASH --speculative-dflash-tree-verify --speculative-num-draft-tokens 32 "
        "--speculative-eagle-topk 8 --speculative-dflash-block-size 8",
        {},
        32,
        8,
        32,
    ),
    (
        "--speculative-algorithm DFLASH --speculative-dflash-tree-width 4 --speculative-dflash-block-size 8",
        {"SGLANG_DFLASH_MAX_NUM_NODES": "24"},
        24,
        4,
        8,
    ),
    (
        "--speculative-algorithm DFLASH --speculative-dflash-enable-ddtree --speculative-num-draft-tokens 17",
        {},
        16,
        16,
        17,
    ),
]


@pytest.mark.parametrize(("flags", "environment", "budget", "topk", "draft_tokens"), TREES)
def test_every_vocabulary_of_trees(
    flags: str, environment: dict[str, str], budget: int, topk: int, draft_tokens: int
) -> None:
    settings = resolve(flags, **environment)
    verification = settings.verification
    assert (verification.kind, verification.depth) == ("tree", 7)
    assert (verification.budget, verification.topk) == (budget, topk)
    assert settings.args["speculative_num_draft_tokens"] == draft_tokens
    assert settings.args["disable_overlap_schedule"] is True


def test_the_tree_settings_are_shown_beside_the_block() -> None:
    args = resolve(
        "--speculative-algorithm DDTREE --speculative-num-draft-tokens 8 --speculative-ddtree-budget 12 "
        "--speculative-ddtree-topk 6"
    ).args
    assert (args["speculative_ddtree_budget"], args["speculative_ddtree_topk"]) == (12, 6)
    assert (args["speculative_dflash_block_size"], args["speculative_num_draft_tokens"]) == (8, 13)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--speculative-algorithm MEDUSA", "Unknown speculative algorithm name: MEDUSA"),
        ("--speculative-algorithm DDTREE --page-size 64", "page_size == 1"),
        ("--speculative-algorithm DFLASH --speculative-draft-window-size 0", "must be positive"),
        ("--speculative-algorithm DFLASH --speculative-draft-window-size 4", "must be >="),
        (
            "--speculative-algorithm DFLASH --speculative-num-draft-tokens 8 --speculative-dflash-block-size 16",
            "they differ",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(flags: str, words: str) -> None:
    with pytest.raises(StartError, match=re.escape(words)):
        resolve(flags)


def test_faults_that_ignore_settings_show_in_the_resolved_arguments() -> None:
    tree = "--speculative-algorithm DDTREE --speculative-ddtree-budget 8 --speculative-ddtree-topk 4 "
    ignored = resolve(tree + "--speculative-draft-window-size 2048 --sim-fault ignore-window")
    assert ignored.window is None
    assert ignored.args["speculative_draft_window_size"] is None
    topk = resolve(tree + "--sim-fault ignore-topk")
    assert (topk.verification.topk, topk.args["speculative_ddtree_topk"]) == (1, 1)
    assert resolve(tree + "--sim-fault ignore-topk=2").verification.topk == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no-such-fault", "known are: ignore-window"),
        ("truncate=1.5", "between 0 and 1"),
        ("no-usage=3", "takes no value"),
        ("slow-old-process=long", "takes a number"),
    ],
)
def test_bad_faults_are_refused_with_what_is_allowed(
    fault: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        resolve(f"--sim-fault {fault}")
    assert exit_info.value.code == 2
    assert words in capsys.readouterr().err
