"""Samples to the facts of one cell's window: pure, and the only place that does so.

Energy comes from the counters, read off at the window's edges by straight lines between samples; peaks are over the
whole cell; a fact that its samples don't bear out is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from telemetry.samples import GpuReading, GpuSample, ServerSample
from telemetry.series import Point, counter_rise, mean_over_time
from telemetry.throttle import HARMLESS_REASONS

MIN_ENERGY_WINDOW_S = 1.0
"""The driver refreshes its counters and averages too slowly for a figure over less."""


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
        samples_good: samples in the window in which all these GPUs answered, `samples_seen` of all.
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
        running_mean: time average of running requests; `waiting_max`: most requests seen waiting, and
        waiting_share: the share of the samples with any.
        drafts, accepted, generated, verify_calls, accepted_per_position: rise of the counters; absent after a reset.
        decode_tok_s: decoded tokens a second over the steady window, from the live counter.
        lifetime_acceptance: mean since the server's start or last flush, as last said.
    """

    running_mean: float | None = None
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
    inside = [sample for sample in samples if start <= sample.t <= end]
    in_cell = [sample for sample in samples if cell_start <= sample.t <= cell_end]
    ours = _ours(in_cell or inside or list(samples))
    energy = _energy(samples, ours, start, end)
    reasons = {
        index: [r for one in _of(inside, index) for r in one.throttle or () if r not in HARMLESS_REASONS]
        for index in ours
    }
    powers = [mean_over_time(_points(samples, index, _power), start, end) for index in ours]
    shares = [mean_over_time(_points(samples, index, _utilisation), start, end) for index in ours]
    near = in_cell or _around(samples, cell_start, cell_end)
    return GpuWindowFacts(
        energy_j=energy.value if energy else None,
        energy_span_s=energy.t if energy else None,
        memory_peak_bytes=tuple(_peak(near, index) for index in ours),
        power_mean_w=_all_of(powers, math.fsum),
        utilisation_mean=_all_of(shares, lambda values: math.fsum(values) / len(values)),
        throttle_reasons=tuple(sorted({reason for found in reasons.values() for reason in found})),
        gpus=ours,
        throttled_gpus=tuple(index for index in ours if reasons[index]),
        lost_gpus=tuple(i for i in ours if any(one.state != "ok" for one in _of(in_cell, i))),
        samples_good=sum(1 for s in inside if ours and sum(g.state == "ok" for g in _gpus(s, ours)) == len(ours)),
        samples_seen=len(inside),
    )


def idle_power_w(samples: Sequence[GpuSample], start: float, end: float) -> tuple[float | None, ...]:
    """Returns each of the server's GPUs' mean power in watts before the sweep: what energy figures start from."""
    inside = [sample for sample in samples if start <= sample.t <= end]
    return tuple(mean_over_time(_points(inside, index, _power), start, end) for index in _ours(inside))


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
    inside = [sample for sample in samples if start <= sample.t <= end]
    waiting = [sample.waiting for sample in inside if sample.waiting is not None]
    usage = [sample.token_usage for sample in inside if sample.token_usage is not None]
    running = [Point(s.t, float(s.running)) for s in samples if s.running is not None]
    decoded = [Point(s.t, s.decode_tokens_total) for s in samples if s.decode_tokens_total is not None]
    spanning = _spanning(samples, cell_start, cell_end)
    last_t = max(cell_end, spanning[-1].t if spanning else cell_end)
    told = [s for s in samples if cell_start < s.t <= last_t]
    lifetimes = [s.acceptance_lifetime for s in told if s.acceptance_lifetime is not None]
    reset = any(sample.counters_reset for sample in told)
    facts = ServerWindowFacts(
        running_mean=mean_over_time(running, start, end),
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


def _energy(samples: Sequence[GpuSample], ours: tuple[int, ...], start: float, end: float) -> Point | None:
    """Returns (seconds covered, joules) of all the GPUs together, over the time that all their counters cover."""
    if not ours or end - start < MIN_ENERGY_WINDOW_S:
        return None
    rises: list[Point] = []
    for index in ours:
        points = _points(samples, index, _energy_of)
        if (rise := counter_rise(points, start, end, always_rises=True)) is None:
            return None
        rises.append(rise)
    span = min(rise.t for rise in rises)
    return Point(span, math.fsum(rise.value * span / rise.t for rise in rises))


def _rise_rate(points: Sequence[Point], start: float, end: float) -> float | None:
    rise = counter_rise(points, start, end) if end > start else None
    return rise.value / rise.t if rise else None


def _points(samples: Iterable[GpuSample], index: int, of: Callable[[GpuReading], float | None]) -> list[Point]:
    return [
        Point(sample.t + (gpu.read_after_s or 0.0), value)
        for sample in samples
        for gpu in sample.gpus
        if gpu.index == index and gpu.state == "ok" and (value := of(gpu)) is not None
    ]


def _energy_of(gpu: GpuReading) -> float | None:
    return gpu.energy_j


def _power(gpu: GpuReading) -> float | None:
    return gpu.power_w


def _utilisation(gpu: GpuReading) -> float | None:
    return gpu.utilisation


def _of(samples: Iterable[GpuSample], index: int) -> list[GpuReading]:
    return [gpu for sample in samples for gpu in sample.gpus if gpu.index == index]


def _gpus(sample: GpuSample, ours: tuple[int, ...]) -> list[GpuReading]:
    return [gpu for gpu in sample.gpus if gpu.index in ours]


def _ours(samples: Sequence[GpuSample]) -> tuple[int, ...]:
    """Returns the server's GPUs as last told; none when that is not known, since others' figures are not its own."""
    for sample in reversed(samples):
        if sample.ours is not None:
            return sample.ours
    return ()


def _peak(samples: Iterable[GpuSample], index: int) -> int | None:
    used = [gpu.memory_used_bytes for gpu in _of(samples, index) if gpu.memory_used_bytes is not None]
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
    counted = [sample for sample in samples if _has_counters(sample)]
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
