"""Samples to the facts of one cell's window: pure, and the only place that does so.

Energy comes from the counters, read off at the window's edges by straight lines between samples; peaks are over the
whole cell; a fact that its samples don't bear out is absent.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from telemetry.samples import GpuReading, GpuSample, ServerSample
from telemetry.series import Point, counter_rise, mean_over_time
from telemetry.throttle import HARMLESS_REASONS

MIN_ENERGY_WINDOW_S = 1.0
"""The driver refreshes its counters and averages too slowly for a figure over less."""
NEARBY_S = 60.0
"""Samples further from a cell than this say nothing about it; an exporter's are up to 30 s old."""
COUNTER_EDGE_S = 3.0
"""Counters read longer before or after a cell than this count other work as well."""


class GpuWindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's GPUs did; lists are by GPU, in the order of `gpus`.

    Attributes:
        energy_j: joules of all the server's GPUs over `energy_span_s`; absent when one of them has no counter, and for
            windows under a second.
        energy_span_s: seconds of the window that the counters cover, usually all of it.
        memory_peak_bytes: highest used memory in the whole cell.
        power_mean_w: watts, mean over time, sum over the GPUs.
        utilisation_mean: mean over time and GPUs, 0 to 1.
        throttle_reasons: clock event reasons seen in the window, idle and application clocks left out.
        gpus: indices; `throttled_gpus`: those with a reason.
        lost_gpus: those that were lost or could not be read at some time in the cell.
        samples_good: samples in the window in which all these GPUs answered, of `samples_seen`.
    """

    energy_j: float | None = None
    energy_span_s: float | None = None
    memory_peak_bytes: tuple[int | None, ...] = ()
    power_mean_w: float | None = None
    utilisation_mean: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    throttled_gpus: tuple[int, ...] = ()
    lost_gpus: tuple[int, ...] = ()
    samples_good: int = 0
    samples_seen: int = 0


class ServerWindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own view: gauges over the steady window, counter differences over the whole cell.

    Attributes:
        running_mean: time average of running requests; `running_median`: of the readings.
        waiting_max: most requests seen waiting; `waiting_share`: share of the samples with any.
        drafts, accepted, generated, verify_calls, accepted_per_position: rise of the counters; absent after a reset.
        decode_tok_s: decoded tokens a second over the steady window, from the live counter.
        lifetime_acceptance: mean since the server's start or last flush, as last said.
    """

    running_mean: float | None = None
    running_median: float | None = None
    waiting_max: int | None = None
    waiting_share: float | None = None
    token_usage_max: float | None = None
    drafts: float | None = None
    accepted: float | None = None
    generated: float | None = None
    verify_calls: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    lifetime_acceptance: float | None = None
    counters_reset: bool = False
    decode_tok_s: float | None = None


def gpu_window(
    samples: Sequence[GpuSample],
    start: float,
    end: float,
    cell_start: float | None = None,
    cell_end: float | None = None,
) -> GpuWindowFacts:
    """Returns what the server's GPUs did between `start` and `end` (seconds since the session's start).

    Args:
        samples: in order of time; one before the start and one after the end make the edges exact.
        start: begin of the steady window.
        end: its end.
        cell_start: begin of the whole cell, for the peaks; that of the window unless given.
        cell_end: its end.
    """
    cell_start = start if cell_start is None else cell_start
    cell_end = end if cell_end is None else cell_end
    samples = _nearby(samples, min(start, cell_start), max(end, cell_end))
    inside = [sample for sample in samples if start <= sample.t <= end]
    in_cell = [sample for sample in samples if cell_start <= sample.t <= cell_end]
    ours = _ours(in_cell or samples)
    readings = _by_gpu(samples, ours)
    energy = _energy(readings, start, end)
    reasons = {
        index: [r for t, one in of if start <= t <= end for r in one.throttle or () if r not in HARMLESS_REASONS]
        for index, of in readings.items()
    }
    powers = [mean_over_time(_points(of, _power), start, end) for of in readings.values()]
    shares = [mean_over_time(_points(of, _utilisation), start, end) for of in readings.values()]
    near = _by_gpu(in_cell or _around(samples, cell_start, cell_end), ours)
    return GpuWindowFacts(
        energy_j=energy.value if energy else None,
        energy_span_s=energy.t if energy else None,
        memory_peak_bytes=tuple(map(_peak, near.values())),
        power_mean_w=_all_of(powers, math.fsum),
        utilisation_mean=_all_of(shares, lambda values: math.fsum(values) / len(values)),
        throttle_reasons=tuple(sorted({reason for found in reasons.values() for reason in found})),
        gpus=ours,
        throttled_gpus=tuple(index for index in ours if reasons[index]),
        lost_gpus=tuple(i for i, of in near.items() if any(one.state != "ok" for _, one in of)),
        samples_good=sum(1 for sample in inside if _all_answered(sample, ours)),
        samples_seen=len(inside),
    )


def idle_power_w(samples: Sequence[GpuSample], start: float, end: float) -> tuple[float | None, ...]:
    """Returns each of the server's GPUs' mean power in watts before the sweep: what energy figures start from."""
    inside = [sample for sample in samples if start <= sample.t <= end]
    readings = _by_gpu(inside, _ours(inside))
    return tuple(mean_over_time(_points(of, _power), start, end) for of in readings.values())


def _running(samples: Sequence[ServerSample]) -> list[Point]:
    """Running requests over time, without readings that are older than they say.

    SGLang 0.5.23 writes the gauge after each prefill, when the new requests do not count yet, and then every 15 decode
    steps (`load_snapshot_publish_interval`): none running while tokens are being decoded is such a reading.
    """
    points = []
    decoded: float | None = None
    for sample in samples:
        now = sample.decode_tokens_total
        decoding = decoded is not None and now is not None and now > decoded
        if sample.running is not None and (sample.running > 0 or not decoding):
            points.append(Point(sample.t, float(sample.running)))
        decoded = now
    return points


def server_window(
    samples: Sequence[ServerSample],
    start: float,
    end: float,
    cell_start: float | None = None,
    cell_end: float | None = None,
) -> ServerWindowFacts:
    """Returns the server's own view of a cell (seconds since the session's start).

    Counter differences run from the last sample at or before `cell_start` to the first at or after `cell_end`: take
    one sample at each edge of a cell, while nothing else runs, and they are those of the cell alone.
    """
    cell_start = start if cell_start is None else cell_start
    cell_end = end if cell_end is None else cell_end
    samples = _nearby(samples, min(start, cell_start), max(end, cell_end))
    inside = [sample for sample in samples if start <= sample.t <= end]
    waiting = [sample.waiting for sample in inside if sample.waiting is not None]
    usage = [sample.token_usage for sample in inside if sample.token_usage is not None]
    running = _running(samples)
    counts = [point.value for point in running if start <= point.t <= end]
    decoded = [Point(s.t, s.decode_tokens_total) for s in samples if s.decode_tokens_total is not None]
    spanning = _spanning(samples, cell_start, cell_end)
    last_t = max(cell_end, spanning[-1].t if spanning else cell_end)
    told = [s for s in samples if cell_start < s.t <= last_t]
    lifetimes = [s.acceptance_lifetime for s in told if s.acceptance_lifetime is not None]
    reset = any(sample.counters_reset for sample in told)
    facts = ServerWindowFacts(
        running_mean=mean_over_time(running, start, end),
        running_median=statistics.median(counts) if counts else None,
        waiting_max=max(waiting) if waiting else None,
        waiting_share=sum(1 for count in waiting if count > 0) / len(waiting) if waiting else None,
        token_usage_max=max(usage) if usage else None,
        lifetime_acceptance=lifetimes[-1] if lifetimes else None,
        counters_reset=reset,
        decode_tok_s=None if reset else _rise_rate(decoded, start, end),
    )
    if reset or len(spanning) < 2:
        return facts
    first, last = spanning[0], spanning[-1]
    return msgspec.structs.replace(
        facts,
        drafts=_rise(first.drafts_total, last.drafts_total),
        accepted=_rise(first.accepted_total, last.accepted_total),
        generated=_rise(first.generated_total, last.generated_total),
        verify_calls=_rise(first.verify_calls_total, last.verify_calls_total),
        accepted_per_position=_rises(first.accepted_per_position, last.accepted_per_position),
    )


_Sample = TypeVar("_Sample", GpuSample, ServerSample)
_Readings = list[tuple[float, GpuReading]]


def _energy(readings: dict[int, _Readings], start: float, end: float) -> Point | None:
    """Returns (seconds covered, joules) of all the GPUs together, over the time that all their counters cover."""
    if not readings or end - start < MIN_ENERGY_WINDOW_S:
        return None
    rises: list[Point] = []
    for of in readings.values():
        if (rise := counter_rise(_points(of, _energy_of), start, end, always_rises=True)) is None:
            return None
        rises.append(rise)
    span = min(rise.t for rise in rises)
    return Point(span, math.fsum(rise.value * span / rise.t for rise in rises))


def _rise_rate(points: Sequence[Point], start: float, end: float) -> float | None:
    rise = counter_rise(points, start, end) if end > start else None
    return rise.value / rise.t if rise else None


def _nearby(samples: Sequence[_Sample], start: float, end: float) -> Sequence[_Sample]:
    """Returns the samples that can say something about a cell, found without looking at all of a long session."""
    first = bisect_left(samples, start - NEARBY_S, key=lambda sample: sample.t)
    last = bisect_right(samples, end + NEARBY_S, key=lambda sample: sample.t)
    return samples[first:last]


def _by_gpu(samples: Iterable[GpuSample], ours: Sequence[int]) -> dict[int, _Readings]:
    """Returns the readings of each GPU with the times at which they were taken."""
    found: dict[int, _Readings] = {index: [] for index in ours}
    for sample in samples:
        for gpu in sample.gpus:
            if gpu.index in found:
                found[gpu.index].append((sample.t, gpu))
    return found


def _points(readings: _Readings, of: Callable[[GpuReading], float | None]) -> list[Point]:
    return [
        Point(t + (gpu.read_after_s or 0.0), value)
        for t, gpu in readings
        if gpu.state == "ok" and (value := of(gpu)) is not None
    ]


def _energy_of(gpu: GpuReading) -> float | None:
    return gpu.energy_j


def _power(gpu: GpuReading) -> float | None:
    return gpu.power_w


def _utilisation(gpu: GpuReading) -> float | None:
    return gpu.utilisation


def _all_answered(sample: GpuSample, ours: Sequence[int]) -> bool:
    good = {gpu.index for gpu in sample.gpus if gpu.state == "ok"}
    return bool(ours) and good.issuperset(ours)


def _ours(samples: Sequence[GpuSample]) -> tuple[int, ...]:
    """Returns the server's GPUs as last told; none when that is not known, since others' figures are not its own."""
    for sample in reversed(samples):
        if sample.ours is not None:
            return sample.ours
    return ()


def _peak(readings: _Readings) -> int | None:
    used = [gpu.memory_used_bytes for _, gpu in readings if gpu.memory_used_bytes is not None]
    return max(used) if used else None


def _around(samples: Sequence[GpuSample], start: float, end: float) -> list[GpuSample]:
    before = [sample for sample in samples if sample.t < start][-1:]
    after = [sample for sample in samples if sample.t > end][:1]
    return before + after


def _all_of(values: Sequence[float | None], combine: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known and len(known) == len(values) else None


def _spanning(samples: Sequence[ServerSample], start: float, end: float) -> list[ServerSample]:
    """Returns the samples with counters from the last before the cell to the first after it, or none."""
    counted = [
        sample
        for sample in samples
        if start - COUNTER_EDGE_S <= sample.t <= end + COUNTER_EDGE_S and _has_counters(sample)
    ]
    first = max((i for i, sample in enumerate(counted) if sample.t <= start), default=None)
    last = min((i for i, sample in enumerate(counted) if sample.t >= end), default=None)
    return [] if first is None or last is None else counted[first : last + 1]


def _has_counters(sample: ServerSample) -> bool:
    return any(value is not None for value in (sample.generated_total, sample.verify_calls_total, sample.drafts_total))


def _rise(first: float | None, last: float | None) -> float | None:
    return last - first if first is not None and last is not None and last >= first else None


def _rises(first: tuple[float, ...] | None, last: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if first is None or last is None or len(first) != len(last):
        return None
    return tuple(b - a for a, b in zip(first, last, strict=True))
