"""Student's t, and the interval of a ratio that a running cell can afford: light enough for every load process."""

from __future__ import annotations

import math
from collections.abc import Sequence

FEWEST_FOR_INTERVAL = 3  # of one or two requests nothing can be said about how much they scatter

# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_Z_975 = 1.959964


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t.

    From a table up to 30 degrees of freedom, beyond by the first two terms of the Cornish-Fisher expansion (right
    to four digits there).
    """
    if degrees < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, not {degrees}")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def ratio_half_width(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Half of the 95 % interval of a ratio of sums, as a share of the ratio; cheap enough for a running cell.

    By linearisation (the delta method) with Student's t, which needs one pass and no resampling.

    Returns:
        The share, or `None` with fewer than 3 pairs or a ratio of 0.
    """
    n = len(numerators)
    total_n, total_d = math.fsum(numerators), math.fsum(denominators)
    if n < FEWEST_FOR_INTERVAL or total_n <= 0 or total_d <= 0:
        return None
    ratio = total_n / total_d
    scatter = math.fsum((a - ratio * b) ** 2 for a, b in zip(numerators, denominators, strict=True)) / (n - 1)
    return t_quantile(n - 1) * math.sqrt(n * scatter) / total_n
