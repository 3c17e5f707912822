"""The signs everything is drawn with: one set for UTF-8 terminals, one for all others (ASCII only).

Answered only here: which set a terminal gets. The locale's own words decide, not Python's encoding, because Python
may write UTF-8 under a locale whose terminal cannot show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """One set of signs.

    Attributes:
        pm: stands before a half-interval.
        heat: from the lowest to the highest value; a blank where every sign would look like a figure.
        bar: the parts of a horizontal bar, from one eighth (or a half) to full.
        done: the filled part of a progress line.
        several: stands for more marks than there is room for.
        columns: the parts of a vertical block, lowest first.
        braille: whether graphs may use braille dots, two by four a cell.
    """

    name: str
    pm: str
    running: str
    waiting: str
    failed: str
    skipped: str
    good: str
    on: str
    off: str
    hot: str
    here: str
    more_up: str
    more_down: str
    ellipsis: str
    dot: str
    rule: str
    line: str
    times: str
    degree: str
    same: str
    absent: str
    enter: str
    several: str
    arrow: str
    back: str
    heat: str
    bar: str
    done: str
    columns: str
    unknown: str
    box: tuple[str, str, str, str, str, str]
    braille: bool


UTF8 = Glyphs(
    name="utf8",
    pm="±",
    running="▶",
    waiting="·",
    failed="✗",
    skipped="»",
    good="✓",
    on="●",
    off="○",
    hot="▲",
    here="▸",
    more_up="▴",
    more_down="▾",
    ellipsis="…",
    dot="·",
    rule="─",
    line="│",
    times="×",
    degree="°",
    same="=",
    absent="-",
    enter="⏎",
    several="‡",
    arrow="→",
    back="←",
    heat="▁▂▃▄▅▆▇█",
    bar="▏▎▍▌▋▊▉█",
    done="━",
    columns="▁▂▃▄▅▆▇█",
    unknown="�",
    box=("┌", "┐", "└", "┘", "─", "│"),
    braille=True,
)

ASCII = Glyphs(
    name="ascii",
    pm="+-",
    running=">",
    waiting=".",
    failed="x",
    skipped="/",
    good="+",
    on="*",
    off="o",
    hot="^",
    here=">",
    more_up="^",
    more_down="v",
    ellipsis="..",
    dot="-",
    rule="-",
    line="|",
    times="x",
    degree="",
    same="=",
    absent="-",
    enter="Enter",
    several="&",
    arrow=">",
    back="<",
    heat=" ",
    bar="#",
    done="=",
    columns="_.-=+*%#",
    unknown="?",
    box=("+", "+", "+", "+", "-", "|"),
    braille=False,
)


def locale_is_utf8(env: Mapping[str, str]) -> bool:
    """Tells whether the terminal's locale speaks UTF-8, by the first of the three variables that is set."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := env.get(name):
            charset = value.rpartition(".")[2].lower().replace("-", "")
            return charset.startswith("utf8")
    return False


def choose(env: Mapping[str, str]) -> Glyphs:
    """Returns the set for a terminal; `SPECTOP_GLYPHS` (utf8, blocks or ascii) overrides what the locale says."""
    wish = env.get("SPECTOP_GLYPHS", "").lower()
    if wish == "ascii":
        return ASCII
    if wish in ("utf8", "utf-8", "braille"):
        return UTF8
    if wish == "blocks":
        return BLOCKS
    return UTF8 if locale_is_utf8(env) else ASCII


BLOCKS = Glyphs(**{**UTF8.__dict__, "name": "blocks", "braille": False})
"""For fonts without braille: graphs of blocks, everything else as in UTF-8."""
