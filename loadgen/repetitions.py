"""One set of figures out of several repetitions of the same cell.

The headline figures are means over repetitions; their interval is Student's t from three repetitions on. Counts are
added, acceptance stays a ratio of sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from loadgen import stats
from loadgen.cell_acceptance import add_histograms, survival_of
from loadgen.figures import (
    CategoryFigures,
    CellFigures,
    ClientFigures,
    Interval,
    Mark,
    Percentiles,
    RequestCounts,
)


def combine_repetitions(cells: Sequence[CellFigures]) -> CellFigures:
    """Combines repetitions of one cell under one preset.

    Args:
        cells: figures of each repetition.

    Returns:
        Means of throughput, speeds and times (each over the repetitions that have the figure), sums of counts, and all
        marks. With 3 or more repetitions intervals are Student's t over them; with 2 the two bootstrap intervals
        together. Acceptance from different sources is not averaged: it is absent then.

    Raises:
        ValueError: of no repetitions.
    """
    if not cells:
        raise ValueError("no repetitions to combine")
    if len(cells) == 1:
        return cells[0]
    throughput = _all_of(cells, lambda c: c.throughput_tok_s)
    sources = {c.acceptance_source for c in cells if c.acceptance_source is not None}
    one_source = len(sources) == 1
    lengths = _all_of(cells, lambda c: c.acceptance_length) if one_source else []
    histograms = [c.accepted_histogram for c in cells if c.accepted_histogram is not None]
    histogram = add_histograms(histograms) if one_source and len(histograms) == len(cells) else None
    decode_p50 = _all_of(cells, lambda c: c.decode_tok_s.p50)
    ttft_p50 = _all_of(cells, lambda c: c.ttft_s.p50)
    outputs = [c.output_tokens for c in cells if c.output_tokens is not None]
    reasoning = [c.reasoning_tokens for c in cells if c.reasoning_tokens is not None]
    return CellFigures(
        prompt_tokens_mean=_mean_of(cells, lambda c: c.prompt_tokens_mean),
        throughput_tok_s=_mean(throughput),
        throughput_ci95=_interval(throughput, [c.throughput_ci95 for c in cells]),
        whole_run_throughput_tok_s=_mean_of(cells, lambda c: c.whole_run_throughput_tok_s),
        decode_tok_s=_percentiles([c.decode_tok_s for c in cells]),
        ttft_s=_percentiles([c.ttft_s for c in cells]),
        ttfo_s=_percentiles([c.ttfo_s for c in cells]),
        tpot_s=_percentiles([c.tpot_s for c in cells]),
        e2e_s=_percentiles([c.e2e_s for c in cells]),
        chunk_gap_s=_percentiles([c.chunk_gap_s for c in cells]),
        itl_s=_percentiles([c.itl_s for c in cells]),
        decode_ci95=_interval(decode_p50, [c.decode_ci95 for c in cells]),
        ttft_ci95=_interval(ttft_p50, [c.ttft_ci95 for c in cells]),
        acceptance_ci95=_interval(lengths, [c.acceptance_ci95 for c in cells]) if one_source else None,
        acceptance_length=_ratio_of_sums(cells, lengths) if one_source else None,
        acceptance_source=sources.pop() if one_source else None,
        accept_rate=_mean_of(cells, lambda c: c.accept_rate) if one_source else None,
        verify_steps=_sum_of(cells, lambda c: c.verify_steps) if one_source else None,
        committed_tokens=_sum_of(cells, lambda c: c.committed_tokens) if one_source else None,
        accepted_histogram=histogram,
        survival=None if histogram is None else survival_of(histogram),
        effective_concurrency=_mean_of(cells, lambda c: c.effective_concurrency),
        server_running_mean=_mean_of(cells, lambda c: c.server_running_mean),
        output_tokens=sum(outputs) if len(outputs) == len(cells) else None,
        reasoning_tokens=sum(reasoning) if len(reasoning) == len(cells) else None,
        ramp_s=_mean_of(cells, lambda c: c.ramp_s),
        steady_s=_mean_of(cells, lambda c: c.steady_s),
        tail_s=_mean_of(cells, lambda c: c.tail_s),
        requests=_requests(cells),
        unmeasured=sum(c.unmeasured for c in cells),
        repetitions=sum(c.repetitions for c in cells),
        goodput=_mean_of(cells, lambda c: c.goodput),
        cached_token_share=_mean_of(cells, lambda c: c.cached_token_share),
        energy_j_per_tok=_mean_of(cells, lambda c: c.energy_j_per_tok),
        gpu_memory_peak_bytes=_memory(cells),
        gpu_power_mean_w=_mean_of(cells, lambda c: c.gpu_power_mean_w),
        gpu_utilisation_mean=_mean_of(cells, lambda c: c.gpu_utilisation_mean),
        client=_client([c.client for c in cells]),
        categories=_categories(cells),
        marks=_marks(cells),
    )


def _all_of(cells: Sequence[CellFigures], figure: Callable[[CellFigures], float | None]) -> list[float]:
    return [value for c in cells if (value := figure(c)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_of(cells: Sequence[CellFigures], figure: Callable[[CellFigures], float | None]) -> float | None:
    return _mean(_all_of(cells, figure))


def _sum_of(cells: Sequence[CellFigures], figure: Callable[[CellFigures], float | None]) -> float | None:
    values = _all_of(cells, figure)
    return math.fsum(values) if len(values) == len(cells) else None


def _interval(values: Sequence[float], own: Sequence[Interval | None]) -> Interval | None:
    """Student's t over 3 or more repetitions; of two, the repetitions' own intervals taken as independent."""
    if len(values) >= stats.FEWEST_FOR_INTERVAL:
        return stats.mean_interval(values)
    given = [interval for interval in own if interval is not None]
    if len(values) < 2 or len(given) != len(values):
        return given[0] if len(values) == 1 and len(given) == 1 else None
    mean = math.fsum(values) / len(values)
    below = math.hypot(*(v - i.lo for v, i in zip(values, given, strict=True))) / len(values)
    above = math.hypot(*(i.hi - v for v, i in zip(values, given, strict=True))) / len(values)
    return Interval(mean - below, mean + above)


def _ratio_of_sums(cells: Sequence[CellFigures], lengths: Sequence[float]) -> float | None:
    steps = _all_of(cells, lambda c: c.verify_steps)
    committed = _all_of(cells, lambda c: c.committed_tokens)
    if len(steps) == len(committed) == len(lengths) and steps:
        return math.fsum(committed) / math.fsum(steps)
    return _mean(lengths)


def _percentiles(spreads: Sequence[Percentiles]) -> Percentiles:
    """Each percentile as its mean over the repetitions; `n` is the sum."""
    told = [p for p in spreads if p.n]
    if not told:
        return Percentiles()
    return Percentiles(
        p50=_mean([p.p50 for p in told if p.p50 is not None]),
        p90=_mean([p.p90 for p in told if p.p90 is not None]),
        p99=_mean([p.p99 for p in told if p.p99 is not None]),
        n=sum(p.n for p in told),
        p99_is_max=any(p.p99_is_max for p in told),
    )


def _requests(cells: Sequence[CellFigures]) -> RequestCounts:
    failed: Counter[str] = Counter()
    for cell in cells:
        failed.update(cell.requests.failed)
    return RequestCounts(valid=sum(c.requests.valid for c in cells), failed=dict(sorted(failed.items())))


def _memory(cells: Sequence[CellFigures]) -> tuple[int | None, ...] | None:
    """Highest used memory of each GPU over the repetitions."""
    told = [c.gpu_memory_peak_bytes for c in cells if c.gpu_memory_peak_bytes is not None]
    if not told:
        return None
    peaks: list[int | None] = []
    for gpu in range(max(len(by_gpu) for by_gpu in told)):
        used = [peak for by_gpu in told if gpu < len(by_gpu) and (peak := by_gpu[gpu]) is not None]
        peaks.append(max(used) if used else None)
    return tuple(peaks)


def _client(healths: Sequence[ClientFigures]) -> ClientFigures:
    """The worst of the repetitions."""
    lags = [h.loop_lag_p99_s for h in healths if h.loop_lag_p99_s is not None]
    shares = [h.cpu_share for h in healths if h.cpu_share is not None]
    streams = [h.streams_open_max for h in healths if h.streams_open_max is not None]
    late = [h.start_lateness_p99_s for h in healths if h.start_lateness_p99_s is not None]
    return ClientFigures(
        loop_lag_p99_s=max(lags, default=None),
        cpu_share=max(shares, default=None),
        streams_open_max=max(streams, default=None),
        start_lateness_p99_s=max(late, default=None),
    )


def _categories(cells: Sequence[CellFigures]) -> tuple[CategoryFigures, ...]:
    """Figures by content: counts added, the others as means over the repetitions that have them."""
    by_name: dict[str, list[CategoryFigures]] = {}
    for cell in cells:
        for found in cell.categories:
            by_name.setdefault(found.category, []).append(found)
    combined = []
    for name, parts in sorted(by_name.items()):
        tokens = [p.output_tokens for p in parts if p.output_tokens is not None]
        combined.append(
            CategoryFigures(
                category=name,
                requests=sum(p.requests for p in parts),
                output_tokens=sum(tokens) if len(tokens) == len(parts) else None,
                acceptance_length=_mean([p.acceptance_length for p in parts if p.acceptance_length is not None]),
                decode_tok_s_p50=_mean([p.decode_tok_s_p50 for p in parts if p.decode_tok_s_p50 is not None]),
            )
        )
    return tuple(combined)


def _marks(cells: Sequence[CellFigures]) -> tuple[Mark, ...]:
    """Every kind of mark once, as its first repetition worded it, with how many repetitions have it."""
    found: dict[str, tuple[Mark, int]] = {}
    for cell in cells:
        for mark in cell.marks:
            first, count = found.get(mark.kind, (mark, 0))
            found[mark.kind] = (first, count + 1)
    return tuple(
        first
        if count == len(cells)
        else msgspec.structs.replace(first, reason=f"{first.reason} ({count} of {len(cells)} repetitions)")
        for first, count in found.values()
    )
