"""Numbers about numbers: percentiles, and confidence intervals by seeded bootstrap.

The only module of the load generator that uses numpy: 1,000 resamples of thousands of requests take milliseconds
with it and the better part of a second without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loadgen.figures import Interval, Percentiles
from loadgen.student import FEWEST_FOR_INTERVAL, t_quantile

RESAMPLES = 1_000
FEWEST_FOR_P99 = 100  # below this many samples, the 99th percentile is shown as the maximum
_RESAMPLE_DRAWS = 1_000_000  # indices drawn at once: bounds the memory of a bootstrap over many requests


def percentile(values: Sequence[float], q: float) -> float | None:
    """The `q`-th percentile (0 to 100) by linear interpolation between the closest ranks; `None` of no values."""
    if not values:
        return None
    return float(np.percentile(np.asarray(values, dtype=np.float64), q))


def percentiles(values: Sequence[float], repeats: Sequence[int] | None = None) -> Percentiles:
    """Percentiles of the finite ones among `values`.

    Args:
        values: samples, in any order.
        repeats: how many samples each value stands for; one each where not given.

    Returns:
        p50, p90 and p99; with fewer than 100 samples p99 is the maximum, and says so.
    """
    samples = np.asarray(values, dtype=np.float64)
    if repeats is not None:
        samples = np.repeat(samples, np.asarray(repeats, dtype=np.int64))
    samples = samples[np.isfinite(samples)]
    if samples.size == 0:
        return Percentiles()
    few = samples.size < FEWEST_FOR_P99
    p50, p90, p99 = (float(x) for x in np.percentile(samples, (50.0, 90.0, 99.0)))
    return Percentiles(p50=p50, p90=p90, p99=float(samples.max()) if few else p99, n=int(samples.size), p99_is_max=few)


def bootstrap_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, scale: float = 1.0, seed: int = 0
) -> Interval | None:
    """95 % interval of `scale` x (sum of numerators / sum of denominators), resampling the pairs.

    Args:
        numerators: one per request, such as its tokens in the window.
        denominators: one per request, such as its seconds in the window.
        scale: factor applied to the ratio.
        seed: makes the resamples reproducible.

    Returns:
        The interval, or `None` with fewer than 3 pairs or nothing to divide by.
    """
    n = len(numerators)
    if n < FEWEST_FOR_INTERVAL:
        return None
    pairs = np.column_stack((np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)))
    rng = np.random.default_rng(seed)
    sums = np.empty((RESAMPLES, 2))
    at_once = max(1, min(RESAMPLES, _RESAMPLE_DRAWS // n))
    for first in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - first)
        drawn = rng.integers(0, n, size=(rows, n), dtype=np.int32)
        drawn += (np.arange(rows, dtype=np.int32) * n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        sums[first : first + rows] = counts @ pairs
    usable = sums[:, 1] > 0
    if not usable.any():
        return None
    return _expanded_interval(scale * sums[usable, 0] / sums[usable, 1], n)


def bootstrap_median(values: Sequence[float], *, seed: int = 0) -> Interval | None:
    """95 % interval of the median, by bootstrap.

    The median of a resample is an order statistic of the sample whose rank follows from the middle order statistic
    of as many uniform numbers (a Beta variable), so each resample is drawn in one step instead of `n`.

    Returns:
        The interval, or `None` with fewer than 3 values.
    """
    n = len(values)
    if n < FEWEST_FOR_INTERVAL:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    rng = np.random.default_rng(seed)
    middle = (n + 1) // 2
    low = rng.beta(middle, n - middle + 1, size=RESAMPLES)
    medians = ordered[_ranks(low, n)]
    if n % 2 == 0:
        high = low + (1.0 - low) * rng.beta(1, n - middle, size=RESAMPLES)
        medians = (medians + ordered[_ranks(high, n)]) / 2.0
    return _expanded_interval(medians, n)


def _ranks(uniform: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    return np.clip((uniform * n).astype(np.int64), 0, n - 1)


def _expanded_interval(resampled: NDArray[np.float64], n: int) -> Interval:
    """Percentile interval, widened for few requests.

    The plain percentile interval of a small sample is too narrow (it misses the factor sqrt(n / (n - 1)) and the
    longer tails of Student's t). Taking the percentiles further out by just that makes up for it (T. Hesterberg, "What
    teachers should know about the bootstrap", 2015, section 5.3).
    """
    reach = math.sqrt(n / (n - 1)) * t_quantile(n - 1)
    tail = 50.0 * math.erfc(reach / math.sqrt(2.0))
    lo, hi = np.percentile(resampled, (tail, 100.0 - tail))
    return Interval(float(lo), float(hi))
