"""Text and figures as they stand on a screen: outside text made plain, cells counted, figures with their interval.

Answered only here: how many decimals a figure has, and what is taken out of text that comes from outside.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata

from rich.cells import cell_len

from tui.glyphs import UTF8, Glyphs

LINE_LIMIT = 4_000
"""Characters of one outside line that are looked at; the rest is counted, not drawn."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)"
)
_STACKED_MARKS = 2


def plain_text(text: str, glyphs: Glyphs = UTF8, limit: int = LINE_LIMIT) -> str:
    """Returns outside text as one harmless line: no escape sequences, no control characters, no direction tricks.

    Args:
        text: anything, from a log, a model's name, an error.
        glyphs: what the terminal can show; without UTF-8 every other character becomes question marks of its width.
        limit: characters kept; a longer text ends with its full length.
    """
    if len(text) > limit:
        text = f"{text[:limit]}{glyphs.ellipsis} ({len(text):,} characters)"
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    text = unicodedata.normalize("NFC", text)
    out: list[str] = []
    marks = 0
    for ch in text:
        category = unicodedata.category(ch)
        if category in ("Mn", "Me"):
            marks += 1
            if marks > _STACKED_MARKS or 0xFE00 <= ord(ch) <= 0xFE0F:
                continue
            out.append(ch)
            continue
        marks = 0
        if ch in "\t\n\r\v\f\x85" or category in ("Zl", "Zp"):
            out.append(" ")
        elif category in ("Cc", "Cs", "Co", "Cn") or ch in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
            out.append(glyphs.unknown)
        elif category != "Cf":
            out.append(ch)
    cleaned = "".join(out)
    return cleaned if glyphs.name != "ascii" else only_ascii(cleaned)


_ASCII_OF = str.maketrans(
    {
        "±": "~",
        "×": "x",
        "·": ".",
        "…": "~",
        "▶": ">",
        "✓": "+",
        "✗": "x",
        "●": "*",
        "▲": "^",
        "→": ">",
        "°": " ",
        "–": "-",
        "—": "-",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
        "─": "-",
        "━": "-",
        "│": "|",
        "┃": "|",
        "█": "#",
        "▎": "|",
        "▔": "-",
        "▁": "_",
        "▊": "|",
    }
)


def only_ascii(text: str) -> str:
    """Returns text with every character outside ASCII replaced, its width in cells kept."""
    if text.isascii():
        return text
    text = text.translate(_ASCII_OF)
    return "".join(ch if ch.isascii() else "?" * cell_len(ch) for ch in text)


@functools.lru_cache(maxsize=2048)
def width(text: str) -> int:
    """Returns the cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, cells: int, glyphs: Glyphs = UTF8) -> str:
    """Returns a text in at most so many cells, cut at a whole character and ended by an ellipsis."""
    if cells <= 0:
        return ""
    if width(text) <= cells:
        return text
    end = glyphs.ellipsis if len(glyphs.ellipsis) < cells else ""
    room = cells - width(end)
    if text.isascii():
        return text[:room] + end
    taken = 0
    for i, ch in enumerate(text):
        taken += cell_len(ch)
        if taken > room:
            return text[:i] + end
    return text


def wrapped(text: str, cells: int) -> list[str]:
    """Returns a text in lines of at most so many cells, broken at blanks where there are any in the line's second half.

    A character wider than the line stands in a line of its own; the text is not looked at for anything else.
    """
    cells = max(1, cells)
    out: list[str] = []
    rest = text
    while width(rest) > cells:
        end, taken = 0, 0
        for ch in rest:
            taken += width(ch)
            if taken > cells and end > 0:
                break
            end += 1
        blank = rest.rfind(" ", end // 2, end + 1)
        if blank > 0:
            out.append(rest[:blank])
            rest = rest[blank + 1 :]
        else:
            out.append(rest[:end])
            rest = rest[end:]
    if rest or not out:
        out.append(rest)
    return out


def left(text: str, cells: int, glyphs: Glyphs = UTF8) -> str:
    """Returns a text in exactly so many cells, at the left."""
    text = cut(text, cells, glyphs)
    return text + " " * (cells - width(text))


def right(text: str, cells: int, glyphs: Glyphs = UTF8) -> str:
    """Returns a text in exactly so many cells, at the right."""
    text = cut(text, cells, glyphs)
    return " " * (cells - width(text)) + text


def decimals(value: float, half: float | None = None) -> int:
    """Returns the decimals a figure deserves: as many as its half-interval leaves standing."""
    size = abs(value)
    most = 2 if size < 20 else 1 if size < 1000 else 0
    if half is None:
        return most
    return min(most, 0 if half >= 3 else 1 if half >= 0.2 else 2)


def number(value: float | None, digits: int | None = None, absent: str = "-") -> str:
    """Returns a figure, or the sign for an absent one."""
    if value is None or not math.isfinite(value):
        return absent
    return f"{value:.{decimals(value) if digits is None else digits}f}"


def with_interval(value: float | None, half: float | None, glyphs: Glyphs = UTF8, *, sign: bool = False) -> str:
    """Returns a figure with its half-interval: `170.2 ±1.1`; without one, the figure alone.

    Args:
        value: the figure.
        half: half of its 95 % interval, in the same unit.
        glyphs: for the sign between them.
        sign: put a plus before a positive figure.
    """
    if value is None or not math.isfinite(value):
        return glyphs.absent
    digits = decimals(value, half)
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    gap = " " if len(glyphs.pm) == 1 else ""
    return text if half is None else f"{text}{gap}{glyphs.pm}{half:.{digits}f}"


def with_range(value: float, low: float, high: float, glyphs: Glyphs = UTF8) -> str:
    """Returns a signed figure with its interval: `+6.1 ±1.9`, or `+2 -12..+17` where the bounds lie unevenly about it.

    Args:
        value: the figure.
        low: lower bound of its 95 % interval, in the same unit.
        high: upper bound.
        glyphs: for the sign between them.
    """
    half = (high - low) / 2
    digits = decimals(value, half)
    if abs((low + high) / 2 - value) < 0.5 * 10**-digits:
        return with_interval(value, half, glyphs, sign=True)
    return f"{value:+.{digits}f} {low:+.{digits}f}..{high:+.{digits}f}"


def duration(seconds: float | None) -> str:
    """Returns a duration as `4.8 s`, `3:07` or `1:12:09`."""
    if seconds is None:
        return "-"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return clock(seconds)


def clock(seconds: float) -> str:
    """Returns a duration as `0:07`, `3:07` or `1:12:09`; of fixed form, for figures that tick."""
    whole = int(max(0.0, seconds))
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def about(seconds: float | None) -> str:
    """Returns an expected duration in words that claim no more than is known: `about 6 min`."""
    if seconds is None:
        return "for an unknown time"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"about {hours} h {minutes:02d}"


def share(value: float | None) -> str:
    """Returns a share of 1 as a percentage."""
    return "-" if value is None else f"{value * 100:.0f} %"


def gib(value: int | None) -> str:
    """Returns bytes in GiB with one decimal."""
    return "-" if value is None else f"{value / 2**30:.1f}"


def time_of_day(at: str) -> str:
    """Returns `12:40:55` of an ISO 8601 moment, or nothing."""
    found = re.search(r"T(\d\d:\d\d:\d\d)", at)
    return found.group(1) if found else ""


def english(count: int, noun: str) -> str:
    """Returns a count with its noun: `1 cell`, `3 cells`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
