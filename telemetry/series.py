"""Readings over time to one number: how much a counter rose, what a gauge was on average. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

MAX_BRIDGE_S = 5.0
"""An edge between two samples further apart is not read off a line: the window is cut to the sample inside."""
MIN_COVERAGE = 0.9
"""Energy over less than this share of the window is no figure."""


class Point(NamedTuple):
    """A value at a time in seconds."""

    t: float
    value: float


def counter_rise(points: Sequence[Point], start: float, end: float, *, always_rises: bool = False) -> Point | None:
    """Returns how much a counter rose inside a window, as (seconds covered, rise).

    For a counter that always rises, a reading that repeats the one before is an old one (exporters refresh every
    some seconds), so only changes count there. `None` when the counter fell, or when less than `MIN_COVERAGE` of the
    window is covered.
    """
    fresh: list[Point] = []
    for point in points:
        if fresh and point.value < fresh[-1].value and point.t > start and fresh[-1].t < end:
            return None
        if not (always_rises and fresh and point.value == fresh[-1].value):
            fresh.append(point)
    first, last = _edge(fresh, start, later=True), _edge(fresh, end, later=False)
    if first is None or last is None or last.t <= first.t:
        return None
    if last.t - first.t < MIN_COVERAGE * (end - start):
        return None
    return Point(last.t - first.t, last.value - first.value)


def mean_over_time(points: Sequence[Point], start: float, end: float) -> float | None:
    """Returns a gauge's mean: each reading holds for half the way to its neighbours, inside the window."""
    inside = [point for point in points if start <= point.t <= end]
    if not inside:
        return None
    if len(inside) == 1 or end <= start:
        return math.fsum(point.value for point in inside) / len(inside)
    borders = [start, *((a.t + b.t) / 2 for a, b in itertools.pairwise(inside)), end]
    parts = [point.value * (right - left) for point, left, right in zip(inside, borders, borders[1:], strict=False)]
    return math.fsum(parts) / (end - start)


def _edge(points: Sequence[Point], at: float, *, later: bool) -> Point | None:
    """Returns the counter at a window's edge: on the line between two near samples, else the nearest sample inside."""
    before = next((point for point in reversed(points) if point.t <= at), None)
    after = next((point for point in points if point.t >= at), None)
    if before is not None and after is not None and after.t - before.t <= MAX_BRIDGE_S:
        if after.t == before.t:
            return before
        share = (at - before.t) / (after.t - before.t)
        return Point(at, before.value + share * (after.value - before.value))
    return after if later else before
