"""The JSON of a stream's events, as types: what of it is read, and how tolerantly.

One type serves every server family, since their streams differ in which fields are there, not in what a field means.
Decoding is typed first (fast); an event that does not fit is read again leniently, so that one odd field never costs
the tokens beside it.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec


class Function(msgspec.Struct, gc=False):
    """The called function of a piece of a tool call."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to a chat answer."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice of a chunk; `text` on the completions route, `delta` on the chat route."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class PromptTokensDetails(msgspec.Struct, gc=False):
    """Part of usage."""

    cached_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, gc=False):
    """Part of usage."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts so far; cumulative where a server sends it with every chunk."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class SpecDetails(msgspec.Struct, gc=False):
    """SGLang's speculative counts of a request, the older spellings of some included."""

    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_correct_drafts_histogram: list[int] | None = None
    spec_accept_token_num: int | None = None
    spec_draft_token_num: int | None = None
    spec_accept_histogram: list[int] | None = None


class CachedTokensDetails(msgspec.Struct, gc=False):
    """SGLang's cached prompt tokens by where they lay."""

    device: int | None = None
    host: int | None = None
    storage: int | None = None


class SglExt(msgspec.Struct, gc=False):
    """SGLang's additions to an answer; lists when several choices were asked for."""

    spec_tokens_details: SpecDetails | list[SpecDetails] | None = None
    cached_tokens_details: CachedTokensDetails | list[CachedTokensDetails] | None = None


class MetaInfo(SpecDetails, gc=False):
    """`meta_info` of SGLang's own route; `finish_reason` is an object there."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: Any = None


class VllmSpeculation(msgspec.Struct, gc=False):
    """vLLM's speculative counts of a request."""

    num_spec_steps: int | None = None
    num_accepted_draft_tokens: int | None = None
    num_draft_tokens: int | None = None
    acceptance_histogram: list[int] | None = None


class VllmMetrics(msgspec.Struct, gc=False):
    """vLLM's figures of a request."""

    speculative_decoding: VllmSpeculation | None = None


class LlamaTimings(msgspec.Struct, gc=False):
    """The figures of llama.cpp's server."""

    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class StreamEvent(msgspec.Struct, gc=False):
    """One event's JSON, of any route of any server family.

    Attributes:
        object: "error" where a server sends its error body without a wrapper, with `message` and `code` beside it.
        text: the answer on SGLang's own route, cumulative or incremental.
    """

    choices: list[Choice] | None = None
    usage: Usage | None = None
    sglext: SglExt | None = None
    error: Any = None
    text: str | None = None
    output_ids: list[int] | None = None
    meta_info: MetaInfo | None = None
    metrics: VllmMetrics | None = None
    timings: LlamaTimings | None = None
    object: str | None = None
    message: str | None = None
    type: str | None = None
    code: int | str | None = None


class NotJson(ValueError):
    """Raised by `decode_event` for an event that is not JSON."""


_decoder = msgspec.json.Decoder(StreamEvent)
_T = TypeVar("_T", bound=msgspec.Struct)
_hints: dict[type, dict[str, Any]] = {}


def decode_event(data: bytes) -> StreamEvent | None:
    """Decodes one event.

    Args:
        data: the event's data.

    Returns:
        The event, or `None` when it is JSON but not an object.

    Raises:
        NotJson: `data` is not JSON.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return _decode_leniently(data)


def _decode_leniently(data: bytes) -> StreamEvent | None:
    """Reads what the typed decoder refused: wrong types, NaN, bytes that are not UTF-8, lone surrogates."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise NotJson(str(exc)) from exc
    return _convert(value, StreamEvent) if isinstance(value, dict) else None


def _convert(value: dict[str, Any], kind: type[_T]) -> _T:
    """Builds a struct from the fields that fit their types; the others keep their defaults."""
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for name, hint in _hints[kind].items():
        if value.get(name) is None:
            continue
        fitted = _fit(value[name], hint)
        if fitted is not None:
            fields[name] = fitted
    return kind(**fields)


def _fit(value: Any, hint: Any) -> Any:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    for kind in get_args(hint) or (hint,):
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return _convert(value, kind)
        if isinstance(value, list) and getattr(kind, "__origin__", None) is list:
            (inner,) = get_args(kind)
            items = [_fit(item, inner) for item in value]
            return [item for item in items if item is not None]
        if kind is Any or (kind in (str, int) and type(value) is kind):
            return value
    return None
