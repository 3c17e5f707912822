"""A matrix point of one preset: its repetitions made into estimates, and whether it may be relied on.

The one place that says how repetitions are combined, how two estimates are held against each other, and which marks
void a cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from loadgen.figures import CellFigures, Interval, Mark, MarkKind
from loadgen.student import t_quantile
from sessions.folder import shortened
from sessions.state import CellState, SessionState

VOIDING = frozenset(
    {
        MarkKind.NOT_IN_EFFECT,
        MarkKind.CLIENT_BOUND,
        MarkKind.UNDER_RUN,
        MarkKind.CACHE_HITS,
        MarkKind.ERRORS,
        MarkKind.UNMEASURED,
        MarkKind.NO_SPECULATION,
        MarkKind.DIVERGED,
    }
)
"""Marks with which a figure is not that of the preset at that matrix point: such a cell has no vote."""

SAME_BELOW = 0.01
"""Differences under this share are called the same whatever their interval: restarts and order shift more than that."""

BETWEEN_RUNS = 0.01
"""Share by which a cell measured again is taken to differ beyond what its own requests show, where three repetitions
do not show it: one run knows nothing of what changes from run to run."""

FEWEST_REPETITIONS = 3
"""With fewer, repetitions say too little of their own scatter."""

MANY = 1_000_000
"""Degrees of freedom of an estimate whose scatter is as good as known."""

Verdict = Literal["better", "worse", "same", "unknown"]


class Point(msgspec.Struct, frozen=True, order=True):
    """A matrix point: prompt tokens, streams at once, temperature."""

    context: int
    concurrency: int
    temperature: float = 0.0

    @property
    def text(self) -> str:
        """`4096 x 32`, with the temperature where it is not 0."""
        warm = f" t{self.temperature:g}" if self.temperature else ""
        return f"{self.context} x {self.concurrency}{warm}"


class Estimate(msgspec.Struct, frozen=True):
    """A figure with what is known of its scatter.

    Attributes:
        value: the figure.
        error: its standard error, or `None` where nothing is known of it.
        freedom: degrees of freedom behind `error`.
        interval: its 95 % interval.
    """

    value: float
    error: float | None = None
    freedom: int = MANY
    interval: Interval | None = None

    @property
    def half(self) -> float | None:
        """Half the length of the interval."""
        return None if self.interval is None else (self.interval.hi - self.interval.lo) / 2


class Metric(msgspec.Struct, frozen=True):
    """One figure that is estimated and compared.

    Attributes:
        key: stable name, as in `show --json`.
        words: for a heading, with the unit.
        higher_is_better: which way is better.
    """

    key: str
    words: str
    higher_is_better: bool
    value: Callable[[CellFigures], float | None]
    interval: Callable[[CellFigures], Interval | None]


THROUGHPUT = Metric("throughput_tok_s", "tok/s", True, lambda f: f.throughput_tok_s, lambda f: f.throughput_ci95)
PER_USER = Metric("decode_tok_s", "tok/s per user", True, lambda f: f.decode_tok_s.p50, lambda f: f.decode_ci95)
TTFT = Metric("ttft_s", "TTFT p50 s", False, lambda f: f.ttft_s.p50, lambda f: f.ttft_ci95)
ACCEPTANCE = Metric("acceptance_length", "accept", True, lambda f: f.acceptance_length, lambda f: f.acceptance_ci95)
ENERGY = Metric("energy_j_per_tok", "J/tok", False, lambda f: f.energy_j_per_tok, lambda _: None)
METRICS = (THROUGHPUT, PER_USER, TTFT, ACCEPTANCE, ENERGY)


class PointCells(msgspec.Struct, frozen=True):
    """The repetitions of one preset at one matrix point."""

    preset: str
    point: Point
    cells: tuple[CellState, ...]

    @property
    def figures(self) -> tuple[CellFigures, ...]:
        """Figures of the measured repetitions."""
        return tuple(c.figures for c in self.cells if c.status == "measured" and c.figures is not None)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All repetitions' marks, one of each kind."""
        return tuple({m.kind: m for f in self.figures for m in f.marks}.values())

    @property
    def told_marks(self) -> tuple[Mark, ...]:
        """The marks that are worth a sign at the throughput and words: that a p99 is a maximum stands beside it."""
        return tuple(m for m in self.marks if m.kind is not MarkKind.FEW_SAMPLES)

    @property
    def no_figures(self) -> str:
        """Why there is nothing measured, in words; empty when there is something."""
        if self.figures:
            return ""
        worst = next((c for c in self.cells if c.status not in ("waiting", "running")), self.cells[0])
        words = {"waiting": "not measured", "running": "being measured", "not-in-effect": "not in effect"}
        return words.get(worst.status, worst.status) + (f": {shortened(worst.reason)}" if worst.reason else "")

    @property
    def void(self) -> str:
        """Why the point has no vote, in words; empty when it has one."""
        if reason := self.no_figures:
            return reason
        voiding = [m for m in self.marks if m.kind in VOIDING]
        if voiding:
            return "; ".join(f"{m.kind.value}: {m.reason}" for m in voiding)
        return "" if self.estimate(THROUGHPUT) is not None else "no throughput"

    def estimate(self, metric: Metric) -> Estimate | None:
        """Returns a metric over the repetitions, or `None` where no repetition has it."""
        figures = self.figures
        if metric is ACCEPTANCE:
            sources = {f.acceptance_source for f in figures if f.acceptance_length is not None}
            if len(sources) > 1:  # figures of different sources are never averaged together
                first = next(f.acceptance_source for f in figures if f.acceptance_length is not None)
                figures = tuple(f for f in figures if f.acceptance_source == first)
        singles = [single(value, metric.interval(f), f) for f in figures if (value := metric.value(f)) is not None]
        if metric is ACCEPTANCE and len(singles) > 1:
            return _pooled_acceptance(figures, combined(singles))
        return combined(singles)


def single(value: float, interval: Interval | None, figures: CellFigures) -> Estimate:
    """Returns one repetition's figure as an estimate; its interval was made over its requests."""
    freedom = max(1, figures.requests.valid - 1)
    if interval is None:
        return Estimate(value)
    within = (interval.hi - interval.lo) / 2 / t_quantile(freedom)
    return Estimate(value, within, freedom, interval)


def combined(parts: Sequence[Estimate]) -> Estimate | None:
    """Combines repetitions.

    Three or more: mean, and Student's t over them. Two: mean; their scatter is the larger of what they differ by and of
    what is taken of one run. One: itself, with the scatter between runs (`BETWEEN_RUNS`) added to what is compared
    with (`error`). That error is never less than the repetitions' own intervals say: three values that fell together
    by chance would otherwise make differences out of nothing.
    """
    if not parts:
        return None
    n = len(parts)
    mean = math.fsum(p.value for p in parts) / n
    known = [p.error for p in parts if p.error is not None]
    within = math.sqrt(math.fsum(e * e for e in known)) / n if len(known) == n else None
    freedom = sum(p.freedom for p in parts)
    if n < FEWEST_REPETITIONS and within is not None:
        within = math.hypot(within, BETWEEN_RUNS * mean / math.sqrt(n))
    if n == 1:
        return Estimate(mean, within, freedom, parts[0].interval)
    between = math.sqrt(math.fsum((p.value - mean) ** 2 for p in parts) / (n - 1) / n)
    if n < FEWEST_REPETITIONS:
        if within is None:
            return Estimate(mean)
        error = max(within, between)
        half = t_quantile(freedom) * error
    else:
        half = t_quantile(n - 1) * between
        error, freedom = (between, n - 1) if within is None or between >= within else (within, freedom)
    return Estimate(mean, error, freedom, Interval(mean - half, mean + half))


def _pooled_acceptance(figures: Sequence[CellFigures], scatter: Estimate | None) -> Estimate | None:
    """Acceptance length over repetitions: the ratio of the sums, with the repetitions' scatter."""
    pairs = [
        (f.committed_tokens, f.verify_steps)
        for f in figures
        if f.acceptance_length is not None and f.committed_tokens is not None and f.verify_steps
    ]
    if scatter is None or len(pairs) != sum(1 for f in figures if f.acceptance_length is not None):
        return scatter
    value = math.fsum(c for c, _ in pairs) / math.fsum(s for _, s in pairs)
    shift = value - scatter.value
    interval = scatter.interval and Interval(scatter.interval.lo + shift, scatter.interval.hi + shift)
    return Estimate(value, scatter.error, scatter.freedom, interval)


class Ratio(msgspec.Struct, frozen=True):
    """One estimate over another.

    Attributes:
        value: the ratio, 1 where they are equal.
        interval: its 95 % interval, or `None` where nothing is known of the scatter of one of them.
        log_error: standard error of its logarithm; `freedom`: the degrees of freedom behind it.
    """

    value: float
    interval: Interval | None
    log_error: float | None = None
    freedom: int = MANY


def ratio(new: Estimate, base: Estimate) -> Ratio | None:
    """Returns `new` over `base` with its interval, or `None` where that is not defined (0 or less).

    On the logarithmic scale, by Welch's t with the degrees of freedom of Satterthwaite's approximation.
    """
    if new.value <= 0 or base.value <= 0:
        return None
    value = new.value / base.value
    if new.error is None or base.error is None:
        return Ratio(value, None)
    va, vb = (new.error / new.value) ** 2, (base.error / base.value) ** 2
    error = math.sqrt(va + vb)
    if error == 0:
        return Ratio(value, Interval(value, value), 0.0)
    freedom = max(1, int((va + vb) ** 2 / (va * va / new.freedom + vb * vb / base.freedom)))
    half = t_quantile(freedom) * error
    return Ratio(value, Interval(value * math.exp(-half), value * math.exp(half)), error, freedom)


def verdict(found: Ratio | None, *, higher_is_better: bool, same_below: float = SAME_BELOW) -> Verdict:
    """Says what a ratio means: "same" where noise covers it or it hardly matters, "unknown" without an interval."""
    if found is None or found.interval is None:
        return "unknown"
    if found.interval.lo <= 1 <= found.interval.hi or abs(found.value - 1) < same_below:
        return "same"
    return "better" if (found.value > 1) == higher_is_better else "worse"


def geometric_mean(ratios: Sequence[tuple[Ratio, float]]) -> Ratio | None:
    """Returns the weighted geometric mean of independent ratios, with its interval where all have one.

    Args:
        ratios: (ratio, weight) pairs; weights need not add up to anything.
    """
    total = math.fsum(w for _, w in ratios)
    if not ratios or total <= 0:
        return None
    mean = math.fsum(w * math.log(r.value) for r, w in ratios) / total
    value = math.exp(mean)
    errors = [(r.log_error, w, r.freedom) for r, w in ratios if r.log_error is not None]
    if len(errors) != len(ratios):
        return Ratio(value, None)
    parts = [((w / total * e) ** 2, f) for e, w, f in errors]
    variance = math.fsum(v for v, _ in parts)
    if variance == 0:
        return Ratio(value, Interval(value, value), 0.0)
    freedom = max(1, int(variance**2 / math.fsum(v * v / f for v, f in parts)))
    half = t_quantile(freedom) * math.sqrt(variance)
    return Ratio(value, Interval(math.exp(mean - half), math.exp(mean + half)), math.sqrt(variance), freedom)


def points_of(state: SessionState) -> dict[tuple[str, Point], PointCells]:
    """Returns every (preset, matrix point) of a session with its repetitions, in the session's order."""
    grouped: dict[tuple[str, Point], list[CellState]] = {}
    for cell in state.cells.values():
        point = Point(cell.key.context, cell.key.concurrency, cell.key.temperature)
        grouped.setdefault((cell.key.preset, point), []).append(cell)
    return {key: PointCells(key[0], key[1], tuple(cells)) for key, cells in grouped.items()}


def matrix(points: Iterable[Point]) -> tuple[list[int], list[int], list[float]]:
    """Returns the contexts, concurrencies and temperatures that occur, ascending."""
    found = list(points)
    return (
        sorted({p.context for p in found}),
        sorted({p.concurrency for p in found}),
        sorted({p.temperature for p in found}),
    )
