"""Parts of the answers in SGLang's field order, and the connection that the choices of one request share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from simserver.job import Job

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.encode


class Writer(Protocol):
    """The part of an asyncio transport that a stream needs."""

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        ...

    def is_closing(self) -> bool:
        """Whether the other side is gone."""
        ...


def chunked(event: bytes) -> bytes:
    """Returns one event as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def usage_object(
    prompt: int, completion: int, cached: int | None, reasoning: int, *, compact: bool = False
) -> dict[str, Any]:
    """Returns a usage object.

    Args:
        prompt: prompt tokens.
        completion: completion tokens.
        reasoning: how many of those are reasoning.
        cached: cached prompt tokens where the server reports them, else `None`.
        compact: leave absent details out instead of showing null.
    """
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    details = {"cached_tokens": cached} if cached is not None else None
    if details is not None or not compact:
        usage["prompt_tokens_details"] = details
    usage["reasoning_tokens"] = reasoning
    if reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    elif not compact:
        usage["completion_tokens_details"] = None
    return usage


def spec_details(job: Job, proposed_a_step: int) -> dict[str, Any]:
    """Returns `sglext.spec_tokens_details`; what was not counted shows as 0 or empty."""
    steps = job.verify_steps
    proposed = steps * proposed_a_step
    return {
        "spec_accept_rate": job.correct / proposed if proposed else 0.0,
        "spec_accept_length": job.emitted / steps if steps else 0.0,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": job.correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": job.histogram,
        "spec_cap_lens_histogram": [],
    }


@dataclass(frozen=True)
class StreamOptions:
    """What a stream is asked to carry.

    Attributes:
        parse_reasoning: reasoning goes to its own field; `hold_reasoning`: and only once it is complete.
        cache_report: usage tells cached tokens.
        proposed: drafted tokens a step, for the acceptance details.
    """

    usage: bool = False
    continuous_usage: bool = False
    details: bool = False
    cached_details: bool = False
    parse_reasoning: bool = False
    hold_reasoning: bool = False
    cache_report: bool = False
    proposed: int = 0
    logprobs: bool = False
    top_logprobs: int = 0
    echo: str = ""


class Shared:
    """The connection that the choices of one request share; holds bytes back until its headers are out."""

    def __init__(self, choices: int) -> None:
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.left = choices
        self.jobs: list[Job] = []
        self._held: list[tuple[bytes, Job | None, int]] | None = []
        self._writer: Writer | None = None

    def attach(self, writer: Writer) -> None:
        """Starts writing; sends what was held."""
        self._writer = writer
        held, self._held = self._held or [], None
        for data, job, tokens in held:
            self._write(data, job, tokens)

    def send(self, data: bytes, job: Job | None = None, tokens: int = 0) -> None:
        """Writes bytes that carry so many tokens of a job."""
        if self._held is not None:
            self._held.append((data, job, tokens))
            if not self.first.done():
                self.first.set_result(None)
        else:
            self._write(data, job, tokens)

    def _write(self, data: bytes, job: Job | None, tokens: int) -> None:
        if self._writer is None or self._writer.is_closing():
            return
        # Before the write: a client on the same machine may have read it before this process runs on.
        now = time.perf_counter_ns()
        self._writer.write(data)
        if tokens and job is not None:
            job.chunks.append((now, tokens))

    def finish(self, outcome: str) -> None:
        """Tells the handler that nothing more will come: ok, error, truncated, cut or stalled."""
        if not self.first.done():
            self.first.set_result(None)
        if not self.done.done():
            self.done.set_result(outcome)


class Collector:
    """A sink for answers that are sent whole: waits for the end."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def push(self, job: Job, start: int, stop: int) -> None:
        """Notes the tokens' time; tells the handler at the end."""
        if stop > start:
            job.chunks.append((time.perf_counter_ns(), stop - start))
        if job.finish is not None:
            self.shared.left -= 1
            if self.shared.left == 0:
                self.shared.finish("ok")


def logprobs(job: Job, start: int, stop: int, top: int) -> dict[str, Any]:
    """Returns log probabilities of tokens; made up from the token ids, the same every time."""
    content = []
    for index in range(start, stop):
        piece = job.pieces[index]
        value = -((job.ids[index] * 2654435761 % 1000) / 500.0)
        entry: dict[str, Any] = {"token": piece, "bytes": list(piece.encode()), "logprob": value}
        entry["top_logprobs"] = [dict(entry)] if top else []
        content.append(entry)
    return {"content": content}
