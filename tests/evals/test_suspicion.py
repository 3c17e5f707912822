"""Which patterns are suspected, of what, and which are not."""

from __future__ import annotations

import pytest

from evals.coding import summarise
from evals.evidence import CellEvidence, Evidence, PresetEvidence
from evals.problems import ProblemSet
from evals.suspicion import RULES, suspicions
from evals.verdicts import EvalSummary, Judgement, LosslessSummary, Suspicion, Verdict
from loadgen.figures import CellFigures, Interval
from tests.evals.scripted import judgement

SET = ProblemSet(name="core-5", problems=())


def summary(judgements: list[Judgement], speed: float | None = 170.0) -> EvalSummary:
    return summarise(judgements, preset="", problem_set=SET, samples=1, throughput_tok_s=speed)


def preset(
    name: str, judgements: list[Judgement] | None = None, speed: float | None = 170.0, **more: object
) -> PresetEvidence:
    judged = judgements or []
    coding = summary(judged, speed) if judged else None
    return PresetEvidence(preset=name, judgements=tuple(judged), coding=coding, **more)  # type: ignore[arg-type]


def rules(*presets: PresetEvidence, reference: str | None = "none") -> list[tuple[str, str | None]]:
    return [(s.rule, s.preset) for s in raised(*presets, reference=reference)]


def raised(*presets: PresetEvidence, reference: str | None = "none") -> list[Suspicion]:
    found = suspicions(Evidence(presets=presets, reference=reference))
    assert all(s.words and s.evidence and s.look_at for s in found)
    return found


def passes(count: int = 5) -> list[Judgement]:
    return [judgement(Verdict.PASS, task=str(n)) for n in range(count)]


def failures(count: int = 5, verdict: Verdict = Verdict.ERROR, detail: str = "SyntaxError: x") -> list[Judgement]:
    return [judgement(verdict, detail, task=str(n)) for n in range(count)]


def test_nothing_is_suspected_where_all_is_well() -> None:
    assert rules(preset("none", passes()), preset("b8t4", passes())) == []
    assert rules() == []
    assert rules(preset("empty")) == []


def test_same_failure_at_healthy_speed() -> None:
    (found,) = raised(preset("b8t4", failures()))
    assert (found.rule, found.suspect, found.preset) == ("same-failure", "harness", "b8t4")
    assert "5 of 5 answers: error, SyntaxError" in found.evidence
    assert "170 tok/s" in found.evidence
    assert "extraction" in found.words


def test_different_failures_are_the_models() -> None:
    mixed = [*failures(3), *failures(2, Verdict.FAIL, "AssertionError at: x")]
    assert rules(preset("b8t4", mixed)) == []


def test_one_pass_clears_the_harness() -> None:
    assert rules(preset("b8t4", [*failures(4), *passes(1)])) == []


def test_too_few_answers_say_nothing() -> None:
    assert rules(preset("b8t4", failures(2))) == []


def test_same_failure_at_low_speed_is_another_matter() -> None:
    slow = preset("b8t4", failures(), speed=20.0)
    assert ("same-failure", "b8t4") not in rules(slow, preset("none", passes(), speed=170.0))
    assert rules(preset("b8t4", failures(), speed=None)) == []


def test_failing_in_the_same_way_with_different_words() -> None:
    answers = [judgement(Verdict.ERROR, f"SyntaxError: line {n}", task=str(n)) for n in range(5)]
    assert rules(preset("b8t4", answers)) == [("same-failure", "b8t4")]


def test_one_preset_falls_alone() -> None:
    mixed = [*passes(1), *failures(2), *failures(2, Verdict.FAIL, "AssertionError")]
    evidence = [preset("none", passes(), speculative=False), preset("b8t4", passes()), preset("b16t4", mixed)]
    (found,) = raised(*evidence, preset("b12t6", passes()))
    assert (found.rule, found.suspect, found.preset) == ("fallen-preset", "speculation", "b16t4")
    assert "1 of 5 here, 15 of 15" in found.evidence


def test_a_small_fall_may_be_chance() -> None:
    almost = [*passes(4), *failures(1)]
    assert rules(preset("none", passes()), preset("b8t4", almost)) == []


def test_two_fallen_presets_are_not_one() -> None:
    bad = [*failures(3), *failures(2, Verdict.FAIL, "AssertionError")]
    assert rules(preset("a", passes(40)), preset("b", bad), preset("c", bad)) == []


def test_empty_answers() -> None:
    empty = [judgement(Verdict.NO_ANSWER, "empty", task=str(n), in_thinking=True) for n in range(4)]
    (found,) = raised(preset("b8t4", [*empty, *passes(1)]))
    assert (found.rule, found.suspect) == ("empty-answers", "server")
    assert "4 of 5" in found.evidence and "in 4 of them" in found.evidence
    assert "reasoning-parser" in found.look_at


def test_every_answer_cut() -> None:
    cut = [judgement(Verdict.TRUNCATED_IN_THINKING, task=str(n), finish="length") for n in range(3)]
    cut += [judgement(Verdict.PASS, task="p", finish="length")]
    (found,) = raised(preset("b8t4", cut, max_tokens=512))
    assert (found.rule, found.suspect) == ("all-cut", "harness")
    assert "limit of 512 tokens, 3 of them while still thinking" in found.evidence
    assert rules(preset("b8t4", [*cut, *passes(1)])) == []


def test_failed_requests_and_a_broken_sandbox() -> None:
    bad = [
        judgement(Verdict.NO_ANSWER, "http_5xx", task="a", failed=True),
        judgement(Verdict.SANDBOX, "no bwrap", task="b"),
    ]
    assert rules(preset("b8t4", [*bad, *passes(3)])) == [("sandbox-broken", "b8t4"), ("requests-failed", "b8t4")]


def cell(tau: float | None, *, ci: float = 0.05, context: int = 60, source: str = "per-request") -> CellEvidence:
    interval = None if tau is None else Interval(tau - ci, tau + ci)
    figures = CellFigures(acceptance_length=tau, acceptance_ci95=interval, acceptance_source=source)
    return CellEvidence(context=context, concurrency=1, figures=figures)


def test_every_draft_refused() -> None:
    (found,) = raised(preset("b8t4", cells=(cell(1.0), cell(1.0, context=1024))))
    assert (found.rule, found.suspect, found.preset) == ("drafts-refused", "speculation", "b8t4")
    assert rules(preset("b8t4", cells=(cell(1.0), cell(1.2, context=1024)))) == []
    assert rules(preset("none", speculative=False, cells=(cell(1.0),))) == []
    assert rules(preset("b8t4", cells=(cell(None),))) == []


def trees(*taus: tuple[int, float], family: str = "DDTREE topk 4") -> list[PresetEvidence]:
    return [preset(f"b{budget}t4", budget=budget, family=family, cells=(cell(tau),)) for budget, tau in taus]


def test_a_wider_tree_accepts_less() -> None:
    (found,) = raised(*trees((4, 3.6), (8, 4.7), (16, 2.1)))
    assert (found.rule, found.suspect, found.preset) == ("wider-accepts-less", "server", "b16t4")
    assert "2.10 with budget 16, 4.70 with budget 8" in found.evidence
    assert "in 1 of 1 cells" in found.evidence


@pytest.mark.parametrize("other", [4.68, 4.7, 5.2])
def test_no_less_than_the_intervals_allow(other: float) -> None:
    assert rules(*trees((8, 4.7), (16, other))) == []


def test_trees_of_different_families_are_not_compared() -> None:
    assert rules(*trees((8, 4.7)), *trees((16, 2.1), family="DDTREE topk 1")) == []


def test_figures_of_different_sources_are_not_compared() -> None:
    wide = preset("b16t4", budget=16, family="f", cells=(cell(2.0, source="lifetime-mean"),))
    assert rules(preset("b8t4", budget=8, family="f", cells=(cell(4.0),)), wide) == []


def lossless(name: str, *, diverged: bool) -> LosslessSummary:
    return LosslessSummary(
        preset=name,
        reference="none",
        prompts=16,
        compared=16,
        identical=3 if diverged else 16,
        identical_share=3 / 16 if diverged else 1.0,
        median_first_difference=11.0 if diverged else None,
        diverged=diverged,
        unit="words",
    )


def checked(name: str, budget: int | None, *, diverged: bool) -> PresetEvidence:
    return preset(name, budget=budget, lossless=lossless(name, diverged=diverged))


def test_text_differs_for_wide_trees_only() -> None:
    evidence = [checked("b4", 4, diverged=False), checked("b8", 8, diverged=False)]
    evidence += [checked("b16", 16, diverged=True), checked("b32", 32, diverged=True)]
    found = raised(*evidence)
    assert [(s.rule, s.preset) for s in found] == [("wide-trees-differ", "b16"), ("wide-trees-differ", "b32")]
    assert "3 of 16 texts identical, median first 11 words; budgets up to 8 agree" in found[0].evidence


def test_text_differs_for_a_narrow_tree_too() -> None:
    assert rules(checked("b4", 4, diverged=True), checked("b8", 8, diverged=False)) == []


def test_text_differs_everywhere() -> None:
    found = raised(
        checked("b4", 4, diverged=True), checked("b8", 8, diverged=True), checked("chain", None, diverged=True)
    )
    assert [(s.rule, s.preset) for s in found] == [("all-differ", None)]
    assert "chain: 3 of 16" in found[0].evidence


def test_every_rule_is_tested_here() -> None:
    assert len(RULES) == 9
