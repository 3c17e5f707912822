"""Rules that speak when a pattern smells of the harness or the server and not of the model.

Pure: the evidence goes in, suspicions come out, each with the figures behind it and what to look at next. A rule that
lacks the evidence says nothing. The lists `RULES` and `docs/evals.md` name the same rules.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from evals.evidence import Evidence, PresetEvidence
from evals.statistics import fisher_lower
from evals.suspicion_trees import (
    drafts_refused,
    text_differs_everywhere,
    text_differs_when_wide,
    wider_accepts_less,
)
from evals.verdicts import Judgement, Suspicion, Verdict, counts_for_the_model

FEWEST_ANSWERS = 3
"""Answers below which a rule about all answers says nothing."""
HEALTHY_SHARE = 0.5
"""A preset is as fast as it should be when it reaches this share of the median of the others."""
FALLEN_P = 0.01
"""One-sided p-value below which a preset's pass rate is lower than the others' together."""
MOST_SHARE = 0.5
"""Share of answers from which on an oddity is a pattern."""

_CUT = frozenset({Verdict.TRUNCATED, Verdict.TRUNCATED_IN_THINKING})


def suspicions(evidence: Evidence) -> list[Suspicion]:
    """Returns every suspicion that the evidence supports, in the order of the rules, then of the presets."""
    return [suspicion for rule in RULES for suspicion in rule(evidence)]


def _same_failure(evidence: Evidence) -> Iterator[Suspicion]:
    """All answers fail in the same way while the server is as fast as ever: the harness misreads them."""
    for preset in evidence.presets:
        answers = [j for j in preset.judgements if counts_for_the_model(j)]
        if len(answers) < FEWEST_ANSWERS or any(j.verdict is Verdict.PASS for j in answers):
            continue
        ways = Counter(_way_of_failing(j) for j in answers)
        way, count = ways.most_common(1)[0]
        if count < len(answers) or way[0] in (*_CUT, Verdict.NO_ANSWER, Verdict.SANDBOX):
            continue
        speed = _healthy_speed(preset, evidence)
        if speed is None:
            continue
        example = answers[0]
        yield Suspicion(
            rule="same-failure",
            suspect="harness",
            preset=preset.preset,
            words="every problem fails in the same way at healthy speed: suspect the extraction, not the model",
            evidence=f"{count} of {len(answers)} answers: {_words_of(way)}; {speed}; for instance {example.task_id}: "
            f"taken from {example.extraction.origin or 'nothing'}, {example.extraction.why}",
            look_at="open an answer of this eval beside what was taken from it; is there thinking in the answer "
            "(a server without a reasoning parser), or another way of writing code blocks?",
        )


def _fallen_preset(evidence: Evidence) -> Iterator[Suspicion]:
    """The pass rate falls at one preset alone: the model is the same, so the setting is to blame."""
    by_set: dict[str, list[tuple[PresetEvidence, int, int]]] = defaultdict(list)
    for preset in evidence.presets:
        trials = [j for j in preset.judgements if counts_for_the_model(j)]
        summary = preset.coding
        if summary is not None and summary.judged:
            by_set[summary.problem_set].append((preset, summary.passed, summary.judged))
        elif trials:
            passed = sum(j.verdict is Verdict.PASS for j in trials)
            by_set[trials[0].problem_set].append((preset, passed, len(trials)))
    for counted in by_set.values():
        if len(counted) < 2:
            continue
        low = [
            (preset, passed, n, p, others)
            for preset, passed, n in counted
            for others in [[c for c in counted if c[0] is not preset]]
            for p in [fisher_lower(passed, n, sum(c[1] for c in others), sum(c[2] for c in others))]
            if p < FALLEN_P and passed / n < min(c[1] / c[2] for c in others)
        ]
        if len(low) != 1:
            continue
        preset, passed, n, p, others = low[0]
        others_passed, others_n = sum(c[1] for c in others), sum(c[2] for c in others)
        yield Suspicion(
            rule="fallen-preset",
            suspect="speculation" if preset.speculative else "server",
            preset=preset.preset,
            words="the pass rate falls at this preset alone: the model is the same, so the setting changes its answers",
            evidence=f"{passed} of {n} here, {others_passed} of {others_n} under the other presets (p = {p:.2g})",
            look_at="the lossless check of this preset, and its failed answers beside another preset's",
        )


def _empty_answers(evidence: Evidence) -> Iterator[Suspicion]:
    """Answers come back empty although the request ended well."""
    for preset in evidence.presets:
        answers = [j for j in preset.judgements if counts_for_the_model(j)]
        empty = [j for j in answers if j.verdict is Verdict.NO_ANSWER]
        if len(answers) < FEWEST_ANSWERS or len(empty) < MOST_SHARE * len(answers):
            continue
        thought = sum(j.extraction.in_thinking for j in empty)
        yield Suspicion(
            rule="empty-answers",
            suspect="server",
            preset=preset.preset,
            words="answers are empty although the requests ended well",
            evidence=f"{len(empty)} of {len(answers)} answers are empty; in {thought} of them all text is thinking",
            look_at="the server's --reasoning-parser: one that does not fit the model puts the whole answer into "
            "reasoning_content",
        )


def _all_cut(evidence: Evidence) -> Iterator[Suspicion]:
    """Every answer reaches the token limit."""
    for preset in evidence.presets:
        answers = [j for j in preset.judgements if counts_for_the_model(j)]
        cut = [j for j in answers if j.finish_reason == "length"]
        if len(answers) < FEWEST_ANSWERS or len(cut) < len(answers):
            continue
        thinking = sum(j.verdict is Verdict.TRUNCATED_IN_THINKING for j in cut)
        limit = f" of {preset.max_tokens} tokens" if preset.max_tokens else ""
        yield Suspicion(
            rule="all-cut",
            suspect="harness",
            preset=preset.preset,
            words="every answer was cut at the token limit: the pass rate says nothing",
            evidence=f"{len(cut)} of {len(answers)} ended with finish_reason length at the limit{limit}, "
            f"{thinking} of them while still thinking",
            look_at="raise max_tokens of the evals; a thinking model needs some thousands. If the limit is high "
            "already, look at the texts: does the model repeat itself?",
        )


def _nothing_ran(evidence: Evidence) -> Iterator[Suspicion]:
    """Answers that could not be judged for reasons of our own, or that the server failed to give."""
    for preset in evidence.presets:
        broken = [j for j in preset.judgements if j.verdict is Verdict.SANDBOX]
        failed = [j for j in preset.judgements if j.request_failed]
        if broken:
            yield Suspicion(
                rule="sandbox-broken",
                suspect="harness",
                preset=preset.preset,
                words="the sandbox did not start for some answers; they count for nothing",
                evidence=f"{len(broken)} of {len(preset.judgements)}; the first: {broken[0].detail}",
                look_at="spectop check, which probes the sandbox, and free memory on this machine",
            )
        if failed:
            yield Suspicion(
                rule="requests-failed",
                suspect="server",
                preset=preset.preset,
                words="the server failed to answer some problems; they count for nothing",
                evidence=f"{len(failed)} of {len(preset.judgements)}; the first: {failed[0].detail}",
                look_at="the server's log at the time of the eval",
            )


RULES: tuple[Callable[[Evidence], Iterator[Suspicion]], ...] = (
    _same_failure,
    _fallen_preset,
    _empty_answers,
    _all_cut,
    drafts_refused,
    wider_accepts_less,
    text_differs_when_wide,
    text_differs_everywhere,
    _nothing_ran,
)


def _way_of_failing(judgement: Judgement) -> tuple[Verdict, str]:
    """Returns the verdict and the kind of error, without what differs from problem to problem."""
    error = re.match(r"\w+(?:Error|Exception|Exit|Interrupt|Iteration|Warning)\b", judgement.detail)
    return judgement.verdict, error.group() if error else ""


def _words_of(way: tuple[Verdict, str]) -> str:
    return f"{way[0]}, {way[1]}" if way[1] else str(way[0])


def _healthy_speed(preset: PresetEvidence, evidence: Evidence) -> str | None:
    own = preset.coding.throughput_tok_s if preset.coding is not None else None
    if own is None or own <= 0:
        return None
    others = sorted(
        p.coding.throughput_tok_s
        for p in evidence.presets
        if p is not preset and p.coding is not None and p.coding.throughput_tok_s
    )
    if others and own < HEALTHY_SHARE * others[len(others) // 2]:
        return None
    return f"{own:.0f} tok/s"
