"""Small graphs as text: one colour, no axis of their own; braille where the font has it, blocks elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from tui.glyphs import Glyphs

_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille cell's left and right column, from the bottom up."""


_BRAILLE = [
    [chr(0x2800 + sum(_DOTS[0][:left]) + sum(_DOTS[1][:right])) if left or right else " " for right in range(5)]
    for left in range(5)
]
"""The sign for a height (0 to 4) in the left and in the right column of a cell."""
HOLD_S = 2.5
"""Seconds for which a reading stands for those that did not come."""


def resample(values: Sequence[float | None], points: int) -> list[float | None]:
    """Returns the newest values as exactly so many points, the newest last; missing ones at the front are `None`."""
    kept = list(values[-points:])
    return [None] * (points - len(kept)) + kept


def by_time(
    times: Sequence[float], series: Sequence[Sequence[float | None]], window_s: float, points: int
) -> list[list[float | None]]:
    """Returns of each series the last `window_s` seconds as so many points, each the mean of what falls into it.

    The points' borders are fixed moments, so that a graph moves on once a point and stands still in between. A value
    holds for `HOLD_S` seconds, because readings once a second do not fall into every point of a second.

    Args:
        times: seconds, ascending.
        series: values at those times; any number of them.
        window_s: seconds that all points together stand for.
        points: how many.
    """
    if not times or points <= 0:
        return [[None] * max(0, points) for _ in series]
    each = window_s / points
    border = int(times[-1] // each) - points + 1
    places = [int(t // each) - border for t in times]
    return [_means(places, values, points, max(1, int(HOLD_S / each))) for values in series]


def _means(places: Sequence[int], values: Sequence[float | None], points: int, hold: int) -> list[float | None]:
    sums = [0.0] * points
    counts = [0] * points
    for place, value in zip(places, values, strict=True):
        if value is not None and 0 <= place < points:
            sums[place] += value
            counts[place] += 1
    out: list[float | None] = []
    known: float | None = None
    held = 0
    for total, count in zip(sums, counts, strict=True):
        if count:
            known, held = total / count, 0
        else:
            held += 1
            known = known if held <= hold else None
        out.append(known)
    return out


def area(
    values: Sequence[float | None],
    cells: int,
    rows: int,
    glyphs: Glyphs,
    *,
    top: float | None = None,
) -> list[str]:
    """Returns a filled graph of the newest values, `rows` strings of `cells` characters, the top row first.

    Args:
        values: oldest first; `None` leaves a gap.
        cells: width.
        rows: height.
        glyphs: decides between braille (two values a cell) and blocks (one).
        top: the value of a full column; the highest value by default. The bottom is always 0.
    """
    if cells <= 0 or rows <= 0:
        return []
    per_cell = 2 if glyphs.braille else 1
    points = resample(values, cells * per_cell)
    highest = top if top is not None else max((v for v in points if v is not None), default=0.0)
    if highest <= 0:
        highest = 1.0
    steps = 4 if glyphs.braille else len(glyphs.columns)
    full = rows * steps
    scale = full / highest
    heights = [0 if v is None or v <= 0 else full if v >= highest else int(v * scale + 0.5) or 1 for v in points]
    if not glyphs.braille:
        return [
            "".join(_column(height - floor, glyphs.columns) for height in heights)
            for floor in range(full - steps, -1, -steps)
        ]
    out: list[str] = []
    for floor in range(full - steps, -1, -steps):
        levels = [0 if h <= floor else min(4, h - floor) for h in heights]
        pairs = zip(levels[::2], levels[1::2], strict=True)
        out.append("".join(_BRAILLE[left][right] for left, right in pairs))
    return out


def _column(level: int, signs: str) -> str:
    return signs[min(level, len(signs)) - 1] if level > 0 else " "


def bar(share: float | None, cells: int, glyphs: Glyphs) -> str:
    """Returns a horizontal bar of a share (0 to 1) in so many cells; the rest is blank."""
    if cells <= 0:
        return ""
    if share is None:
        return " " * cells
    steps = len(glyphs.bar)
    filled = round(max(0.0, min(1.0, share)) * cells * steps)
    whole, part = divmod(filled, steps)
    text = glyphs.bar[-1] * whole + (glyphs.bar[part - 1] if part else "")
    return text + " " * (cells - len(text))


def progress(share: float, cells: int, glyphs: Glyphs) -> tuple[str, str]:
    """Returns what is done and what is left of a share (0 to 1), as two stretches of so many cells together."""
    filled = max(0, min(cells, round(share * cells)))
    return glyphs.done * filled, glyphs.rule * (cells - filled)


def heat(value: float, low: float, high: float, glyphs: Glyphs) -> tuple[str, int]:
    """Returns the sign and the level (1 to 4) of a value between the lowest and the highest of its matrix."""
    share = 1.0 if high <= low else (value - low) / (high - low)
    share = max(0.0, min(1.0, share))
    sign = glyphs.heat[min(len(glyphs.heat) - 1, int(share * len(glyphs.heat)))]
    return sign, 1 + min(3, int(share * 4))
