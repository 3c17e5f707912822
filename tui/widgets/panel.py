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
        self._lines: list[Line] = []
        self._drawn: list[Line] = []
        self._styles: dict[str, Style] = {}

    def redraw(self) -> None:
        """Draws the lines anew and repaints the stretches that differ."""
        cells, rows = self.size
        if cells <= 0 or rows <= 0 or not self.display:
            return
        drawn = list(self._draw(cells, rows))[:rows] if self._draw is not None else []
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

    def render_line(self, y: int) -> Strip:
        """Returns one line's segments."""
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self._style(""))
        return Strip([Segment(s.text, self._style(s.role)) for s in self._lines[y]])

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            look = self.screen.get_component_rich_style(f"panel--{role}", partial=True) if role else None
            style = self.rich_style + look
            self._styles[role] = style
        return style

    def notify_style_update(self) -> None:
        """Forgets styles that a theme or a class has changed."""
        self._styles = {}
        super().notify_style_update()

    def on_resize(self, _: Resize) -> None:
        """Draws for the new size."""
        self._lines = []
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Tells the screen where the mouse was pressed."""
        self.post_message(self.Clicked(self, event.x, event.y))
