"""A generator that answers from a script, and small makers of what evals produce."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evals.verdicts import Extraction, Judgement, Verdict
from loadgen.records import Generation, GenerationRequest, Outcome, RequestRecord

Reply = Callable[[GenerationRequest], Generation]


def answered(
    request: GenerationRequest,
    content: str,
    *,
    reasoning: str = "",
    finish: str | None = "stop",
    n_out: int | None = 100,
    outcome: Outcome = Outcome.OK,
    error: str | None = None,
) -> Generation:
    """A generation of one second with the given text."""
    record = RequestRecord(
        t=1.0,
        cell=None,
        rid=request.rid,
        purpose=request.purpose,
        t_due=0.0,
        t_send=0.0,
        ttft=0.1,
        e2e=1.0,
        n_out=n_out,
        finish_reason=finish,
        outcome=outcome,
        error=error,
        max_tokens=request.max_tokens,
    )
    return Generation(record=record, content=content, reasoning=reasoning)


class Scripted:
    """Answers every request by a function; notes the requests and how many ran at once."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.most_running = 0

    async def generate(self, request: GenerationRequest) -> Generation:
        """Runs one generation."""
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.running -= 1
        return self._reply(request)


def judgement(
    verdict: Verdict,
    detail: str = "",
    *,
    task: str = "t",
    finish: str = "stop",
    in_thinking: bool = False,
    failed: bool = False,
    problem_set: str = "core-5",
) -> Judgement:
    """A judgement with just what rules look at."""
    extraction = Extraction(
        code=None, channel="content", origin="content, block 1 of 2", why="the last", in_thinking=in_thinking
    )
    return Judgement(
        verdict=verdict,
        extraction=extraction,
        detail=detail,
        task_id=task,
        finish_reason=finish,
        request_failed=failed,
        problem_set=problem_set,
    )
