"""Shares and their uncertainty, against published and brute-force values."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.statistics import fisher_lower, pass_at_k, wilson_interval


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (81, 263, 0.2553, 0.3662),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilson(passed: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(passed, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_without_trials() -> None:
    assert wilson_interval(0, 0) is None


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share(counts: tuple[int, int]) -> None:
    interval = wilson_interval(*counts)
    assert interval is not None
    low, high = interval
    assert 0.0 <= low <= counts[0] / counts[1] <= high <= 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 4), (4, 0, 2), (4, 4, 2), (5, 4, 2)])
def test_pass_at_k_is_the_share_of_draws_with_a_pass(n: int, c: int, k: int) -> None:
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k([(n, c)], k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_leaves_out_what_has_too_few_samples() -> None:
    assert pass_at_k([(2, 2), (5, 0)], 3) == 0.0
    assert pass_at_k([(2, 2)], 3) is None


def test_fisher() -> None:
    assert fisher_lower(0, 5, 5, 5) == pytest.approx(1 / 252)
    assert fisher_lower(5, 5, 5, 5) == 1.0
    assert fisher_lower(1, 10, 11, 14) == pytest.approx(0.00137973, abs=1e-8)
