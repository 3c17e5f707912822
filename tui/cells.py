"""One matrix point as it is shown: its repetitions made into one figure, one status, one set of marks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sessions.state import CellState
from tui.metrics import THROUGHPUT, Metric, against, mark_letters
from tui.view import Facts

_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A matrix point.

    Attributes:
        status: waiting, running, measured, failed, skipped, not-in-effect.
        value: the combined figure in the metric's unit; `half`: half of its 95 % interval.
        marks: letters of all repetitions' marks.
        done: repetitions measured; `of`: repetitions planned.
        reason: why there is no figure.
        at_most: the figure is a maximum in place of a percentile.
    """

    status: str
    value: float | None = None
    half: float | None = None
    marks: str = ""
    done: int = 0
    of: int = 1
    reason: str = ""
    at_most: bool = False


def combine(values: list[float], halves: list[float | None]) -> tuple[float | None, float | None]:
    """Returns the mean over repetitions and half of its 95 % interval.

    Three or more: Student's t over the repetitions. Fewer: the repetitions' own intervals, as of independent means.
    """
    n = len(values)
    if n == 0:
        return None, None
    mean = math.fsum(values) / n
    if n >= 3:
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        return mean, _STUDENT_T[min(n - 2, len(_STUDENT_T) - 1)] * spread / math.sqrt(n)
    known = [h for h in halves if h is not None]
    return mean, math.sqrt(math.fsum(h * h for h in known)) / n if len(known) == n else None


def shown(facts: Facts, preset: str, context: int, concurrency: int, metric: Metric | None = None) -> Shown:
    """Returns a matrix point of one preset under a metric (the view's by default)."""
    metric = metric or facts.metric
    cells = facts.repetitions(preset, context, concurrency)
    if not cells:
        return Shown(status="absent")
    found = _combined(cells, metric)
    if metric.relative and found.value is not None:
        reference = facts.state.reference
        if reference is None or reference == preset:
            return Shown(**{**found.__dict__, "value": 0.0 if reference == preset else None, "half": None})
        ref = _combined(facts.repetitions(reference, context, concurrency), THROUGHPUT)
        value, half = against(found.value, found.half, ref.value, ref.half)
        return Shown(**{**found.__dict__, "value": value, "half": half})
    return found


def _combined(cells: list[CellState], metric: Metric) -> Shown:
    statuses = [c.status for c in cells]
    measured = [c.figures for c in cells if c.status == "measured" and c.figures is not None]
    pairs = [(v, metric.half(f)) for f in measured if (v := metric.value(f)) is not None]
    value, half = combine([v for v, _ in pairs], [h for _, h in pairs])
    status = next(
        (s for s in ("running", "measured", "failed", "not-in-effect", "skipped") if s in statuses),
        "waiting",
    )
    marks = "".join(dict.fromkeys(letter for f in measured for letter in mark_letters(f)))
    return Shown(
        status=status,
        value=value,
        half=half,
        marks=marks,
        done=len(measured),
        of=len(cells),
        reason=next((c.reason for c in cells if c.reason), ""),
        at_most=metric.name == "TTFT p99 ms" and any(f.ttft_s.p99_is_max for f in measured),
    )
