"""One streamed answer being read: bytes and their times in, everything that is known of the answer out.

Pure: the time of each read is given to it, so recorded streams give exact figures. What counts as a token-bearing chunk
is decided only here (`docs/metrics.md`).
"""

from __future__ import annotations

from loadgen import acceptance
from loadgen.acceptance import DraftCounts
from loadgen.failures import Failure, error_text, printable
from loadgen.records import AcceptanceSource, Chunk, GenerationRequest, Outcome, RequestRecord
from loadgen.sse import Event, EventDecoder
from loadgen.wire import Choice, MetaInfo, NotJson, StreamEvent, Usage, decode_event

CLEAN_FINISHES = frozenset({"stop", "length", "tool_calls"})
_HEAD_BYTES = 200


def generated_tokens(usage: Usage) -> int | None:
    """Returns the output tokens of a usage, reasoning included.

    Some gateways count reasoning beside `completion_tokens` instead of inside it; their total tells.
    """
    completion = usage.completion_tokens
    if completion is None or completion < 0:
        return None
    reasoning = reasoning_tokens(usage)
    if usage.total_tokens is not None and usage.prompt_tokens is not None and reasoning:
        total = usage.total_tokens - usage.prompt_tokens
        if total == completion + reasoning:
            return total
    return completion


def reasoning_tokens(usage: Usage) -> int | None:
    """Returns the reasoning tokens of a usage, `None` where it does not tell."""
    if usage.reasoning_tokens is not None:
        return usage.reasoning_tokens
    return usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else None


class StreamReading:
    """Accumulates one answer.

    Args:
        keep_text: keep content and reasoning.
        incremental: the server's own route sends text piece by piece rather than all so far; when `False` it is found
            out from the stream.

    Attributes:
        done: `[DONE]` was seen.
        finish_reason: as the server worded it.
        tokens_seen: output tokens so far by the server's running count; 0 where it gives none.
        malformed: events that were not JSON.
    """

    def __init__(self, *, keep_text: bool = False, incremental: bool = False) -> None:
        self.done = False
        self.finish_reason: str | None = None
        self.tokens_seen = 0
        self.malformed = 0
        self.events = 0
        self.head = b""
        self.last_read_ns: int | None = None
        self.first_token_ns: int | None = None
        self._first_answer_ns: int | None = None
        self._decoder = EventDecoder()
        self._keep_text = keep_text
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._times_ns: list[int] = []
        self._totals: list[int | None] = []
        self._usage: Usage | None = None
        self._cached: int | None = None
        self._drafts: DraftCounts = acceptance.NOTHING
        self._error: str | None = None
        self._abort_message: str | None = None
        self._incremental: bool | None = True if incremental else None
        self._own_text = ""
        self._own_ids = 0

    def feed(self, data: bytes, t_ns: int) -> None:
        """Takes one read.

        Args:
            data: bytes as they came.
            t_ns: when they came, `time.perf_counter_ns`.

        Raises:
            EventTooLong: see `EventDecoder`.
        """
        self.last_read_ns = t_ns
        if self.events == 0 and len(self.head) < _HEAD_BYTES:
            self.head += data[:_HEAD_BYTES]
        for event in self._decoder.feed(data):
            self._take(event, t_ns)

    def end(self) -> None:
        """Says that the body ended cleanly."""
        if self.last_read_ns is not None:
            for event in self._decoder.end():
                self._take(event, self.last_read_ns)

    @property
    def content(self) -> str:
        """The answer so far, where it is kept."""
        return self._own_text if self._own_text else "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The reasoning so far, where it is kept."""
        return "".join(self._reasoning)

    def failure(self) -> Failure | None:
        """Returns why the answer, ended cleanly, is not valid; `None` when it is."""
        if self._error is not None:
            return Failure(Outcome.STREAM_ERROR, self._error)
        reason = self.finish_reason
        if reason in CLEAN_FINISHES:
            return None
        if reason == "abort":
            return Failure(Outcome.ABORTED, self._abort_message or "the server aborted the request")
        if reason is not None:
            return Failure(Outcome.STREAM_ERROR, printable(f"the answer ended with finish reason {reason!r}"))
        if not self.events:
            return Failure(Outcome.TRUNCATED, "the stream ended without a single event")
        return Failure(Outcome.TRUNCATED, "the stream ended without a finish reason")

    def chunks(self, sent_ns: int) -> tuple[Chunk, ...]:
        """Returns the token-bearing chunks, times in seconds since `sent_ns`.

        A chunk's tokens are known when the running count is known at it and at the chunk before it; where a count is
        missing, the chunks that share the next difference are all unknown.
        """
        tokens: list[int | None] = [None] * len(self._totals)
        before: int | None = 0
        for i, total in enumerate(self._totals):
            if total is not None and before is not None and total >= before:
                tokens[i] = total - before
            before = total
        return tuple(Chunk((t - sent_ns) / 1e9, count) for t, count in zip(self._times_ns, tokens, strict=True))

    def record(
        self,
        request: GenerationRequest,
        *,
        cell: str | None,
        slot: int,
        worker: int,
        origin_ns: int,
        due_ns: int,
        sent_ns: int,
        over_ns: int,
        http_status: int | None,
        failure: Failure | None,
    ) -> RequestRecord:
        """Builds the record of the request that this was the answer to; `failure` overrides the stream's own end."""
        if failure is None or self._error is not None:
            failure = self.failure()
        chunks = self.chunks(sent_ns)
        usage, drafts = self._usage, self._drafts
        first_known = bool(chunks) and chunks[0].tokens is not None
        first_answer = self._first_answer_ns
        return RequestRecord(
            t=(over_ns - origin_ns) / 1e9,
            cell=cell,
            rid=request.rid,
            purpose=request.purpose,
            category=request.category,
            slot=slot,
            worker=worker,
            t_due=(due_ns - origin_ns) / 1e9,
            t_send=(sent_ns - origin_ns) / 1e9,
            ttft=chunks[0].t if chunks else None,
            ttfo=None if first_answer is None else (first_answer - sent_ns) / 1e9,
            e2e=chunks[-1].t if chunks else None,
            n_out=None if usage is None else generated_tokens(usage),
            n_first=(chunks[0].tokens if first_known else 1) if chunks else None,
            n_first_known=first_known,
            reasoning_tokens=None if usage is None else reasoning_tokens(usage),
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=self._cached,
            finish_reason=self.finish_reason,
            outcome=failure.outcome if failure else Outcome.OK,
            error=failure.error if failure else None,
            http_status=http_status,
            chunks=chunks,
            malformed=self.malformed,
            verify_steps=drafts.verify_steps,
            correct_drafts=drafts.correct_drafts,
            proposed_drafts=drafts.proposed_drafts,
            accepted_histogram=drafts.accepted_histogram,
            acceptance_source=None if drafts.verify_steps is None else AcceptanceSource.PER_REQUEST,
            max_tokens=request.max_tokens,
        )

    def _take(self, event: Event, t_ns: int) -> None:
        data = event.data
        if not data:
            return
        if data == b"[DONE]":
            self.done = True
            return
        try:
            value = decode_event(data)
        except NotJson:
            # A last event that was cut in the middle is a cut stream, not a malformed event.
            if not event.unfinished:
                self.malformed += 1
                self.events += 1
            return
        if value is None:
            return
        self.events += 1
        if value.usage is not None and value.usage.completion_tokens is not None:
            self._take_usage(value.usage)
        if value.choices:
            self._take_choice(value.choices[0], value.usage, t_ns)
        elif value.meta_info is not None:
            self._take_own_route(value, value.meta_info, t_ns)
        if value.error is not None or value.object == "error":
            self._take_error(value)
        if value.sglext is not None or value.metrics is not None or value.timings is not None:
            self._take_extras(value)

    def _take_usage(self, usage: Usage) -> None:
        self._usage = usage
        self.tokens_seen = generated_tokens(usage) or self.tokens_seen
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            self._cached = usage.prompt_tokens_details.cached_tokens

    def _take_choice(self, choice: Choice, usage: Usage | None, t_ns: int) -> None:
        answered = thought = False
        delta = choice.delta
        if delta is not None:
            if delta.content:
                answered = True
                if self._keep_text:
                    self._content.append(delta.content)
            reasoning = delta.reasoning_content or delta.reasoning
            if reasoning:
                thought = True
                if self._keep_text:
                    self._reasoning.append(reasoning)
            if delta.tool_calls:
                answered = answered or any(
                    call.function is not None and (call.function.name or call.function.arguments)
                    for call in delta.tool_calls
                )
        if choice.text:
            answered = True
            if self._keep_text:
                self._content.append(choice.text)
        if answered or thought:
            self._chunk(t_ns, None if usage is None else generated_tokens(usage), answered)
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason

    def _take_own_route(self, value: StreamEvent, meta: MetaInfo, t_ns: int) -> None:
        text, ids = value.text or "", len(value.output_ids or ())
        total = meta.completion_tokens
        if self._incremental is None and self._times_ns:
            if ids and total is not None:
                self._incremental = ids < total
            elif text:
                self._incremental = not text.startswith(self._own_text)
        if self._incremental:
            new = bool(text or ids)
            self._own_text += text if self._keep_text else ""
        else:
            new = text != self._own_text or ids > self._own_ids
            self._own_text, self._own_ids = text, ids
        if total is not None:
            self._usage = Usage(meta.prompt_tokens, total, None, meta.reasoning_tokens)
            self.tokens_seen = total
        if meta.cached_tokens is not None:
            self._cached = meta.cached_tokens
        if new:
            self._chunk(t_ns, total, answered=True)
        reason = meta.finish_reason
        if isinstance(reason, dict):
            self.finish_reason = str(reason.get("type") or "") or None
            if self.finish_reason == "abort":
                self._abort_message = error_text({**reason, "type": None})
            self._drafts = acceptance.from_sglang(meta)
        elif reason:
            self.finish_reason = str(reason)
            self._drafts = acceptance.from_sglang(meta)

    def _chunk(self, t_ns: int, total: int | None, answered: bool) -> None:
        if self.first_token_ns is None:
            self.first_token_ns = t_ns
        if answered and self._first_answer_ns is None:
            self._first_answer_ns = t_ns
        self._times_ns.append(t_ns)
        self._totals.append(total)

    def _take_error(self, value: StreamEvent) -> None:
        if value.error is not None:
            self._error = error_text(value.error)
        else:
            self._error = error_text({"message": value.message, "type": value.type, "code": value.code})

    def _take_extras(self, value: StreamEvent) -> None:
        if value.sglext is not None:
            details = value.sglext.spec_tokens_details
            if isinstance(details, list):
                details = details[0] if details else None
            if details is not None:
                self._drafts = acceptance.from_sglang(details)
            cached = value.sglext.cached_tokens_details
            if isinstance(cached, list):
                cached = cached[0] if cached else None
            if cached is not None and self._cached is None:
                self._cached = sum(n or 0 for n in (cached.device, cached.host, cached.storage))
        if value.metrics is not None and value.metrics.speculative_decoding is not None:
            self._drafts = acceptance.from_vllm(value.metrics.speculative_decoding)
        if value.timings is not None:
            drafts = acceptance.from_llama(value.timings)
            if drafts.proposed_drafts:
                self._drafts = drafts
            if self._cached is None:
                self._cached = value.timings.cache_n
