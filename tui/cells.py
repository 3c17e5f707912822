"""One matrix point as it is shown: its repetitions made into one figure, one status, one set of marks."""

from __future__ import annotations

from dataclasses import dataclass

from sessions.points import Estimate, Point, PointCells, ratio
from sessions.state import CellState, PresetState
from tui.metrics import TTFT_P99, Metric, mark_letters
from tui.remembered import remembered
from tui.view import Facts

LIVE_S = 5.0
"""Seconds of a running cell that its live rates are the mean of."""
SETTLING_S = 1.0
"""Seconds at the beginning of the steady part whose rates still reach back into the ramp."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A matrix point.

    Attributes:
        status: absent, waiting, running, measured, failed, skipped, not-in-effect.
        value: the combined figure in the metric's unit; `half`: half of its 95 % interval.
        marks: letters of all repetitions' marks.
        done: repetitions measured; `planned`: repetitions there are to be.
        reason: why there is no figure.
        at_most: the figure is a maximum in place of a percentile.
        same: a difference that noise covers.
    """

    status: str
    value: float | None = None
    half: float | None = None
    marks: str = ""
    done: int = 0
    planned: int = 1
    reason: str = ""
    at_most: bool = False
    same: bool = False


def pass_counts(preset: PresetState) -> tuple[int, int]:
    """Returns how many answers of a preset's evals passed, of how many that say something of the model."""
    judged = [e.problems * e.samples if e.judged is None else e.judged for e in preset.evals]
    return sum(e.passed for e in preset.evals), sum(judged)


def point_cells(facts: Facts, preset: str, context: int, concurrency: int) -> PointCells | None:
    """Returns the repetitions of one preset at one matrix point of the shown temperature."""
    cells = facts.repetitions(preset, context, concurrency)
    return _point_of(preset, tuple(cells)) if cells else None


def shown(facts: Facts, preset: str, context: int, concurrency: int, metric: Metric | None = None) -> Shown:
    """Returns a matrix point of one preset under a metric (the view's by default)."""
    metric = metric or facts.metric
    cells = facts.repetitions(preset, context, concurrency)
    if not cells:
        return Shown(status="absent")
    reference = facts.state.reference if metric.relative else None
    base = facts.repetitions(reference, context, concurrency) if reference not in (None, preset) else []
    return _made(metric, reference, preset, len(cells), *cells, *base)


@remembered(8192)
def _made(metric: Metric, reference: str | None, preset: str, count: int, *cells: CellState) -> Shown:
    """Makes one matrix point: of the first `count` cells, held against the others where the metric is relative."""
    at = _point_of(preset, cells[:count])
    base = _point_of(reference, cells[count:]) if reference is not None and len(cells) > count else None
    statuses = {c.status for c in at.cells}
    order = ("running", "measured", "failed", "not-in-effect", "skipped")
    found = at.estimate(metric.estimate)
    value, half, same = _figure(metric, found, base, is_reference=reference == preset)
    return Shown(
        status=next((s for s in order if s in statuses), "waiting"),
        value=value,
        half=half,
        marks="".join(dict.fromkeys(letter for f in at.figures for letter in mark_letters(f))),
        done=len(at.figures),
        planned=len(at.cells),
        reason=next((c.reason for c in at.cells if c.reason), ""),
        at_most=metric is TTFT_P99 and any(f.ttft_s.p99_is_max for f in at.figures),
        same=same,
    )


def live_rates(facts: Facts) -> tuple[float | None, float | None]:
    """Returns tok/s and acceptance length of the running cell: means over the last seconds of its steady part.

    Before that part there is nothing that could be taken for the cell's figure, so both are `None`.
    """
    running = facts.running
    if running is None or running.started_t is None:
        return None, None
    points = [p for p in facts.state.history if p.steady and p.t >= running.started_t]
    points = [p for p in points if points[0].t + SETTLING_S <= p.t > points[-1].t - LIVE_S]
    return _mean([p.tok_s for p in points]), _mean([p.acceptance_length for p in points])


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _point_of(preset: str, cells: tuple[CellState, ...]) -> PointCells:
    key = cells[0].key
    return PointCells(preset, Point(key.context, key.concurrency, key.temperature), cells)


def _figure(
    metric: Metric, found: Estimate | None, base: PointCells | None, *, is_reference: bool
) -> tuple[float | None, float | None, bool]:
    if found is None:
        return None, None, False
    if not metric.relative:
        return found.value * metric.scale, None if found.half is None else found.half * metric.scale, False
    if is_reference:
        return 0.0, None, True
    return lead_over(found, base.estimate(metric.estimate) if base else None)


def lead_over(new: Estimate | None, base: Estimate | None) -> tuple[float | None, float | None, bool]:
    """Returns how far an estimate lies above another in percent, half of that interval, and whether noise covers it."""
    against = ratio(new, base) if new is not None and base is not None else None
    if against is None:
        return None, None, False
    value = (against.value - 1) * 100
    if against.interval is None:
        return value, None, False
    lo, hi = against.interval.lo, against.interval.hi
    return value, (hi - lo) * 50, lo <= 1 <= hi
