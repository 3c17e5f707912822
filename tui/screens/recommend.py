"""Which preset to run: the policy table (context x concurrency -> preset), who leads overall, and why."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from sessions.errors import SpectopError
from sessions.recommend import BY, recommend
from tui.draw import Line, Span, line
from tui.screens.listed import ListedScreen
from tui.widgets.recommend_page import draw_recommendation
from tui.words import plain_text


class Recommend(ListedScreen):
    """A recommendation from what is measured so far."""

    HAS_LIST = False
    KEYS = (("b", "by"), ("PgUp PgDn", "scroll"), ("y", "copy"), ("?", "help"), ("esc", "back"))
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "by", "For all users together, or for one user's speed")]

    def __init__(self) -> None:
        super().__init__()
        self._by = 0

    @property
    def by(self) -> str:
        """What presets are recommended for."""
        return list(BY)[self._by % len(BY)]

    def title_words(self) -> str:
        """Returns what presets are recommended for."""
        g, state = self.facts.glyphs, self.facts.state
        so_far = f" {g.dot} from {state.done_cells} of {len(state.cells)} cells" if state.status == "running" else ""
        return f"recommend {g.dot} for {self.by} (b changes it){so_far}"

    def fill(self) -> None:
        """Draws the recommendation."""
        g = self.facts.glyphs
        try:
            found = recommend(self.facts.state, by=self.by)
        except SpectopError as error:
            lines: list[Line] = [line(Span(f" {plain_text(str(error), g, 600)}", "warn"))]
        else:
            lines = draw_recommendation(found, self.page.size.width, g)
        self.page.set_lines(lines)

    def action_by(self) -> None:
        """Recommends for something else."""
        self._by += 1
        self.show_facts()
