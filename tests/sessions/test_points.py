from __future__ import annotations

import math
import random

import pytest

from loadgen.figures import CellFigures, Interval, Mark, MarkKind
from loadgen.stats import t_quantile
from sessions.events import CellKey
from sessions.points import (
    ACCEPTANCE,
    THROUGHPUT,
    Estimate,
    Point,
    PointCells,
    Ratio,
    combined,
    geometric_mean,
    ratio,
    single,
    verdict,
)
from sessions.state import CellState
from tests.sessions.made import figures


def cells(*found: CellFigures | None) -> PointCells:
    key = CellKey(preset="p", context=60, concurrency=1)
    states = [
        CellState(key=key, status="measured" if f else "failed", figures=f, reason="" if f else "oom") for f in found
    ]
    return PointCells("p", Point(60, 1), tuple(states))


def test_three_repetitions_are_a_mean_with_students_t() -> None:
    found = cells(figures(100.0), figures(102.0), figures(104.0)).estimate(THROUGHPUT)
    assert found is not None
    half = t_quantile(2) * 2.0 / math.sqrt(3)
    assert found.value == pytest.approx(102.0)
    assert found.half == pytest.approx(half)


def test_three_that_fell_together_are_not_believed_to_be_exact() -> None:
    found = cells(figures(100.0), figures(100.0), figures(100.0)).estimate(THROUGHPUT)
    assert found is not None
    assert found.half == 0.0
    assert found.error == pytest.approx(1.5 / t_quantile(23) / math.sqrt(3))


def test_one_repetition_keeps_its_interval_and_doubts_itself() -> None:
    found = cells(figures(100.0)).estimate(THROUGHPUT)
    assert found is not None
    assert found.interval == figures(100.0).throughput_ci95
    assert found.error is not None
    assert found.error > 1.0  # what changes from run to run, which one run knows nothing of


def test_failed_repetitions_are_left_out_and_nothing_is_none() -> None:
    assert cells(figures(100.0), None).estimate(THROUGHPUT) == cells(figures(100.0)).estimate(THROUGHPUT)
    assert cells(None).estimate(THROUGHPUT) is None
    assert cells(None).void == "failed: oom"


def test_acceptance_is_a_ratio_of_sums() -> None:
    few = figures(100.0, acceptance=2.0)
    from msgspec.structs import replace

    many = replace(figures(100.0, acceptance=4.0), verify_steps=3000.0, committed_tokens=12_000.0)
    found = cells(few, many).estimate(ACCEPTANCE)
    assert found is not None
    assert found.value == pytest.approx(14_000 / 4000)


def test_acceptance_of_different_sources_is_not_averaged() -> None:
    from msgspec.structs import replace

    other = replace(figures(100.0, acceptance=9.0), acceptance_source="lifetime-mean")
    found = cells(figures(100.0, acceptance=4.0), other).estimate(ACCEPTANCE)
    assert found is not None
    assert found.value == 4.0


@pytest.mark.parametrize("kind", list(MarkKind))
def test_marks_that_void(kind: MarkKind) -> None:
    void = cells(figures(100.0, marks=(Mark(kind, "because"),))).void
    voiding = {"not-in-effect", "client-bound", "under-run", "cache-hits", "errors", "unmeasured", "no-speculation"}
    assert bool(void) == (kind.value in voiding | {"diverged"})
    assert "because" in void or not void


def test_ratio_has_an_interval_that_holds_the_truth() -> None:
    rng = random.Random(5)
    held = runs = 0
    for _ in range(400):
        parts = [
            combined([single(v, None, figures(v)) for v in (true * (1 + rng.gauss(0, 0.02)) for _ in range(4))])
            for true in (100.0, 110.0)
        ]
        base, new = parts
        assert base is not None
        assert new is not None
        found = ratio(new, base)
        assert found is not None
        assert found.interval is not None
        runs += 1
        held += found.interval.lo <= 1.1 <= found.interval.hi
    assert 0.92 <= held / runs <= 0.99


@pytest.mark.parametrize(
    ("value", "interval", "higher", "says"),
    [
        (1.10, Interval(1.05, 1.15), True, "better"),
        (1.10, Interval(1.05, 1.15), False, "worse"),
        (0.90, Interval(0.85, 0.95), True, "worse"),
        (1.10, Interval(0.99, 1.2), True, "same"),
        (1.005, Interval(1.004, 1.006), True, "same"),
        (1.10, None, True, "unknown"),
    ],
)
def test_verdicts(value: float, interval: Interval | None, higher: bool, says: str) -> None:
    assert verdict(Ratio(value, interval), higher_is_better=higher) == says


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio(Estimate(1.0), Estimate(0.0)) is None
    assert verdict(None, higher_is_better=True) == "unknown"


def test_geometric_mean_weighs() -> None:
    one, two = Ratio(2.0, None), Ratio(0.5, None)
    assert geometric_mean([(one, 1.0), (two, 1.0)]) == Ratio(1.0, None)
    weighted = geometric_mean([(one, 3.0), (two, 1.0)])
    assert weighted is not None
    assert weighted.value == pytest.approx(2.0**0.5)
    assert geometric_mean([]) is None
    assert geometric_mean([(one, 0.0)]) is None
