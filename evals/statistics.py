"""Shares and their uncertainty: Wilson's interval, pass@k, Fisher's exact test."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt

Z_95 = 1.959963984540054
"""Two-sided 95 % point of the standard normal distribution."""


def wilson_interval(passed: int, n: int) -> tuple[float, float] | None:
    """Returns the 95 % Wilson score interval of a share, or `None` without trials (Wilson 1927).

    Unlike the normal approximation it stays inside [0, 1] and is not empty at 0 of n and n of n.
    """
    if n <= 0:
        return None
    share = passed / n
    z2 = Z_95 * Z_95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return (0.0 if passed == 0 else centre - half, 1.0 if passed == n else centre + half)


def pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float | None:
    """Returns the unbiased pass@k: the mean over problems of 1 - C(n - c, k) / C(n, k) (Chen et al. 2021).

    Args:
        counts: (samples n, passed c) of each problem; problems with fewer than `k` samples are left out.
        k: number of answers of which one must pass.
    """
    shares = [1 - comb(n - c, k) / comb(n, k) for n, c in counts if n >= k]
    return sum(shares) / len(shares) if shares else None


def fisher_lower(passed: int, n: int, other_passed: int, other_n: int) -> float:
    """Returns the one-sided p-value that the first share is as low as it is by chance (Fisher's exact test)."""
    total, passes = n + other_n, passed + other_passed
    everything = comb(total, n)
    return sum(comb(passes, i) * comb(total - passes, n - i) for i in range(passed + 1)) / everything
