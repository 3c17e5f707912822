"""The OpenAI routes as server-sent events: sinks that turn tokens into bytes.

One write a step and request. Everything that does not change along a stream is formatted once.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from simserver.job import Finish, Job
from simserver.wire import DONE, Shared, StreamOptions, chunked, logprobs, spec_details, usage_object

_encode = msgspec.json.encode


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
        self._owed = 0
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
        self._owed += stop - start
        if thought or said or job.finish is not None:
            self.shared.send(out, job, self._owed)
            self._owed = 0
        elif out:
            self.shared.send(out)

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
