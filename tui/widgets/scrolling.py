"""Panels that hold more lines than they show: a list with a cursor, and a page."""

from __future__ import annotations

from collections.abc import Sequence

from textual.events import MouseScrollDown, MouseScrollUp
from textual.message import Message

from tui.draw import Line, Span, line
from tui.glyphs import UTF8, Glyphs
from tui.widgets.panel import Panel


class Page(Panel):
    """Lines that can be scrolled; says at its lower edge how many are below."""

    def __init__(self, *, glyphs: Glyphs = UTF8, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(self._visible, glyphs=glyphs, id=id, classes=classes)
        self._content: Sequence[Line] = ()
        self._top = 0

    def set_lines(self, content: Sequence[Line], *, keep_place: bool = True) -> None:
        """Shows other lines."""
        self._content = content
        if not keep_place:
            self._top = 0
        self.redraw()

    def scroll_lines(self, by: int) -> None:
        """Moves by so many lines, as far as there are any."""
        self._top = max(0, min(self._top + by, len(self._content) - self.size.height))
        self.redraw()

    @property
    def content(self) -> Sequence[Line]:
        """All lines."""
        return self._content

    def _visible(self, cells: int, rows: int) -> list[Line]:
        self._top = max(0, min(self._top, len(self._content) - rows))
        shown = list(self._content[self._top : self._top + rows])
        below = len(self._content) - self._top - rows
        if below > 0 and shown:
            shown[-1] = line(Span(f" {self.glyphs.more_down} {below + 1} more lines (PgDn)", "warn"))
        return shown

    def on_mouse_scroll_down(self, _: MouseScrollDown) -> None:
        """Scrolls by the wheel."""
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, _: MouseScrollUp) -> None:
        """Scrolls by the wheel."""
        self.scroll_lines(-3)


class Listing(Panel):
    """Rows with a cursor, under lines that stay."""

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, listing: Listing) -> None:
            super().__init__()
            self.listing = listing

    def __init__(self, *, glyphs: Glyphs = UTF8, id: str | None = None) -> None:
        super().__init__(self._visible, glyphs=glyphs, id=id)
        self._head: Sequence[Line] = ()
        self._rows: Sequence[Line] = ()
        self._keys: Sequence[str] = ()
        self._empty = ""
        self._top = 0
        self.cursor = 0

    def set_rows(self, head: Sequence[Line], rows: Sequence[Line], keys: Sequence[str], *, empty: str = "") -> None:
        """Shows other rows; the cursor stays on the row of the same key.

        Args:
            head: lines above the rows.
            rows: one line each.
            keys: what each row stands for; unique.
            empty: what is said when there are no rows.
        """
        before = self.chosen
        self._head, self._rows, self._keys, self._empty = head, rows, keys, empty
        if before in keys:
            self.cursor = list(keys).index(before)
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        self.redraw()

    @property
    def chosen(self) -> str:
        """The key of the row under the cursor, or nothing."""
        return self._keys[self.cursor] if 0 <= self.cursor < len(self._keys) else ""

    @property
    def content(self) -> list[Line]:
        """All lines."""
        return [*self._head, *self._rows]

    def choose(self, key: str) -> None:
        """Puts the cursor on the row of a key."""
        if key in self._keys:
            self.cursor = list(self._keys).index(key)
            self.redraw()

    def move(self, by: int) -> None:
        """Moves the cursor."""
        to = max(0, min(self.cursor + by, len(self._rows) - 1))
        if to != self.cursor:
            self.cursor = to
            self.redraw()
            self.post_message(self.Moved(self))

    def row_at(self, y: int) -> int | None:
        """Returns the row under a line of the panel."""
        row = self._top + y - len(self._head)
        return row if y >= len(self._head) and row < len(self._rows) else None

    def _visible(self, cells: int, rows: int) -> list[Line]:
        if not self._rows:
            return [*self._head, line(Span(f" {self._empty}", "muted"))]
        room = max(1, rows - len(self._head))
        self._top = max(0, min(self._top, self.cursor, len(self._rows) - room))
        self._top = max(self._top, self.cursor - room + 1)
        out = list(self._head)
        for i, row in enumerate(self._rows[self._top : self._top + room], start=self._top):
            if i == self.cursor:
                out.append((Span(self.glyphs.here, "accent"), *(Span(s.text, "cursor") for s in row)))
            else:
                out.append((Span(" "), *row))
        return out

    def on_mouse_scroll_down(self, _: MouseScrollDown) -> None:
        """Moves by the wheel."""
        self.move(1)

    def on_mouse_scroll_up(self, _: MouseScrollUp) -> None:
        """Moves by the wheel."""
        self.move(-1)
