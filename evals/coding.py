"""The coding eval of one preset: asks every problem, judges every answer, sums up.

Generations go through the same generator as all other requests; verdicts are reached while other answers still arrive.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from evals.judge import SavedAnswer, judge_answer
from evals.problems import Problem, ProblemSet
from evals.sandbox import TIMEOUT_S, Sandbox
from evals.statistics import pass_at_k, wilson_interval
from evals.thinking import part
from evals.together import together
from evals.verdicts import EvalSummary, Extraction, Judgement, Verdict, counts_for_the_model
from loadgen.records import Generation, GenerationRequest, Generator, Message, Route

ANSWER_TOKENS, PROMPT_TOKENS = 2048, 512
"""What an answer to a problem may take, with reasoning; what its question takes at most."""

OnGeneration = Callable[[Problem, int, Generation], None]


def _ignore(*_: object) -> None:
    pass


async def run_coding_eval(
    problem_set: ProblemSet,
    *,
    generator: Generator,
    sandbox: Sandbox,
    preset: str = "",
    samples: int = 1,
    max_tokens: int = 4096,
    concurrency: int = 8,
    temperature: float = 0.0,
    pass_at: Sequence[int] = (),
    on_judgement: Callable[[Judgement], None] = _ignore,
    on_generation: OnGeneration = _ignore,
    rid_prefix: str = "eval",
    route: Route = "chat",
    seed: int | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> tuple[EvalSummary, list[Judgement]]:
    """Runs a problem set under the preset that is in effect.

    Args:
        problem_set: what is asked.
        generator: runs the generations.
        sandbox: where the answers' code runs.
        preset: name stamped on every judgement.
        samples: answers per problem.
        max_tokens: limit of output tokens of an answer, thinking included.
        concurrency: generations open at once.
        temperature: 0 is greedy; with `samples` above 1 a higher one is meant.
        pass_at: values of k for pass@k; each must be at most `samples`.
        on_judgement: told each judgement as soon as it is reached.
        on_generation: told each generation with its texts as soon as it has ended, so that they can be kept.
        rid_prefix: beginning of every request id.
        route: the server's route.
        seed: makes sampled answers reproducible where the server takes one; sample number is added.
        now: seconds on the session's clock.

    Returns:
        The summary, and the judgements by problem and sample.
    """
    gate = asyncio.Semaphore(concurrency)
    generations: list[Generation] = []
    habit = _Habit(len(problem_set.problems) * samples)

    async def one(number: int, problem: Problem, sample: int) -> Judgement:
        request = GenerationRequest(
            rid=f"{rid_prefix}-{number:03d}-{sample}",
            messages=(Message("user", problem.prompt),) if route == "chat" else (),
            text=None if route == "chat" else problem.prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=None if seed is None else seed + sample,
            category="code",
            purpose="eval",
            route=route,
            keep_text=True,
        )
        async with gate:
            generation = await generator.generate(request)
        generations.append(generation)
        on_generation(problem, sample, generation)
        opened_by_prompt = await habit.seen_with(generation)
        judgement = await _judged(problem, generation, sandbox, opened_by_prompt)
        judgement = msgspec.structs.replace(
            judgement,
            t=now(),
            preset=preset,
            problem_set=problem_set.name,
            task_id=problem.task_id,
            sample=sample,
            rid=request.rid,
            tok_s=_speed(generation),
        )
        on_judgement(judgement)
        return judgement

    judgements = await together(
        one(number, problem, sample) for number, problem in enumerate(problem_set.problems) for sample in range(samples)
    )
    summary = summarise(
        judgements,
        preset=preset,
        problem_set=problem_set,
        samples=samples,
        pass_at=pass_at,
        sandbox=sandbox.level.name,
        throughput_tok_s=_throughput(generations),
    )
    return summary, judgements


class _Habit:
    """Whether this server's chat template opens the thinking, learnt from the answers that were not cut.

    An answer that was cut before any tag looks like an answer and is nothing but thinking; its judgement waits until
    another answer has shown the habit, or all have arrived.
    """

    def __init__(self, answers: int) -> None:
        self._missing = answers
        self._opened_by_prompt = False
        self._known = asyncio.Event()

    async def seen_with(self, generation: Generation) -> bool:
        """Notes an answer; returns whether it is to be read as one whose thinking the prompt had opened."""
        parted = part(generation.content)
        self._missing -= 1
        self._opened_by_prompt = self._opened_by_prompt or parted.opened_by_prompt
        if self._opened_by_prompt or self._missing == 0:
            self._known.set()
        if generation.record.finish_reason != "length" or parted.tag or generation.reasoning:
            return False
        await self._known.wait()
        return self._opened_by_prompt


async def _judged(problem: Problem, generation: Generation, sandbox: Sandbox, opened_by_prompt: bool) -> Judgement:
    record = generation.record
    if not record.valid:
        why = f"the request failed ({record.outcome}{': ' + record.error if record.error else ''})"
        return Judgement(
            verdict=Verdict.NO_ANSWER,
            extraction=Extraction(code=None, channel="none", origin="", why=why),
            detail=why,
            sandbox=sandbox.level.name,
            finish_reason=record.finish_reason,
            request_failed=True,
        )
    answer = SavedAnswer(
        content=generation.content, reasoning_content=generation.reasoning, finish_reason=record.finish_reason
    )
    return await judge_answer(
        answer,
        problem.test,
        problem.entry_point,
        sandbox=sandbox,
        timeout_s=problem.timeout_s or TIMEOUT_S,
        preamble=problem.preamble,
        opened_by_prompt=opened_by_prompt,
    )


def answer_tokens(max_model_len: int | None) -> int:
    """Returns how long an answer may be: as long as a problem needs, or as a server with such a limit can hold."""
    room = ANSWER_TOKENS if max_model_len is None else max_model_len - PROMPT_TOKENS
    return max(1, min(ANSWER_TOKENS, room))


def summarise(
    judgements: Sequence[Judgement],
    *,
    preset: str,
    problem_set: ProblemSet,
    samples: int,
    pass_at: Sequence[int] = (),
    sandbox: str = "",
    throughput_tok_s: float | None = None,
) -> EvalSummary:
    """Sums judgements up; answers that say nothing of the model are counted by verdict, but are no trials."""
    trials = [judgement for judgement in judgements if counts_for_the_model(judgement)]
    passed = sum(judgement.verdict is Verdict.PASS for judgement in trials)
    by_problem = Counter(judgement.task_id for judgement in trials)
    passes = Counter(judgement.task_id for judgement in trials if judgement.verdict is Verdict.PASS)
    counts = [(n, passes[task]) for task, n in by_problem.items()]
    at_k = {str(k): share for k in pass_at if (share := pass_at_k(counts, k)) is not None}
    return EvalSummary(
        preset=preset,
        problem_set=problem_set.name,
        problems=len(problem_set.problems),
        samples=samples,
        judged=len(trials),
        passed=passed,
        pass_at_1=passed / len(trials) if trials else None,
        pass_at_1_ci95=wilson_interval(passed, len(trials)),
        pass_at_k=at_k,
        verdicts=dict(Counter(str(judgement.verdict) for judgement in judgements)),
        sandbox=sandbox,
        throughput_tok_s=throughput_tok_s,
    )


def _speed(generation: Generation) -> float | None:
    record = generation.record
    if not record.valid or record.n_out is None or not record.e2e:
        return None
    return record.n_out / record.e2e


def _throughput(generations: Sequence[Generation]) -> float | None:
    """Returns output tokens of valid requests / seconds from the first send to the last token."""
    records = [generation.record for generation in generations if generation.record.valid]
    measured = [record for record in records if record.n_out is not None and record.e2e is not None]
    if not measured:
        return None
    first = min(record.t_send for record in measured)
    last = max(record.t_send + (record.e2e or 0.0) for record in measured)
    return sum(record.n_out or 0 for record in measured) / (last - first) if last > first else None
