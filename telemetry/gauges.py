"""What SGLang, vLLM and llama.cpp say about themselves, as one shape: pure, bytes in and structs out.

Answers only here: which of a server's names means what, and which of them may be summed over ranks.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from telemetry import exposition
from telemetry.exposition import Exposition

Family = Literal["sglang", "vllm", "llamacpp"]

SGLANG_GAUGE_LABEL = "SGLang's gauge: mean of its last log window (40 decode steps), bonus token included"
COUNTER_GAUGE_LABEL = "1 + accepted / drafts from the server's counters since the last sample"

_PREFIXES: dict[str, Family] = {"sglang:": "sglang", "vllm:": "vllm", "llamacpp:": "llamacpp"}
_NAMES: dict[Family, tuple[str, ...]] = {
    "sglang": (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "cache_hit_rate",
        "gen_throughput",
        "spec_accept_length",
        "realtime_tokens_total",
        "generation_tokens_total",
        "spec_verify_calls_total",
        "queue_time_seconds_sum",
        "queue_time_seconds_count",
    ),
    "vllm": (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "generation_tokens_total",
        "generation_tokens_created",
        "request_queue_time_seconds_sum",
        "request_queue_time_seconds_count",
    ),
    "llamacpp": (
        "requests_processing",
        "requests_deferred",
        "kv_cache_usage_ratio",
        "tokens_predicted_total",
        "predicted_tokens_seconds",
    ),
}
_DRAFTS = (
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)
_WANTED = {
    family: exposition.name_filter(f"{family}:{name}" for name in (names if family == "sglang" else names + _DRAFTS))
    for family, names in _NAMES.items()
}


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counters as read; each only ever rises until the server starts again.

    Attributes:
        decode: generated tokens, counted while they are made; absent where the server counts at a request's end.
        generated: generated tokens of finished requests (of all, where the server counts live).
        created: when the server made its counters, Unix seconds: another value is another server process.
    """

    decode: float | None = None
    generated: float | None = None
    verify_calls: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    queue_s: float | None = None
    queued: float | None = None
    created: float | None = None


class MetricsReading(msgspec.Struct, frozen=True, kw_only=True):
    """One `/metrics`, in the product's words; see `ServerSample` for the meanings."""

    family: Family
    totals: Totals
    running: int | None = None
    waiting: int | None = None
    token_usage: float | None = None
    cache_hit_rate: float | None = None
    gen_throughput_tok_s: float | None = None
    acceptance_gauge: float | None = None
    ranks: int = 1


class RankLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of `/v1/loads`."""

    running: int | None = None
    waiting: int | None = None
    token_usage: float | None = None
    gen_throughput_tok_s: float | None = None
    cache_hit_rate: float | None = None
    acceptance_lifetime: float | None = None


class LoadsReading(msgspec.Struct, frozen=True, kw_only=True):
    """One `/v1/loads` of SGLang, which needs no `--enable-metrics`."""

    ranks: tuple[RankLoad, ...]


def metrics_family(text: str) -> Family | None:
    """Returns which server wrote this `/metrics`, by its names."""
    return next((family for prefix, family in _PREFIXES.items() if f"\n{prefix}" in f"\n{text}"), None)


def read_metrics(text: str) -> MetricsReading | None:
    """Reads a `/metrics` body; `None` when it is of no server known here."""
    family = metrics_family(text)
    if family is None:
        return None
    found = exposition.parse(text, _WANTED[family])
    return {"sglang": _sglang, "vllm": _vllm, "llamacpp": _llamacpp}[family](found)


def read_loads(body: bytes) -> LoadsReading | None:
    """Reads a `/v1/loads` body; `None` when it has another shape."""
    try:
        answer = msgspec.json.decode(body, type=_Loads)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return LoadsReading(ranks=tuple(_rank(load) for load in answer.loads)) if answer.loads else None


def _sglang(found: Exposition) -> MetricsReading:
    acceptance = exposition.by_rank(found, "sglang:spec_accept_length")
    running = exposition.by_rank(found, "sglang:num_running_reqs")
    decode = [one for one in found.get("sglang:realtime_tokens_total", ()) if one.labels.get("mode") == "decode"]
    return MetricsReading(
        family="sglang",
        running=_whole(exposition.total(found, "sglang:num_running_reqs")),
        waiting=_whole(exposition.total(found, "sglang:num_queue_reqs")),
        token_usage=exposition.highest(found, "sglang:token_usage"),
        cache_hit_rate=exposition.highest(found, "sglang:cache_hit_rate") if len(running) <= 1 else None,
        gen_throughput_tok_s=exposition.total(found, "sglang:gen_throughput"),
        acceptance_gauge=possible_acceptance(next(iter(acceptance.values()))) if len(acceptance) == 1 else None,
        ranks=max(1, len(running)),
        totals=Totals(
            decode=exposition.total({"decode": decode}, "decode"),
            generated=exposition.total(found, "sglang:generation_tokens_total"),
            verify_calls=exposition.total(found, "sglang:spec_verify_calls_total"),
            queue_s=exposition.total(found, "sglang:queue_time_seconds_sum"),
            queued=exposition.total(found, "sglang:queue_time_seconds_count"),
        ),
    )


def _vllm(found: Exposition) -> MetricsReading:
    generated = exposition.total(found, "vllm:generation_tokens_total")
    return MetricsReading(
        family="vllm",
        running=_whole(exposition.total(found, "vllm:num_requests_running")),
        waiting=_whole(exposition.total(found, "vllm:num_requests_waiting")),
        token_usage=exposition.highest(found, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ranks=max(1, len(exposition.by_rank(found, "vllm:num_requests_running"))),
        totals=_with_drafts(
            found,
            "vllm:",
            Totals(
                decode=generated,
                generated=generated,
                cache_queries=exposition.total(found, "vllm:prefix_cache_queries_total"),
                cache_hits=exposition.total(found, "vllm:prefix_cache_hits_total"),
                queue_s=exposition.total(found, "vllm:request_queue_time_seconds_sum"),
                queued=exposition.total(found, "vllm:request_queue_time_seconds_count"),
                created=exposition.highest(found, "vllm:generation_tokens_created"),
            ),
        ),
    )


def _llamacpp(found: Exposition) -> MetricsReading:
    generated = exposition.total(found, "llamacpp:tokens_predicted_total")
    return MetricsReading(
        family="llamacpp",
        running=_whole(exposition.total(found, "llamacpp:requests_processing")),
        waiting=_whole(exposition.total(found, "llamacpp:requests_deferred")),
        token_usage=exposition.highest(found, "llamacpp:kv_cache_usage_ratio"),
        gen_throughput_tok_s=exposition.total(found, "llamacpp:predicted_tokens_seconds"),
        totals=_with_drafts(found, "llamacpp:", Totals(generated=generated)),
    )


def _with_drafts(found: Exposition, prefix: str, totals: Totals) -> Totals:
    positions: dict[int, float] = {}
    for one in exposition.distinct(found.get(f"{prefix}spec_decode_num_accepted_tokens_per_pos_total", ())):
        if (position := one.labels.get("position", "")).isdecimal():
            positions[int(position)] = positions.get(int(position), 0.0) + one.value
    whole = positions and set(positions) == set(range(len(positions)))
    return msgspec.structs.replace(
        totals,
        drafts=exposition.total(found, f"{prefix}spec_decode_num_drafts_total"),
        draft_tokens=exposition.total(found, f"{prefix}spec_decode_num_draft_tokens_total"),
        accepted=exposition.total(found, f"{prefix}spec_decode_num_accepted_tokens_total"),
        accepted_per_position=tuple(positions[k] for k in sorted(positions)) if whole else None,
    )


def possible_acceptance(value: float | None) -> float | None:
    """Returns an acceptance length that can be one: the bonus token alone makes 1, so less means no data."""
    return value if value is not None and math.isfinite(value) and value >= 1.0 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


class _Speculative(msgspec.Struct):
    accept_length: float | None = None


class _Load(msgspec.Struct):
    num_running_reqs: int | None = None
    num_waiting_reqs: int | None = None
    token_usage: float | None = None
    gen_throughput: float | None = None
    cache_hit_rate: float | None = None
    speculative: _Speculative | None = None


class _Loads(msgspec.Struct):
    loads: list[_Load] = []


def _rank(load: _Load) -> RankLoad:
    return RankLoad(
        running=load.num_running_reqs,
        waiting=load.num_waiting_reqs,
        token_usage=load.token_usage,
        gen_throughput_tok_s=load.gen_throughput or None,  # 0 also stands for "metrics are off"
        cache_hit_rate=load.cache_hit_rate or None,
        acceptance_lifetime=possible_acceptance(load.speculative.accept_length if load.speculative else None),
    )
