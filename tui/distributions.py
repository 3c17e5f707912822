"""Distributions and time lines of a cell's requests, as lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadgen.figures import CellFigures
from loadgen.records import RequestRecord
from tui.draw import Line, Span, line, title
from tui.graph import area
from tui.view import Facts
from tui.words import duration, left, number, right


def decode_speeds(records: Sequence[RequestRecord]) -> list[float]:
    """Returns tokens a second of each stream after its first chunk, where that is defined."""
    out: list[float] = []
    for r in records:
        if r.n_out is None or r.ttft is None or r.e2e is None or r.e2e <= r.ttft:
            continue
        later = r.n_out - (r.n_first if r.n_first is not None else 1)
        if later > 0:
            out.append(later / (r.e2e - r.ttft))
    return out


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns a quantile of ascending values by linear interpolation."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread_lines(facts: Facts, values: Sequence[float], cells: int) -> list[Line]:
    """Returns a histogram of values between their 0.5th and 99.5th percentile, its scale, and the percentiles."""
    g = facts.glyphs
    ordered = sorted(values)
    low, high = quantile(ordered, 0.005), quantile(ordered, 0.995)
    width = max(10, min(100, cells - 4))
    dots = width * (2 if g.braille else 1)
    bins = min(dots, max(8, round(2.5 * math.sqrt(len(ordered)))))
    counts = [0.0] * bins
    if high > low:
        for value in ordered:
            if low <= value <= high:
                counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    else:
        counts[bins // 2] = float(len(ordered))
    out = [
        line(Span("  "), Span(row, "graph"))
        for row in area([counts[i * bins // dots] for i in range(dots)], width, 3, g)
    ]
    first, last = number(low), number(high)
    out.append(line(Span(f"  {left(first, width - len(last), g)}{last}", "muted")))
    few = len(ordered) < 100
    places = (("p50", 0.5), ("p90", 0.9), ("maximum", 1.0) if few else ("p99", 0.99))
    marks = "  ".join(f"{name} {number(quantile(ordered, at))}" for name, at in places)
    out.append(line(Span(f"  {marks}{'  (fewer than 100 values: no p99)' if few else ''}")))
    return out


def timeline(facts: Facts, figures: Sequence[CellFigures], records: Sequence[RequestRecord], cells: int) -> list[Line]:
    """Returns tok/s over the cell's time with its phases below: ramp, steady, tail."""
    g = facts.glyphs
    pieces = [(r.t_send + c.t, _tokens(r, i)) for r in records for i, c in enumerate(r.chunks)]
    starts = [r.t_send for r in records]
    if not pieces:
        return []
    begin, end = min(starts), max(t for t, _ in pieces)
    span = end - begin
    if span <= 0:
        return []
    width = max(10, min(120, cells - 14))
    dots = width * (2 if g.braille else 1)
    each = span / dots
    sums = [0.0] * dots
    for t, tokens in pieces:
        sums[min(dots - 1, max(0, int((t - begin) / each)))] += tokens
    rates: list[float | None] = [s / each for s in sums]
    top = max(r for r in rates if r is not None)
    out = [title(f" tok/s over the cell's {duration(span)}", cells, g)]
    graph = area(rates, width, 4, g)
    out.extend(
        line(Span(right(number(top) if i == 0 else "", 8, g), "muted"), Span(f" {row}", "graph"))
        for i, row in enumerate(graph)
    )
    f = figures[-1] if figures else None
    if f is not None and f.steady_start_t is not None and f.steady_end_t is not None:
        a = max(0, min(width, round((f.steady_start_t - begin) / span * width)))
        b = max(a, min(width, round((f.steady_end_t - begin) / span * width)))
        phases = [
            Span(_phase("ramp", a, g.waiting), "muted"),
            Span(_phase("steady", b - a, g.done), "accent"),
            Span(_phase("tail", width - b, g.waiting), "muted"),
        ]
        out.append(line(Span(" " * 9), *phases))
        words = f"ramp {duration(f.ramp_s)}, steady {duration(f.steady_s)} (the headline is over this part), tail "
        out.append(line(Span(f"         {words}{duration(f.tail_s)}", "muted")))
    return out


def _phase(name: str, cells: int, fill: str) -> str:
    if cells <= 0:
        return ""
    words = f" {name} "
    if cells < len(words) + 2:
        return fill * cells
    before = (cells - len(words)) // 2
    return fill * before + words + fill * (cells - len(words) - before)


def _tokens(record: RequestRecord, place: int) -> float:
    known = record.chunks[place].tokens
    if known is not None:
        return float(known)
    return (record.n_out or 0) / len(record.chunks)
