"""What two endpoints said, as one sample: live counts, gauges that are history when nothing runs, rates. Pure."""

from __future__ import annotations

from telemetry import gauges
from telemetry.gauges import LoadsReading, MetricsReading, Totals
from telemetry.samples import ServerSample


def combine(
    t: float,
    loads: LoadsReading | None,
    metrics: MetricsReading | None,
    previous: Totals | None,
    elapsed_s: float,
) -> ServerSample:
    """Makes one sample of what the two endpoints said: live counts from `/v1/loads`, the rest from `/metrics`.

    Args:
        t: seconds since the session's start.
        loads: `/v1/loads`, where it answered.
        metrics: `/metrics`, likewise.
        previous: the counters of the sample before, read `elapsed_s` seconds earlier.
        elapsed_s: seconds since then.
    """
    if metrics is None and loads is None:
        return ServerSample(t=t, source="none")
    now = metrics.totals if metrics else Totals()
    reset = previous is not None and was_reset(previous, now)
    before = None if reset else previous
    ranks = loads.ranks if loads else ()
    running = _sum_int([rank.running for rank in ranks])
    waiting = _sum_int([rank.waiting for rank in ranks])
    throughput = None
    if metrics is not None:
        running = metrics.running if running is None else running
        waiting = metrics.waiting if waiting is None else waiting
        throughput = metrics.gen_throughput_tok_s
    if throughput is None:
        throughput = _sum_known([rank.gen_throughput_tok_s for rank in ranks])
    lifetimes = [rank.acceptance_lifetime for rank in ranks]
    lifetime = _only([value for value in lifetimes if value is not None])
    gauge, label = _acceptance_gauge(metrics, before)
    if lifetime is None and not ranks:
        lifetime = _acceptance(now.drafts, now.accepted)
    return ServerSample(
        t=t,
        source="+".join(name for name, there in (("/v1/loads", loads), (_metrics_name(metrics), metrics)) if there),
        running=running,
        waiting=waiting,
        token_usage=_max_known([rank.token_usage for rank in ranks] + [metrics.token_usage if metrics else None]),
        cache_hit_rate=_cache_hit_rate(loads, metrics, before),
        gen_throughput_tok_s=None if running == 0 else throughput,
        gen_throughput_last_tok_s=throughput,
        decode_tok_s=_rate(before.decode if before else None, now.decode, elapsed_s),
        decode_tokens_total=now.decode,
        generated_total=now.generated,
        verify_calls_total=now.verify_calls,
        drafts_total=now.drafts,
        draft_tokens_total=now.draft_tokens,
        accepted_total=now.accepted,
        accepted_per_position=now.accepted_per_position,
        acceptance_gauge=gauge,
        acceptance_gauge_label=label,
        acceptance_lifetime=lifetime,
        acceptance_by_rank=tuple(lifetimes) if len(ranks) > 1 and any(lifetimes) else None,
        queue_time_mean_s=_ratio_of_rises(before, now, "queue_s", "queued"),
        counters_reset=reset,
        stale=running == 0,
        ranks=max(len(ranks), metrics.ranks if metrics else 1),
    )


def was_reset(previous: Totals, now: Totals) -> bool:
    """Returns whether the server started its counters again between the two readings."""
    if previous.created is not None and now.created is not None and now.created > previous.created:
        return True
    for name in Totals.__struct_fields__:
        before, after = getattr(previous, name), getattr(now, name)
        if isinstance(before, float) and isinstance(after, float) and after < before:
            return True
    return False


def _acceptance_gauge(metrics: MetricsReading | None, before: Totals | None) -> tuple[float | None, str | None]:
    if metrics is None:
        return None, None
    if metrics.family == "sglang":
        gauge = metrics.acceptance_gauge
        return gauge, gauges.SGLANG_GAUGE_LABEL if gauge is not None else None
    drafts = _rise(before.drafts if before else None, metrics.totals.drafts)
    accepted = _rise(before.accepted if before else None, metrics.totals.accepted)
    gauge = _acceptance(drafts, accepted)
    return gauge, gauges.COUNTER_GAUGE_LABEL if gauge is not None else None


def _cache_hit_rate(loads: LoadsReading | None, metrics: MetricsReading | None, before: Totals | None) -> float | None:
    if metrics is not None and metrics.family == "vllm":
        return _ratio_of_rises(before, metrics.totals, "cache_hits", "cache_queries")
    if metrics is not None and metrics.cache_hit_rate is not None:
        return metrics.cache_hit_rate
    return loads.ranks[0].cache_hit_rate if loads is not None and len(loads.ranks) == 1 else None


def _acceptance(drafts: float | None, accepted: float | None) -> float | None:
    return 1.0 + accepted / drafts if drafts and accepted is not None else None


def _ratio_of_rises(before: Totals | None, now: Totals, over: str, under: str) -> float | None:
    if before is None:
        return None
    rise = _rise(getattr(before, over), getattr(now, over))
    base = _rise(getattr(before, under), getattr(now, under))
    return rise / base if rise is not None and base else None


def _rise(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None else None


def _rate(before: float | None, now: float | None, elapsed_s: float) -> float | None:
    rise = _rise(before, now)
    return rise / elapsed_s if rise is not None and elapsed_s > 0 else None


def _sum_int(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _only(values: list[float]) -> float | None:
    return values[0] if len(values) == 1 else None


def _metrics_name(metrics: MetricsReading | None) -> str:
    return f"/metrics ({metrics.family})" if metrics else "/metrics"
