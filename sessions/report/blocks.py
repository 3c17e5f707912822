"""What a report is made of, before it is set as HTML or Markdown."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Tone = Literal["plain", "good", "warning", "bad"]


class Words(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Cell(msgspec.Struct, frozen=True):
    """One cell of a table."""

    text: str
    tone: Tone = "plain"


class Grid(msgspec.Struct, frozen=True):
    """A table.

    Attributes:
        numeric: columns set to the right.
        folded: long tables that HTML shows only on a click.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    caption: str = ""
    folded: bool = False


class Picture(msgspec.Struct, frozen=True):
    """A chart.

    Attributes:
        spec: its Vega-Lite specification.
        title: what it shows, above it.
        alt: the same for who cannot see it.
    """

    spec: dict[str, Any]
    title: str
    alt: str


class Pictures(msgspec.Struct, frozen=True):
    """Charts side by side where there is room."""

    pictures: tuple[Picture, ...]


Block = Words | Grid | Pictures


class Section(msgspec.Struct, frozen=True):
    """A headed part."""

    title: str
    blocks: tuple[Block, ...]


class Report(msgspec.Struct, frozen=True):
    """All of it.

    Attributes:
        subtitle: server, model and time, in a line.
        banner: "SIMULATED" where it is, else empty.
    """

    title: str
    subtitle: str
    banner: str
    sections: tuple[Section, ...]


def grid(
    headings: list[str],
    rows: list[list[str | Cell]],
    *,
    left: tuple[int, ...] = (0,),
    caption: str = "",
    folded: bool = False,
) -> Grid:
    """Returns a table whose columns are set to the right but for those in `left`."""
    cells = tuple(tuple(x if isinstance(x, Cell) else Cell(x) for x in row) for row in rows)
    return Grid(tuple(headings), cells, frozenset(range(len(headings))) - set(left), caption, folded)
