"""The one widget everything is shown with: lines of text by role, and only what changed goes over the wire.

A panel is given its lines (or a function that makes them for a width and height); it compares them with those it
shows, and asks for a repaint of the differing stretch of each line only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.draw import ROLES, Line, changed, fit, merged
from tui.glyphs import UTF8, Glyphs

Draw = Callable[[int, int], Sequence[Line]]
"""Makes a panel's lines for its width and height."""

ROLE_CLASSES = {f"panel--{role}" for role in ROLES}
"""Component classes of every screen with panels: the screen has the roles' looks, since a set for each panel would take
a third of the time to the first paint."""


class Panel(Widget):
    """Shows lines; draws nothing that did not change."""

    ALLOW_SELECT = False

    class Clicked(Message):
        """The mouse was pressed on a panel; `x` and `y` count from its corner."""

        def __init__(self, panel: Panel, x: int, y: int) -> None:
            super().__init__()
            self.panel = panel
            self.x = x
            self.y = y

    def __init__(
        self,
        draw: Draw | None = None,
        *,
        glyphs: Glyphs = UTF8,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.glyphs = glyphs
        self._draw = draw
        self._made: Sequence[Line] | None = None
        self._lines: list[Line] = []
        self._drawn: list[Line] = []
        self._styles: dict[str, Style] = {}
        self._strips: dict[int, tuple[Line, Strip]] = {}
        self._looks: tuple[object, ...] = ()

    def redraw(self) -> None:
        """Draws the lines anew and repaints the stretches that differ."""
        cells, rows = self.size
        if cells <= 0 or rows <= 0 or not self.display:
            return
        made = self._draw(cells, rows) if self._draw is not None else ()
        if made is self._made and len(self._lines) == rows:
            return  # a drawing that remembers says so: nothing in it changed
        self._made = made
        drawn = list(made)[:rows]
        drawn.extend([()] * (rows - len(drawn)))
        before, drawn_before = self._lines, self._drawn
        if len(before) != rows:
            self._lines = [merged(fit(row, cells, self.glyphs)) for row in drawn]
            self._drawn = drawn
            self.refresh()
            return
        fitted = [
            kept if row == was else merged(fit(row, cells, self.glyphs))
            for row, was, kept in zip(drawn, drawn_before, before, strict=True)
        ]
        self._lines, self._drawn = fitted, drawn
        dirty: list[Region] = []
        for y, (old, new) in enumerate(zip(before, fitted, strict=True)):
            if (stretch := changed(old, new)) is not None:
                dirty.append(Region(stretch[0], y, stretch[1] - stretch[0], 1))
        if dirty:
            self.refresh(*dirty)

    @property
    def lines(self) -> list[Line]:
        """The lines as they are shown."""
        return self._lines

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns the segments of some lines, those of unchanged ones as they were.

        In place of Textual's own way through borders, paddings and tints, none of which a panel has: of all panels
        that a frame touches it asks for all lines, and most of them did not change.
        """
        width, background, filters = self.size.width, self.background_colors[1], self.get_line_filters()
        looks = (width, background, *filters)
        if looks != self._looks:
            self._strips, self._looks = {}, looks
        strips: list[Strip] = []
        for y in crop.line_range:
            of: Line = self._lines[y] if y < len(self._lines) else ()
            known = self._strips.get(y)
            if known is None or known[0] is not of:
                strip = Strip([Segment(s.text, self._style(s.role)) for s in of])
                strip = strip.adjust_cell_length(width, self._style(""))
                for line_filter in filters:
                    strip = strip.apply_filter(line_filter, background)
                known = self._strips[y] = (of, strip)
            strips.append(known[1])
        if crop.column_span == (0, width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            look = self.screen.get_component_rich_style(f"panel--{role}", partial=True) if role else None
            style = self.rich_style + look
            self._styles[role] = style
        return style

    def notify_style_update(self) -> None:
        """Forgets styles that a theme or a class has changed."""
        self._styles, self._strips = {}, {}
        super().notify_style_update()

    def on_resize(self, _: Resize) -> None:
        """Draws for the new size."""
        self._lines = []
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Tells the screen where the mouse was pressed."""
        self.post_message(self.Clicked(self, event.x, event.y))
