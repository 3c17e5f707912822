"""A cell, opened: everything about one preset at one matrix point."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from loadgen.records import RequestRecord
from sessions.errors import SpectopError
from tui.cells import point_cells
from tui.screens.listed import ListedScreen
from tui.session_files import requests_of
from tui.widgets.cell_page import draw_cell
from tui.words import english, plain_text


class Cell(ListedScreen):
    """One matrix point; arrows to the sides and brackets go to its neighbours."""

    HAS_LIST = False
    KEYS = (
        ("[ ]", "preset"),
        ("< >", "cell"),
        ("PgUp PgDn", "scroll"),
        ("r", "repeat"),
        ("y", "copy"),
        ("?", "help"),
        ("esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "look(-1)", "Same cell, preset before", key_display="["),
        Binding("right_square_bracket", "look(1)", "Same cell, preset after", key_display="]"),
        Binding("left,less_than_sign", "neighbour(-1)", "Lower concurrency"),
        Binding("right,greater_than_sign", "neighbour(1)", "Higher concurrency"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._records: list[RequestRecord] | None = None
        self._runs: frozenset[str] = frozenset()

    def title_words(self) -> str:
        """Returns which cell it is."""
        g, point = self.facts.glyphs, self.facts.point
        where = f"{point[0]} tokens {g.times} {english(point[1], 'user')}" if point else "no cell"
        warm = f", temperature {self.facts.temperature:g}" if len(self.facts.state.temperatures) > 1 else ""
        return f"{plain_text(self.facts.preset_name, g)} {g.dot} {where}{warm}"

    def fill(self) -> None:
        """Draws the cell; reads its requests when they are others than those known."""
        point = self.facts.point
        at = point_cells(self.facts, self.facts.preset_name, *point) if point else None
        runs = frozenset(c.run for c in at.cells if c.run and c.status != "running") if at else frozenset()
        if runs != self._runs:
            self._runs = runs
            self._records = None
            self._read(runs)
        elif not runs:
            self._records = []
        self.page.set_lines(draw_cell(self.facts, self._records, self.page.size.width))

    def _read(self, runs: frozenset[str]) -> None:
        if self.spectop.folder is None or not runs:
            self._records = []
            return
        self._read_requests(runs)

    @work(thread=True, exclusive=True, exit_on_error=False, group="requests")
    def _read_requests(self, runs: frozenset[str]) -> None:
        folder = self.spectop.folder
        assert folder is not None
        try:
            found = requests_of(folder, runs)
        except SpectopError as error:
            self.app.call_from_thread(self.spectop.tell, str(error), "error")
            found = []
        self.app.call_from_thread(self._took, runs, found)

    def _took(self, runs: frozenset[str], records: list[RequestRecord]) -> None:
        if runs == self._runs:
            self._records = records
            self.show_facts()

    def action_look(self, step: int) -> None:
        """Looks at the same cell of another preset."""
        names = list(self.facts.state.presets)
        if names:
            here = names.index(self.facts.preset_name)
            self.spectop.look(preset=names[(here + step) % len(names)], point=self.facts.point)

    def action_neighbour(self, step: int) -> None:
        """Looks at the next cell of the same context."""
        point, columns = self.facts.point, self.facts.state.concurrencies
        if point is not None:
            column = max(0, min(columns.index(point[1]) + step, len(columns) - 1))
            self.spectop.look(point=(point[0], columns[column]))
