"""What one request is, and what is known of it afterwards: the values that cross every border of the load generator.

Times are seconds since the session's start, on the monotonic clock of the machine (`time.perf_counter_ns`, which
every process of one machine shares); offsets inside a request are seconds since its `t_send`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Protocol

import msgspec

Purpose = Literal["cell", "warmup", "probe", "eval", "lossless"]
Route = Literal["chat", "completions", "generate"]


class Outcome(StrEnum):
    """How a request ended: `ok`, or the kind of its failure (the definitions of `docs/metrics.md`)."""

    OK = "ok"
    CONNECT = "connect"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    STREAM_ERROR = "stream_error"
    ABORTED = "aborted"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"


class AcceptanceSource(StrEnum):
    """Where speculative counts came from, best first; figures of different sources are never averaged together."""

    PER_REQUEST = "per-request"
    PER_REQUEST_TOKENS = "per-request-tokens"  # a request's tokens and verify steps; its accepted drafts unknown
    COUNTERS = "counters"
    TOKENS_PER_VERIFY = "tokens-per-verify"
    LIFETIME = "lifetime-mean"


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One generation to ask of the server.

    Attributes:
        rid: our own request id; sent to the server, so that it can be aborted by name.
        messages: the chat; empty when `text` is given.
        text: a raw prompt for the completions or generate route.
        max_tokens: limit of output tokens.
        temperature: 0 is greedy.
        category: kind of content ("code", "prose", ...), for figures by category.
        keep_text: whether content and reasoning are returned with the record.
    """

    rid: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    max_tokens: int = 512
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int | None = None
    category: str = ""
    purpose: Purpose = "cell"
    route: Route = "chat"
    keep_text: bool = False
    request_timeout_s: float | None = None
    stall_timeout_s: float | None = None
    first_token_timeout_s: float | None = None


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One token-bearing chunk: its offset in seconds since `t_send`, and its tokens where the server told."""

    t: float
    tokens: int | None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one request: a line of `requests.jsonl`. Absent is `None`, never 0.

    Attributes:
        t: seconds since the session's start at which the request was over.
        t_due: scheduled start; `t_send`: just before it was handed to the transport.
        ttft: first token-bearing chunk, seconds after `t_send`; `ttfo`: first piece of the answer proper.
        e2e: last token-bearing chunk, seconds after `t_send`.
        n_out: output tokens by the server's usage; `n_first`: tokens of the first chunk (`n_first_known` tells).
        chunks: every token-bearing chunk.
        verify_steps: verify forward passes of this request; `correct_drafts`: accepted drafts, bonus excluded.
        accepted_histogram: steps by number of accepted drafts.
    """

    t: float
    cell: str | None
    rid: str
    purpose: Purpose
    category: str = ""
    slot: int = 0
    worker: int = 0
    t_due: float
    t_send: float
    ttft: float | None = None
    ttfo: float | None = None
    e2e: float | None = None
    n_out: int | None = None
    n_first: int | None = None
    n_first_known: bool = False
    reasoning_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    outcome: Outcome
    error: str | None = None
    http_status: int | None = None
    chunks: tuple[Chunk, ...] = ()
    malformed: int = 0
    verify_steps: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    accepted_histogram: tuple[int, ...] | None = None
    acceptance_source: AcceptanceSource | None = None
    max_tokens: int = 0

    @property
    def valid(self) -> bool:
        """Whether the request counts as measured: a clean end with a finish reason."""
        return self.outcome is Outcome.OK


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A finished generation with its text, where the request asked to keep it."""

    record: RequestRecord
    content: str = ""
    reasoning: str = ""


class Generator(Protocol):
    """Whatever can run one generation: a worker pool, or a client in this process."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Runs one generation to its end; failures are outcomes of the record, never exceptions."""
        ...
