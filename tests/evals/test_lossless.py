"""Greedy texts against the reference preset's."""

from __future__ import annotations

import asyncio

import pytest

from evals.lossless import (
    TOKENS,
    WORDS,
    GreedyText,
    LosslessLimits,
    compare,
    first_differing_character,
    fixed_prompts,
    run_lossless,
    side_by_side,
)
from evals.verdicts import LosslessSummary
from loadgen.records import Generation, GenerationRequest, Outcome
from tests.evals.scripted import Scripted, answered


def texts(*each: str, tokens: int | None = None) -> dict[int, GreedyText]:
    return {index: GreedyText(text=text, tokens=tokens) for index, text in enumerate(each)}


def compared(reference: dict[int, GreedyText], other: dict[int, GreedyText], **options: object) -> LosslessSummary:
    return compare(reference, other, preset="b8t4", reference="none", **options)  # type: ignore[arg-type]


def test_identical() -> None:
    summary = compared(texts("a b", "c"), texts("a b", "c"))
    assert (summary.compared, summary.identical, summary.identical_share) == (2, 2, 1.0)
    assert (summary.median_first_difference, summary.diverged, summary.differences) == (None, False, ())
    assert side_by_side(summary) is None


def test_positions_in_words_where_no_tokens_are_known() -> None:
    summary = compared(texts("one two three four"), texts("one two THREE four"))
    assert summary.unit == WORDS
    assert summary.differences[0].first_difference == 2


def test_positions_in_tokens_where_they_are_known() -> None:
    summary = compared(texts("x" * 400, tokens=100), texts("x" * 200 + "y" * 200, tokens=100))
    assert summary.unit == TOKENS
    assert summary.median_first_difference == 50


def test_one_unknown_count_makes_all_positions_words() -> None:
    reference = {0: GreedyText(text="a b", tokens=2), 1: GreedyText(text="a b")}
    assert compared(reference, texts("a c", "a c")).unit == WORDS


@pytest.mark.parametrize(
    ("different", "at", "diverged"),
    [(1, 0, False), (2, 0, False), (3, 0, True), (10, 0, True), (3, 65, False), (3, 64, True)],
)
def test_diverged_needs_many_and_early_differences(different: int, at: int, diverged: bool) -> None:
    words = [f"w{n}" for n in range(80)]
    changed = [*words[:at], "X", *words[at + 1 :]]
    reference = texts(*[" ".join(words)] * 10)
    other = texts(*([" ".join(changed)] * different + [" ".join(words)] * (10 - different)))
    summary = compared(reference, other)
    assert summary.identical_share == pytest.approx(1 - different / 10)
    assert summary.diverged is diverged


def test_limits_are_settings() -> None:
    reference, other = texts("a b c", "d"), texts("a b x", "d")
    assert not compared(reference, other, limits=LosslessLimits(share=0.5)).diverged
    assert compared(reference, other, limits=LosslessLimits(share=0.9)).diverged
    assert not compared(reference, other, limits=LosslessLimits(share=0.9, position=1)).diverged


def test_only_prompts_answered_under_both_are_compared() -> None:
    summary = compared({0: GreedyText(text="a"), 2: GreedyText(text="b")}, texts("a", "x"), prompts=4)
    assert (summary.prompts, summary.compared, summary.identical) == (4, 1, 1)
    nothing = compared({}, texts("a"))
    assert (nothing.identical_share, nothing.diverged, nothing.prompts) == (None, False, 1)


def test_side_by_side_shows_the_first_one_that_differs() -> None:
    reference = texts("same", "It begins alike and then goes left.")
    found = side_by_side(compared(reference, texts("same", "It begins alike and then goes right.")), before=10)
    assert found is not None
    assert (found.prompt, found.before, found.reference, found.text) == (1, "then goes ", "left.", "right.")


def test_first_differing_character() -> None:
    assert first_differing_character("abc", "abc") is None
    assert first_differing_character("abc", "abd") == 2
    assert first_differing_character("abc", "ab") == 2
    assert first_differing_character("", "x") == 0


def test_run_asks_greedily_and_leaves_failures_out() -> None:
    def reply(request: GenerationRequest) -> Generation:
        if request.rid.endswith("001"):
            return answered(request, "", outcome=Outcome.TIMEOUT, finish=None)
        return answered(request, "answer to " + request.messages[0].content, reasoning="hm", n_out=9)

    generator = Scripted(reply)
    ended: list[int] = []
    found = asyncio.run(
        run_lossless(["p", "q", "r"], generator, concurrency=2, on_generation=lambda index, _: ended.append(index))
    )
    assert found == {
        0: GreedyText(text="hm\nanswer to p", tokens=9),
        2: GreedyText(text="hm\nanswer to r", tokens=9),
    }
    assert sorted(ended) == [0, 1, 2]
    assert {(r.temperature, r.purpose, r.keep_text) for r in generator.requests} == {(0.0, "lossless", True)}
    assert generator.most_running <= 2


def test_fixed_prompts_are_many_and_different() -> None:
    assert fixed_prompts(16) == fixed_prompts(40)[:16]
    assert len(set(fixed_prompts(100))) == 100
    assert fixed_prompts(0) == ()
