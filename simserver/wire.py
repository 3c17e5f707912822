"""Bytes of the answers: server-sent events in SGLang's field order, and the sinks that write them.

One write a step and request. Everything that does not change along a stream is formatted once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from simserver.job import Finish, Job

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.encode


class Writer(Protocol):
    """The part of an asyncio transport that a stream needs."""

    def write(self, data: bytes) -> None:
        """Queues bytes."""
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
        if self._writer is not None and data:
            self._writer.write(data)
        if tokens and job is not None:
            job.chunks.append((time.perf_counter_ns(), tokens))

    def finish(self, outcome: str) -> None:
        """Tells the handler that nothing more will come: ok, error, truncated, cut or stalled."""
        if not self.first.done():
            self.first.set_result(None)
        if not self.done.done():
            self.done.set_result(outcome)


class _Stream:
    """What the OpenAI streams have in common: the fate of a fault, and the end of the last choice."""

    object_name = ""

    def __init__(self, shared: Shared, index: int, rid: str, model: str, options: StreamOptions) -> None:
        self.shared = shared
        self.index = index
        self.options = options
        self._gone = False
        self._identity = b'data: {"id":' + _encode(rid) + b',"object":"' + self.object_name.encode() + b'","created":'
        self._model = b',"model":' + _encode(model) + b',"choices":['
        self._head: bytes | None = None

    @property
    def head(self) -> bytes:
        """An event up to its choices; made with the first token, as the real server does."""
        if self._head is None:
            self._head = self._identity + str(int(time.time())).encode() + self._model
        return self._head

    def push(self, job: Job, start: int, stop: int) -> None:
        """Takes new tokens of the job."""
        if self._gone:
            return
        if job.fate is not None and stop >= job.fate_at:
            self._gone = True
            self._meet(job, start)
            return
        self.tokens(job, start, stop)
        if job.finish is not None:
            self._gone = True
            self.shared.left -= 1
            if self.shared.left == 0:
                self.close(job)

    def tokens(self, job: Job, start: int, stop: int) -> None:
        """Writes new tokens, and the finish chunk when the job has ended."""
        raise NotImplementedError

    def close(self, job: Job) -> None:
        """Writes what comes after the last choice."""
        jobs, options = self.shared.jobs, self.options
        out = b""
        sglext: dict[str, Any] = {}
        if options.cached_details:
            each = [{"device": one.cached, "host": 0} for one in jobs]
            sglext["cached_tokens_details"] = each[0] if len(each) == 1 else each
        if options.details:
            details = [spec_details(one, options.proposed) for one in jobs]
            sglext["spec_tokens_details"] = details[0] if len(details) == 1 else details
        if sglext:
            out += chunked(self.head + b'],"usage":null,"sglext":' + _encode(sglext) + b"}\n\n")
        if options.usage:
            out += chunked(self.head + b'],"usage":' + _encode(self.usage(jobs, compact=True)) + b"}\n\n")
        self.shared.send(out + chunked(DONE))
        self.shared.finish("ok")

    def usage(self, jobs: list[Job], *, compact: bool) -> dict[str, Any]:
        """Returns the usage of all choices together."""
        cached = sum(job.cached for job in jobs) if self.options.cache_report else None
        reasoning = sum(min(job.emitted, job.reasoning) for job in jobs) if self.options.parse_reasoning else 0
        return usage_object(
            jobs[0].prompt_length, sum(job.emitted for job in jobs), cached, reasoning, compact=compact and self.thin
        )

    thin = False

    def _meet(self, job: Job, start: int) -> None:
        job.emitted = start
        job.finish = job.finish or Finish("abort", message="fault")
        if job.fate == "stream-error":
            error = {
                "error": {
                    "object": "error",
                    "message": "The request was aborted by the scheduler.",
                    "type": "SERVICE_UNAVAILABLE",
                    "param": None,
                    "code": 503,
                }
            }
            out = chunked(b"data: " + _encode(error) + b"\n\n")
            if self.options.usage:
                out += chunked(self.head + b'],"usage":' + _encode(self.usage([job], compact=True)) + b"}\n\n")
            self.shared.send(out + chunked(DONE))
            self.shared.finish("error")
        elif job.fate == "truncate":
            self.shared.finish("truncated")
        elif job.fate == "stall":
            self.shared.finish("stalled")
        else:
            self.shared.finish("cut")


class ChatStream(_Stream):
    """`/v1/chat/completions` as server-sent events."""

    object_name = "chat.completion.chunk"
    _tail = b',"logprobs":null,"finish_reason":null,"matched_stop":null}]'

    def __init__(self, shared: Shared, index: int, rid: str, model: str, options: StreamOptions) -> None:
        super().__init__(shared, index, rid, model, options)
        self._begun = False
        self._held_reasoning = ""
        self._choice = b'{"index":%d,"delta":{"reasoning_content":' % index

    def tokens(self, job: Job, start: int, stop: int) -> None:
        """Writes the role chunk once, then reasoning and content, then the finish chunk."""
        out = b""
        if not self._begun:
            self._begun = True
            out = chunked(self.head + self._choice + b'null,"role":"assistant","content":""}' + self._tail + b"}\n\n")
        thought, said = self._split(job, start, stop)
        usage = b""
        if self.options.continuous_usage and (thought or said):
            usage = b',"usage":' + _encode(self.usage([job], compact=False))
        if thought:
            out += chunked(self.head + self._choice + _encode(thought) + b"}" + self._tail + usage + b"}\n\n")
        if said:
            tail = self._tail
            if self.options.logprobs:
                tail = b',"logprobs":' + _encode(logprobs(job, start, stop, self.options.top_logprobs)) + tail[16:]
            out += chunked(
                self.head + self._choice + b'null,"content":' + _encode(said) + b"}" + tail + usage + b"}\n\n"
            )
        if job.finish is not None:
            out += chunked(
                self.head
                + self._choice
                + b'null},"logprobs":null,"finish_reason":"'
                + job.finish.kind.encode()
                + b'","matched_stop":'
                + _encode(job.finish.matched)
                + b"}]}\n\n"
            )
        self.shared.send(out, job, stop - start)

    def _split(self, job: Job, start: int, stop: int) -> tuple[str, str]:
        pieces, border = job.pieces, job.reasoning
        if not self.options.parse_reasoning or start >= border:
            return "", "".join(pieces[start:stop])
        # The closing tag itself is shown nowhere; it is the last token of the reasoning.
        thought = "".join(pieces[start : min(stop, border - 1)])
        said = "".join(pieces[border:stop]) if stop > border else ""
        if self.options.hold_reasoning:
            self._held_reasoning += thought
            thought = ""
            if stop >= border or job.finish is not None:
                thought, self._held_reasoning = self._held_reasoning, ""
        return thought, said


class CompletionStream(_Stream):
    """`/v1/completions` as server-sent events: the finish reason rides on the last text."""

    object_name = "text_completion"
    thin = True

    def tokens(self, job: Job, start: int, stop: int) -> None:
        """Writes new text."""
        text = "".join(job.pieces[start:stop])
        if start == 0 and self.options.echo:
            text = self.options.echo + text
        reason = matched = b"null"
        if job.finish is not None:
            reason, matched = b'"' + job.finish.kind.encode() + b'"', _encode(job.finish.matched)
        usage = b"null"
        if self.options.continuous_usage:
            usage = _encode(self.usage([job], compact=False))
        self.shared.send(
            chunked(
                self.head
                + b'{"index":%d,"text":' % self.index
                + _encode(text)
                + b',"logprobs":null,"finish_reason":'
                + reason
                + b',"matched_stop":'
                + matched
                + b'}],"usage":'
                + usage
                + b"}\n\n"
            ),
            job,
            stop - start,
        )


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
