"""The coding eval over a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from evals.coding import answer_tokens, run_coding_eval, summarise
from evals.problems import Problem, ProblemSet, load_problem_set
from evals.sandbox import Sandbox
from evals.verdicts import EvalSummary, Judgement, Verdict
from loadgen.records import Generation, GenerationRequest, Outcome
from reconfig.presets import Preset
from sessions.events import AnswerJudged, EvalEnded
from sessions.reduce import reduce_all
from sessions.state import PresetState, SessionState
from tests.evals.scripted import Scripted, answered, judgement
from tests.needs import needs

CORE_5 = load_problem_set("core-5")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(parallel=2) as sandbox:
        yield sandbox


def problem_of(request: GenerationRequest) -> Problem:
    return next(problem for problem in CORE_5.problems if problem.prompt == request.messages[0].content)


def right(request: GenerationRequest) -> Generation:
    return answered(request, f"hm\n</think>\n```python\n{problem_of(request).reference}\n```")


def evaluated(sandbox: Sandbox, generator: Scripted, **options: Any) -> tuple[EvalSummary, list[Judgement]]:
    return asyncio.run(run_coding_eval(CORE_5, generator=generator, sandbox=sandbox, preset="b8t4", **options))


@needs("bwrap")
def test_all_right(sandbox: Sandbox) -> None:
    generator = Scripted(right)
    told: list[Judgement] = []
    kept: list[tuple[str, int, str]] = []
    summary, judgements = evaluated(
        sandbox,
        generator,
        concurrency=2,
        max_tokens=777,
        on_judgement=told.append,
        on_generation=lambda problem, sample, done: kept.append((problem.task_id, sample, done.content)),
        rid_prefix="e",
        now=lambda: 42.0,
    )
    assert (summary.passed, summary.judged, summary.pass_at_1) == (5, 5, 1.0)
    assert summary.pass_at_1_ci95 is not None
    assert summary.pass_at_1_ci95[0] == pytest.approx(0.5655, abs=1e-3)
    assert summary.verdicts == {"pass": 5}
    assert (summary.preset, summary.problem_set, summary.sandbox) == ("b8t4", "core-5", "bwrap")
    assert summary.throughput_tok_s == pytest.approx(500.0)
    assert [j.task_id for j in judgements] == [p.task_id for p in CORE_5.problems]
    assert all((j.t, j.preset, j.problem_set, j.tok_s) == (42.0, "b8t4", "core-5", 100.0) for j in judgements)
    assert sorted(j.rid or "" for j in told) == sorted(r.rid for r in generator.requests)
    assert {request.purpose for request in generator.requests} == {"eval"}
    assert all(r.keep_text and r.max_tokens == 777 and r.temperature == 0.0 for r in generator.requests)
    assert generator.most_running <= 2
    assert len(kept) == 5 and all("</think>" in text for _, _, text in kept)


@needs("bwrap")
def with_preset(name: str) -> SessionState:
    return SessionState(presets={name: PresetState(preset=Preset(name=name, algorithm="NONE"))})


def test_samples_and_pass_at_k(sandbox: Sandbox) -> None:
    def sometimes(request: GenerationRequest) -> Generation:
        good = request.seed == 8 or problem_of(request).entry_point == "fib"
        return right(request) if good else answered(request, "no")

    generator = Scripted(sometimes)
    summary, judgements = evaluated(sandbox, generator, samples=4, pass_at=(1, 2, 4), seed=7, temperature=0.7)
    assert len(judgements) == 20 and [j.sample for j in judgements[:4]] == [0, 1, 2, 3]
    assert (summary.samples, summary.judged, summary.passed) == (4, 20, 8)
    assert summary.pass_at_k == pytest.approx({"1": 0.4, "2": 0.6, "4": 1.0})
    assert summary.verdicts == {"pass": 8, "no_code": 12}
    assert len({request.rid for request in generator.requests}) == 20


@needs("bwrap")
def test_failed_requests_are_no_trials(sandbox: Sandbox) -> None:
    def reply(request: GenerationRequest) -> Generation:
        if problem_of(request).entry_point == "gcd":
            return answered(request, "", outcome=Outcome.HTTP_5XX, finish=None, n_out=None, error="overloaded")
        return right(request)

    summary, judgements = evaluated(sandbox, Scripted(reply))
    assert (summary.passed, summary.judged, summary.pass_at_1) == (4, 4, 1.0)
    assert summary.verdicts == {"pass": 4, "no_answer": 1}
    failed = judgements[-1]
    assert failed.request_failed
    assert "http_5xx: overloaded" in failed.detail
    assert summary.words == "4 of 4 passed, 1 could not be judged"
    ended = reduce_all([AnswerJudged(judgement=failed), EvalEnded(summary=summary)], with_preset(summary.preset))
    assert ended.news[-1].level == "warning"
    assert ended.news[-1].words.endswith(f"{summary.words}: {failed.detail}")


@needs("bwrap")
def test_reasoning_alone_is_no_answer(sandbox: Sandbox) -> None:
    def reply(request: GenerationRequest) -> Generation:
        code = f"```python\n{problem_of(request).reference}\n```"
        return answered(request, "", reasoning=code, finish="length")

    summary, _ = evaluated(sandbox, Scripted(reply))
    assert summary.verdicts == {"truncated_in_thinking": 5}
    assert (summary.passed, summary.judged) == (0, 5)


@needs("bwrap")
@pytest.mark.parametrize(("others_think", "verdict"), [(True, "truncated_in_thinking"), (False, "pass")])
def test_an_answer_cut_in_unmarked_thinking(sandbox: Sandbox, others_think: bool, verdict: str) -> None:
    """Cut before its closing tag it looks like an answer; only the other answers tell that it is thinking."""

    def reply(request: GenerationRequest) -> Generation:
        code = f"```python\n{problem_of(request).reference}\n```\n"
        if problem_of(request).entry_point == "is_palindrome":
            return answered(request, f"Perhaps\n{code}but what of", finish="length")
        return answered(request, f"hm\n</think>\n{code}" if others_think else code)

    _, judgements = evaluated(sandbox, Scripted(reply), concurrency=1)
    assert [str(j.verdict) for j in judgements] == [verdict, "pass", "pass", "pass", "pass"]


class Lost(Exception):
    """What a pool raises when its process has died."""


@needs("bwrap")
def test_an_error_of_the_generator_comes_through_as_itself(sandbox: Sandbox) -> None:
    def reply(request: GenerationRequest) -> Generation:
        raise Lost

    with pytest.raises(Lost):
        evaluated(sandbox, Scripted(reply))


def test_summary_without_any_trial() -> None:
    broken = [judgement(Verdict.SANDBOX, task="a"), judgement(Verdict.NO_ANSWER, task="b", failed=True)]
    summary = summarise(broken, preset="p", problem_set=ProblemSet(name="x", problems=()), samples=1, pass_at=(1,))
    assert (summary.judged, summary.pass_at_1, summary.pass_at_1_ci95, summary.pass_at_k) == (0, None, None, {})
    assert summary.verdicts == {"sandbox": 1, "no_answer": 1}
    assert summary.words == "none of 2 answers could be judged"
    assert reduce_all([EvalEnded(summary=summary)]).news[-1].level == "error"


@pytest.mark.parametrize(("limit", "tokens"), [(None, 2048), (1 << 18, 2048), (2048, 1536), (256, 1)])
def test_an_answer_is_no_longer_than_the_server_can_hold(limit: int | None, tokens: int) -> None:
    assert answer_tokens(limit) == tokens


def test_judgements_survive_the_log() -> None:
    kept = judgement(Verdict.FAIL, "AssertionError")
    assert msgspec.json.decode(msgspec.json.encode(kept), type=Judgement) == kept
