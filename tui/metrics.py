"""The figures a matrix can show, one at a time: where each is found, its unit, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from loadgen.figures import CellFigures, Interval, MarkKind


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure of a cell.

    Attributes:
        name: as it stands at the matrix's corner.
        words: one sentence for the help screen.
        value: the figure, in the shown unit, or `None`.
        half: half of its 95 % interval in the same unit, or `None`.
        higher_is_better: decides what the heat calls good.
        relative: the figure is a difference from the reference preset.
    """

    name: str
    words: str
    value: Callable[[CellFigures], float | None]
    half: Callable[[CellFigures], float | None]
    higher_is_better: bool = True
    relative: bool = False


def half_of(interval: Interval | None, scale: float = 1.0) -> float | None:
    """Returns half of an interval's length, scaled to a unit."""
    return None if interval is None else (interval.hi - interval.lo) / 2 * scale


def _none(_: CellFigures) -> float | None:
    return None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


THROUGHPUT = Metric(
    name="tok/s",
    words="output tokens delivered a second in the steady window, all users together",
    value=lambda f: f.throughput_tok_s,
    half=lambda f: half_of(f.throughput_ci95),
)
ACCEPTANCE = Metric(
    name="accept",
    words="acceptance length: tokens a verify step, the bonus token included",
    value=lambda f: f.acceptance_length,
    half=lambda f: half_of(f.acceptance_ci95),
)
PER_USER = Metric(
    name="tok/s·user",
    words="median decode speed of one user's stream",
    value=lambda f: f.decode_tok_s.p50,
    half=lambda f: half_of(f.decode_ci95),
)
TTFT_P50 = Metric(
    name="TTFT p50 ms",
    words="median time to the first token, milliseconds",
    value=lambda f: _ms(f.ttft_s.p50),
    half=lambda f: half_of(f.ttft_ci95, 1000),
    higher_is_better=False,
)
TTFT_P99 = Metric(
    name="TTFT p99 ms",
    words="99th percentile of the time to the first token; the maximum with fewer than 100 requests",
    value=lambda f: _ms(f.ttft_s.p99),
    half=_none,
    higher_is_better=False,
)
ENERGY = Metric(
    name="J/token",
    words="joules of all the server's GPUs an output token",
    value=lambda f: f.energy_j_per_tok,
    half=_none,
    higher_is_better=False,
)
AGAINST = Metric(
    name="% vs ref",
    words="throughput against the reference preset in the same cell, percent",
    value=lambda f: f.throughput_tok_s,
    half=lambda f: half_of(f.throughput_ci95),
    relative=True,
)
METRICS: tuple[Metric, ...] = (THROUGHPUT, PER_USER, TTFT_P50, TTFT_P99, ACCEPTANCE, ENERGY, AGAINST)


def against(
    value: float | None, half: float | None, ref: float | None, ref_half: float | None
) -> tuple[float | None, float | None]:
    """Returns a figure against a reference in percent, with the half-interval of the quotient (first order)."""
    if value is None or not ref:
        return None, None
    ratio = value / ref
    if half is None or ref_half is None:
        return (ratio - 1) * 100, None
    spread = abs(ratio) * math.hypot(half / value if value else 0.0, ref_half / ref)
    return (ratio - 1) * 100, spread * 100


MARK_LETTERS: dict[MarkKind, str] = {
    MarkKind.NOT_IN_EFFECT: "X",
    MarkKind.CLIENT_BOUND: "L",
    MarkKind.UNDER_RUN: "U",
    MarkKind.QUEUED: "Q",
    MarkKind.CACHE_HITS: "H",
    MarkKind.SHORT_OUTPUT: "O",
    MarkKind.SHORT_STEADY: "S",
    MarkKind.COLD: "C",
    MarkKind.THROTTLED: "T",
    MarkKind.ERRORS: "E",
    MarkKind.UNMEASURED: "?",
    MarkKind.DRAFTS_REJECTED: "R",
    MarkKind.NO_SPECULATION: "N",
    MarkKind.TAU_DROP: "A",
    MarkKind.DIVERGED: "D",
    MarkKind.FEW_SAMPLES: "F",
}
"""The letter beside a figure for each reason to doubt it; the help screen lists them, Enter gives the reason."""


def mark_letters(figures: CellFigures) -> str:
    """Returns the letters of all marks, the gravest kinds first (in the order of their definition)."""
    order = list(MARK_LETTERS)
    kinds = sorted({m.kind for m in figures.marks}, key=order.index)
    return "".join(MARK_LETTERS[k] for k in kinds)
