"""Lines of text with roles, the one thing every widget is drawn from: plain values, made by pure functions.

A role names what a piece of text means ("good", "muted", "heat3"); the style sheet says how that looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tui.glyphs import UTF8, Glyphs
from tui.words import cut, width

ROLES = (
    "muted",
    "head",
    "strong",
    "good",
    "warn",
    "bad",
    "accent",
    "graph",
    "sim",
    "cursor",
    "key",
    "picked",
    "heat1",
    "heat2",
    "heat3",
    "heat4",
)
"""Every role there is, beside "" for plain text."""


_NARROW = re.compile("[ -~\u2800-\u28ff\u2580-\u259f\u2500-\u257f]*")
_SEEN_ON_TEXT_ONLY = frozenset({"", *ROLES}) - {"cursor", "key", "sim", "picked"}
"""Roles whose look does not show on a blank."""


class Span(NamedTuple):
    """A piece of a line: text of one role."""

    text: str
    role: str = ""


Line = tuple[Span, ...]
"""One line of a widget; of any width, cut or filled when drawn."""


def line(*parts: Span | str) -> Line:
    """Returns a line of its parts; empty ones are left out."""
    return tuple(p if isinstance(p, Span) else Span(p) for p in parts if (p.text if isinstance(p, Span) else p))


def line_width(of: Line) -> int:
    """Returns the cells a line takes."""
    return sum(width(s.text) for s in of)


def fit(of: Line, cells: int, glyphs: Glyphs = UTF8) -> Line:
    """Returns a line of exactly so many cells: cut at a whole character, or filled with blanks."""
    out: list[Span] = []
    room = cells
    for span in of:
        taken = width(span.text)
        if taken <= room:
            out.append(span)
            room -= taken
            continue
        if room > 0 and (text := cut(span.text, room, glyphs)):
            out.append(Span(text, span.role))
            room -= width(text)
        break
    if room > 0:
        out.append(Span(" " * room))
    return tuple(out)


def merged(of: Line) -> Line:
    """Returns a line with neighbouring spans of one role made one; blanks take their neighbour's role where alike."""
    out: list[Span] = []
    for span in of:
        if out and (out[-1].role == span.role or (span.text.isspace() and out[-1].role in _SEEN_ON_TEXT_ONLY)):
            out[-1] = Span(out[-1].text + span.text, out[-1].role)
        else:
            out.append(span)
    return tuple(out)


def sides(left: Line, right: Line, cells: int, glyphs: Glyphs = UTF8) -> Line:
    """Returns a line with one part at each end; the right one is kept whole, the left one cut."""
    room = cells - line_width(right)
    if room < 1:
        return fit(right, cells, glyphs)
    return (*fit(left, room, glyphs), *right)


def beside(columns: Sequence[tuple[Sequence[Line], int]], height: int, glyphs: Glyphs = UTF8) -> list[Line]:
    """Returns blocks of lines side by side, each in its width, filled to a height."""
    out: list[Line] = []
    for y in range(height):
        row: list[Span] = []
        for lines, cells in columns:
            row.extend(fit(lines[y] if y < len(lines) else (), cells, glyphs))
        out.append(tuple(row))
    return out


def text_of(lines: Iterable[Line]) -> str:
    """Returns lines as plain text, blanks at their ends removed; for files, the clipboard and tests."""
    return "\n".join("".join(s.text for s in row).rstrip() for row in lines)


def title(words: str, cells: int, glyphs: Glyphs = UTF8) -> Line:
    """Returns a panel's heading: its words, then a rule to the end."""
    words = cut(words, cells, glyphs)
    rest = cells - width(words) - 1
    return line(Span(words, "head"), Span(" " + glyphs.rule * rest, "muted") if rest > 0 else "")


def changed(before: Line, after: Line) -> tuple[int, int] | None:
    """Returns the first and the last column + 1 that differ between two lines of one width, or `None`.

    The borders are those of characters; roles count too.
    """
    if before == after:
        return None
    most = min(len(before), len(after))
    same = 0
    while same < most and before[same] == after[same]:
        same += 1
    while same and any(of[same:] and width(of[same].text[:1]) == 0 for of in (before, after)):
        same -= 1  # a sign without a cell of its own stands in the one before it
    most -= same
    ends = 0
    while ends < most and before[-1 - ends] == after[-1 - ends]:
        ends += 1
    begin = line_width(before[:same])
    left, right = before[same : len(before) - ends], after[same : len(after) - ends]
    old: Sequence[object]
    new: Sequence[object]
    if [(s.role, len(s.text)) for s in left] == [(s.role, len(s.text)) for s in right] and _narrow(*left, *right):
        old, new = "".join(s.text for s in left), "".join(s.text for s in right)
    else:
        old, new = _columns(left), _columns(right)
    if len(old) != len(new):
        return 0, max(line_width(before), line_width(after))
    first = next((i for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]), None)
    if first is None:
        return None
    last = next(i for i in range(len(new), 0, -1) if old[i - 1] != new[i - 1])
    return begin + first, begin + last


def _narrow(*of: Span) -> bool:
    """Tells whether every sign takes one column for sure: ASCII, braille and blocks, what nearly all is drawn with."""
    return all(s.text.isascii() or _NARROW.fullmatch(s.text) for s in of)


def _columns(of: Line) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for text, role in of:
        if text.isascii():
            out.extend((ch, role) for ch in text)
            continue
        for ch in text:
            cells = width(ch)
            if cells == 0 and out:
                out[-1] = (out[-1][0] + ch, out[-1][1])
            else:
                out.extend([(ch, role)] * cells)
    return out
