"""Percentiles and intervals."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import stats, student
from loadgen.figures import Percentiles


def test_percentiles_interpolate_between_ranks() -> None:
    found = stats.percentiles([float(i) for i in range(101)])
    assert (found.p50, found.p90, found.p99, found.n, found.p99_is_max) == (50.0, 90.0, 99.0, 101, False)
    assert stats.percentile([1.0, 2.0], 25) == 1.25
    assert stats.percentile([], 50) is None


def test_p99_of_fewer_than_a_hundred_is_the_maximum() -> None:
    found = stats.percentiles([float(i) for i in range(99)])
    assert found.p99 == 98.0
    assert found.p99_is_max


def test_what_is_not_finite_is_no_sample() -> None:
    assert stats.percentiles([math.nan, math.inf]) == Percentiles()
    assert stats.percentiles([math.nan, 3.0]).n == 1


def test_repeats_weigh_values() -> None:
    assert stats.percentiles([1.0, 5.0], repeats=[3, 1]) == stats.percentiles([1.0, 1.0, 1.0, 5.0])


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (4, 2.776), (30, 2.042), (31, 2.0395), (60, 2.0003), (1000, 1.9623)]
)
def test_quantiles_of_student(degrees: int, quantile: float) -> None:
    assert student.t_quantile(degrees) == pytest.approx(quantile, abs=6e-4)


def test_no_quantile_without_freedom() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        student.t_quantile(0)


def test_nothing_is_said_of_two_requests() -> None:
    assert stats.bootstrap_median([1.0, 2.0]) is None
    assert stats.bootstrap_ratio([1.0, 2.0], [1.0, 1.0]) is None
    assert stats.bootstrap_ratio([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]) is None
    assert student.ratio_half_width([1.0, 2.0], [1.0, 1.0]) is None


def test_same_seed_same_interval() -> None:
    rng = random.Random(1)
    values = [rng.gauss(10, 1) for _ in range(50)]
    assert stats.bootstrap_median(values, seed=3) == stats.bootstrap_median(values, seed=3)
    assert stats.bootstrap_median(values, seed=3) != stats.bootstrap_median(values, seed=4)
    ones = [1.0] * 50
    assert stats.bootstrap_ratio(values, ones, seed=3) == stats.bootstrap_ratio(values, ones, seed=3)


@given(st.lists(st.floats(0.1, 100.0), min_size=3, max_size=60), st.integers(0, 5))
def test_intervals_stay_within_what_was_seen(values: list[float], seed: int) -> None:
    median = stats.bootstrap_median(values, seed=seed)
    ratio = stats.bootstrap_ratio(values, [1.0] * len(values), seed=seed)
    assert median is not None
    assert ratio is not None
    for interval in (median, ratio):
        assert min(values) * (1 - 1e-9) <= interval.lo <= interval.hi <= max(values) * (1 + 1e-9)


@pytest.mark.parametrize("n", [4, 8, 40])
@pytest.mark.parametrize("figure", ["median", "ratio"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(n: int, figure: str) -> None:
    """95 % is meant; few requests make it less, and the widening keeps it from falling far below."""
    rng = random.Random(n)
    tries, held = 300, 0
    for seed in range(tries):
        values = [rng.gauss(10.0, 2.0) for _ in range(n)]
        if figure == "median":
            interval = stats.bootstrap_median(values, seed=seed)
        else:
            interval = stats.bootstrap_ratio(values, [1.0] * n, seed=seed)
        assert interval is not None
        held += interval.lo <= 10.0 <= interval.hi
    assert held / tries >= 0.86


def test_quick_half_width_agrees_with_the_bootstrap() -> None:
    rng = random.Random(5)
    seconds = [rng.uniform(1.0, 3.0) for _ in range(200)]
    tokens = [s * rng.gauss(50.0, 5.0) for s in seconds]
    quick = student.ratio_half_width(tokens, seconds)
    slow = stats.bootstrap_ratio(tokens, seconds)
    assert quick is not None
    assert slow is not None
    assert quick == pytest.approx((slow.hi - slow.lo) / (slow.hi + slow.lo), rel=0.2)
