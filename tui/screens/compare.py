"""Two sessions, or two presets of one, held against each other: the matrix of differences, `=` for noise."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from sessions.compare import Comparison, compare, open_side
from sessions.errors import SpectopError
from sessions.points import METRICS
from tui.screens.listed import ListedScreen
from tui.widgets.compare_page import draw_comparison
from tui.words import plain_text


class Compare(ListedScreen):
    """B against A.

    Args:
        directory: where sessions are.
        a: the base: `SESSION` or `SESSION:PRESET`.
        b: what is held against it.
    """

    HAS_LIST = False
    OF_SESSION = False
    KEYS = (("m", "metric"), ("w", "swap"), ("PgUp PgDn", "scroll"), ("y", "copy"), ("?", "help"), ("esc", "back"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric(1)", "Next figure"),
        Binding("M", "metric(-1)", "Previous figure"),
        Binding("w", "swap", "Swap A and B"),
    ]

    def __init__(self, directory: Path, a: str, b: str) -> None:
        super().__init__()
        self._directory = directory
        self._a, self._b = a, b
        self._metric = 0
        self._found: Comparison | None = None
        self._problem = ""

    def title_words(self) -> str:
        """Returns what is compared, in which figure."""
        g = self.facts.glyphs
        metric = METRICS[self._metric % len(METRICS)].words
        if self._found is None:
            return "compare"
        return f"compare {g.dot} {metric} {g.dot} B against A"

    def copied_heading(self) -> str:
        """Returns what is compared, in which figure; a copy's first line."""
        simulated = self._found is not None and self._found.simulated
        return self.title_words() + (f" {self.facts.glyphs.dot} SIMULATED" if simulated else "")

    def on_mount(self) -> None:
        """Reads and compares."""
        self.read()

    @work(thread=True, exclusive=True, exit_on_error=False, group="compare")
    def read(self) -> None:
        """Reads both sides anew."""
        found: Comparison | None = None
        problem = ""
        try:
            found = compare(open_side(self._directory, self._a), open_side(self._directory, self._b))
        except (SpectopError, OSError) as error:
            problem = str(error)
        self.app.call_from_thread(self._took, found, problem)

    def _took(self, found: Comparison | None, problem: str) -> None:
        self._found, self._problem = found, problem
        self.show_facts()

    def fill(self) -> None:
        """Draws the comparison."""
        g = self.facts.glyphs
        words = plain_text(self._problem, g, 600) if self._problem else f"comparing{g.ellipsis}"
        metric = METRICS[self._metric % len(METRICS)]
        self.page.set_lines(draw_comparison(self._found, metric.key, words, self.page.size.width, g))

    def action_metric(self, step: int) -> None:
        """Shows another figure."""
        self._metric += step
        self.show_facts()

    def action_swap(self) -> None:
        """Makes A the new one and B the base."""
        self._a, self._b = self._b, self._a
        self.read()
