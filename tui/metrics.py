"""The figures a matrix can show, one at a time: which estimate each is, its unit on the screen, which way is better.

How repetitions are combined and estimates compared is `sessions/points.py`'s business, not this module's.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.figures import CellFigures, MarkKind
from sessions import points


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure of a cell.

    Attributes:
        name: as it stands at the matrix's corner.
        words: one sentence for the help screen.
        estimate: where the figure and its interval come from.
        scale: from the estimate's unit to the shown one.
        relative: the figure is shown as a difference from the reference preset, in percent.
    """

    name: str
    words: str
    estimate: points.Metric
    scale: float = 1.0
    relative: bool = False

    @property
    def higher_is_better(self) -> bool:
        """Which way is better."""
        return self.estimate.higher_is_better


_P99 = points.Metric("ttft_p99_s", "TTFT p99 s", False, lambda f: f.ttft_s.p99, lambda _: None)

THROUGHPUT = Metric(
    name="tok/s",
    words="output tokens delivered a second in the steady window, all users together",
    estimate=points.THROUGHPUT,
)
PER_USER = Metric(name="t/s user", words="median decode speed of one user's stream", estimate=points.PER_USER)
TTFT_P50 = Metric(name="TTFT p50 ms", words="median time to the first token", estimate=points.TTFT, scale=1000)
TTFT_P99 = Metric(
    name="TTFT p99 ms",
    words="99th percentile of the time to the first token; with fewer than 100 requests its maximum, signed ^",
    estimate=_P99,
    scale=1000,
)
ACCEPTANCE = Metric(
    name="accept",
    words="acceptance length: tokens a verify step, the bonus token included",
    estimate=points.ACCEPTANCE,
)
ENERGY = Metric(
    name="J/token", words="joules of all the server's GPUs an output token, from their counters", estimate=points.ENERGY
)
AGAINST = Metric(
    name="% vs ref",
    words="throughput against the reference preset in the same cell, percent; = where noise covers it",
    estimate=points.THROUGHPUT,
    relative=True,
)
METRICS: tuple[Metric, ...] = (THROUGHPUT, PER_USER, TTFT_P50, TTFT_P99, ACCEPTANCE, ENERGY, AGAINST)

MARK_LETTERS: dict[MarkKind, str] = {
    MarkKind.NOT_IN_EFFECT: "X",
    MarkKind.CLIENT_BOUND: "L",
    MarkKind.UNDER_RUN: "U",
    MarkKind.CACHE_HITS: "H",
    MarkKind.ERRORS: "E",
    MarkKind.UNMEASURED: "M",
    MarkKind.NO_SPECULATION: "N",
    MarkKind.DIVERGED: "D",
    MarkKind.DRAFTS_REJECTED: "R",
    MarkKind.TAU_DROP: "A",
    MarkKind.QUEUED: "Q",
    MarkKind.THROTTLED: "T",
    MarkKind.SHORT_OUTPUT: "O",
    MarkKind.SHORT_STEADY: "S",
    MarkKind.COLD: "C",
    MarkKind.SERVER_UNDER_RUN: "V",
    MarkKind.GPU_LOST: "G",
    MarkKind.GRAPH_MISSED: "B",
    MarkKind.FEW_SAMPLES: "F",
}
"""The letter beside a figure for each reason to doubt it, the gravest first; Enter gives the reason."""


def mark_letters(figures: CellFigures) -> str:
    """Returns the letters of all marks, the gravest kinds first; a kind without a letter of its own is "?"."""
    kinds = {m.kind for m in figures.marks}
    known = "".join(letter for kind, letter in MARK_LETTERS.items() if kind in kinds)
    return known + ("?" if any(k not in MARK_LETTERS for k in kinds) else "")
