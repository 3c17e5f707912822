"""Two sessions, or two presets, held against each other: cell by cell, with intervals, differing conditions first.

Only cells that both have measured count towards anything; everything else is listed. A is the base, B the new one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evals.statistics import wilson_interval
from loadgen.figures import Interval
from sessions.conditions import Difference, differing_conditions
from sessions.errors import SessionError, SessionNotFound
from sessions.folder import find, printable
from sessions.points import (
    MANY,
    METRICS,
    THROUGHPUT,
    Estimate,
    Metric,
    Point,
    PointCells,
    Ratio,
    Verdict,
    geometric_mean,
    points_of,
    ratio,
    verdict,
)
from sessions.review import Session, open_session


class Side(msgspec.Struct, frozen=True):
    """One of the two: a session, or one preset of it."""

    session: Session
    preset: str | None = None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.session.name}:{self.preset}" if self.preset else self.session.name


class Compared(msgspec.Struct, frozen=True):
    """One figure in one cell, or over all of them: B over A.

    Attributes:
        metric: key of the figure.
        ratio: B / A; `interval` its 95 % interval, or `None` where a scatter is not known.
        verdict: whether B is better than A, worse, the same within noise, or unknown.
    """

    metric: str
    a: float | None
    b: float | None
    ratio: float | None
    interval: Interval | None
    verdict: Verdict
    log_error: float | None = None
    freedom: int = MANY

    @classmethod
    def of(cls, metric: Metric, base: Estimate | None, new: Estimate | None, found: Ratio | None) -> Compared:
        """Returns a figure's comparison from both estimates and their ratio."""
        says = verdict(found, higher_is_better=metric.higher_is_better)
        a, b = (None if e is None else e.value for e in (base, new))
        if found is None:
            return cls(metric.key, a, b, None, None, says)
        return cls(metric.key, a, b, found.value, found.interval, says, found.log_error, found.freedom)


class CellCompared(msgspec.Struct, frozen=True, kw_only=True):
    """One matrix point under one pair of presets; `doubt` says why its figures count for nothing, where they do."""

    preset_a: str
    preset_b: str
    point: Point
    metrics: tuple[Compared, ...]
    doubt: str = ""


class PassRates(msgspec.Struct, frozen=True, kw_only=True):
    """Pass rates of one problem set: shares, the difference B - A with its 95 % interval, and what it means."""

    preset_a: str
    preset_b: str
    problem_set: str
    a: float
    b: float
    difference: float
    interval: Interval
    verdict: Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        summary: geometric means over the cells that count, one for each figure.
        counts: verdicts on throughput in the cells that count.
        left_out: cells without a pair, in words.
    """

    a: str
    b: str
    conditions: tuple[Difference, ...]
    cells: tuple[CellCompared, ...]
    summary: tuple[Compared, ...]
    counts: dict[str, int]
    evals: tuple[PassRates, ...]
    left_out: tuple[str, ...]
    simulated: bool = False


def open_side(sessions_dir: Path, text: str) -> Side:
    """Opens what the command line calls `SESSION` or `SESSION:PRESET`.

    Raises:
        SessionNotFound: no such session, or no such preset in it.
    """
    try:
        return Side(open_session(find(sessions_dir, text)))
    except SessionNotFound:
        name, colon, preset = text.rpartition(":")
        if not colon or not name:
            raise
    session = open_session(find(sessions_dir, name))
    if preset not in session.state.presets:
        known = ", ".join(printable(p) for p in session.state.presets)
        raise SessionNotFound(f"{session.name} has no preset {printable(preset)!r}; it has {known}")
    return Side(session, preset)


def compare(a: Side, b: Side) -> Comparison:
    """Compares B with A.

    Raises:
        SessionError: nothing can be paired.
    """
    pairs = _pairs(a, b)
    points_a, points_b = points_of(a.session.state), points_of(b.session.state)
    cells: list[CellCompared] = []
    left_out: list[str] = []
    for preset_a, preset_b in pairs:
        mine = {point: cells for (preset, point), cells in points_a.items() if preset == preset_a}
        other = {point: cells for (preset, point), cells in points_b.items() if preset == preset_b}
        for point in sorted(mine.keys() | other.keys()):
            one, two = mine.get(point), other.get(point)
            where = f"{preset_b if preset_a == preset_b else f'{preset_a} / {preset_b}'} {point.text}"
            if one is None or two is None:
                left_out.append(f"{where}: only in {'B' if one is None else 'A'}")
            elif not one.figures or not two.figures:
                lacking = [f"{c.no_figures} in {s}" for c, s in ((one, "A"), (two, "B")) if not c.figures]
                left_out.append(f"{where}: {', '.join(lacking)}")
            else:
                cells.append(_cell(preset_a, preset_b, point, one, two))
    left_out += _unpaired(a, b, pairs)
    counted = [c for c in cells if not c.doubt]
    return Comparison(
        a=a.name,
        b=b.name,
        conditions=tuple(differing_conditions(a.session, b.session, pairs)),
        cells=tuple(cells),
        summary=tuple(s for metric in METRICS if (s := _summary(metric, counted)) is not None),
        counts=dict(Counter(m.verdict for c in counted for m in c.metrics if m.metric == THROUGHPUT.key)),
        evals=tuple(_pass_rates(a, b, pairs)),
        left_out=tuple(left_out),
        simulated=a.session.state.simulated or b.session.state.simulated,
    )


def _pairs(a: Side, b: Side) -> list[tuple[str, str]]:
    """Says which preset of A is held against which of B: those named, those of the same name, or the only ones."""
    names_a = [a.preset] if a.preset else list(a.session.state.presets)
    names_b = [b.preset] if b.preset else list(b.session.state.presets)
    if len(names_a) == 1 and len(names_b) == 1:
        return [(names_a[0], names_b[0])]
    shared = [(name, name) for name in names_a if name in names_b]
    if not shared:
        raise SessionError(
            f"{a.name} and {b.name} share no preset; name one of each as SESSION:PRESET (A has "
            f"{', '.join(map(printable, names_a)) or 'none'}; B has {', '.join(map(printable, names_b)) or 'none'})"
        )
    return shared


def _unpaired(a: Side, b: Side, pairs: list[tuple[str, str]]) -> Iterator[str]:
    for side, word, index in ((a, "A", 0), (b, "B", 1)):
        if side.preset is None:
            used = {pair[index] for pair in pairs}
            yield from (f"preset {printable(p)}: only in {word}" for p in side.session.state.presets if p not in used)


def _cell(preset_a: str, preset_b: str, point: Point, one: PointCells, two: PointCells) -> CellCompared:
    metrics = tuple(_metric(metric, one, two) for metric in METRICS)
    doubt = "; ".join(f"in {word}: {cells.void}" for cells, word in ((one, "A"), (two, "B")) if cells.void)
    return CellCompared(preset_a=preset_a, preset_b=preset_b, point=point, metrics=metrics, doubt=doubt)


def _metric(metric: Metric, one: PointCells, two: PointCells) -> Compared:
    base, new = one.estimate(metric), two.estimate(metric)
    found: Ratio | None = None
    if base is not None and new is not None and _same_kind(metric, one, two):
        found = ratio(new, base)
    return Compared.of(metric, base, new, found)


def _same_kind(metric: Metric, one: PointCells, two: PointCells) -> bool:
    """Acceptance lengths from different sources are different figures."""
    if metric.key != "acceptance_length":
        return True
    sources = [{f.acceptance_source for f in c.figures if f.acceptance_length is not None} for c in (one, two)]
    return sources[0] == sources[1]


def _summary(metric: Metric, cells: list[CellCompared]) -> Compared | None:
    """Returns the geometric mean of a figure's ratios over cells, with the interval of independent cells."""
    ratios = [
        (Ratio(m.ratio, m.interval, m.log_error, m.freedom), 1.0)
        for c in cells
        for m in c.metrics
        if m.metric == metric.key and m.ratio is not None
    ]
    mean = geometric_mean(ratios)
    return None if mean is None else Compared.of(metric, None, None, mean)


def _pass_rates(a: Side, b: Side, pairs: list[tuple[str, str]]) -> Iterator[PassRates]:
    for preset_a, preset_b in pairs:
        others = {e.problem_set: e for e in b.session.state.presets[preset_b].evals}
        for one in a.session.state.presets[preset_a].evals:
            two = others.get(one.problem_set)
            if two is None or not one.judged or not two.judged:
                continue
            difference, interval = newcombe(one.passed, one.judged, two.passed, two.judged)
            says: Verdict = "same" if interval.lo <= 0 <= interval.hi else "better" if difference > 0 else "worse"
            yield PassRates(
                preset_a=preset_a,
                preset_b=preset_b,
                problem_set=one.problem_set,
                a=one.passed / one.judged,
                b=two.passed / two.judged,
                difference=difference,
                interval=interval,
                verdict=says,
            )


def newcombe(passed_a: int, n_a: int, passed_b: int, n_b: int) -> tuple[float, Interval]:
    """Returns the difference of two shares, B - A, with its 95 % interval.

    R. G. Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine
    17 (1998), method 10: from the two Wilson intervals.
    """
    a, b = passed_a / n_a, passed_b / n_b
    one, two = wilson_interval(passed_a, n_a), wilson_interval(passed_b, n_b)
    if one is None or two is None:
        raise ValueError("a share of nothing has no interval")
    down = math.hypot(b - two[0], one[1] - a)
    up = math.hypot(two[1] - b, a - one[0])
    return b - a, Interval(b - a - down, b - a + up)


def worst_loss(comparison: Comparison) -> float:
    """Returns by what share B's throughput is worse than A's, in its worst cell or over all; 0 when nowhere.

    Only verdicts of "worse" count, in cells that count: a difference that noise covers fails nothing.
    """
    of_cells = [m for c in comparison.cells if not c.doubt for m in c.metrics]
    found = [
        1 - m.ratio
        for m in (*of_cells, *comparison.summary)
        if m.metric == THROUGHPUT.key and m.verdict == "worse" and m.ratio is not None
    ]
    return max(found, default=0.0)


def share_of(text: str) -> float:
    """Reads a share as the command line gives it: `5%` or `0.05`.

    Raises:
        SessionError: it is neither.
    """
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise SessionError(f"{printable(text)!r} is no share: write 5% or 0.05")
    return value
