"""The evals: problems x presets with verdicts; below, the chosen answer, what was extracted and why, its output."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from evals.verdicts import Judgement
from sessions.errors import SpectopError
from sessions.log import SavedText
from tui.draw import Span, line
from tui.screens.listed import ListedScreen
from tui.session_files import answer_of
from tui.widgets.eval_page import difference_lines, judgement_lines, task_of, verdict_heading, verdict_row
from tui.words import number, plain_text


class Evals(ListedScreen):
    """Problems x presets, and one answer."""

    KEYS = (
        ("[ ]", "preset"),
        ("up down", "problem"),
        ("PgUp PgDn", "scroll"),
        ("L", "lossless"),
        ("y", "copy"),
        ("?", "help"),
        ("esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,left_square_bracket", "look(-1)", "Preset before"),
        Binding("right,right_square_bracket", "look(1)", "Preset after"),
        Binding("L", "lossless", "Verdicts or lossless differences"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._lossless = False
        self._answer: SavedText | None = None
        self._answer_of: Judgement | None = None

    def keys(self) -> tuple[tuple[str, str], ...]:
        """Returns the keys, the one that changes the view by what it changes to."""
        return tuple((key, "verdicts" if key == "L" and self._lossless else words) for key, words in self.KEYS)

    def title_words(self) -> str:
        """Returns what is shown of which preset."""
        g = self.facts.glyphs
        what = (
            "greedy text against the reference" if self._lossless else f"{self.facts.state.coding or 'no coding eval'}"
        )
        return f"evals {g.dot} {plain_text(what, g)} {g.dot} {plain_text(self.facts.preset_name, g)}"

    def fill(self) -> None:
        """Draws the table and the chosen answer."""
        if self._lossless:
            self._fill_lossless()
            return
        facts = self.facts
        tasks = list(dict.fromkeys(task_of(j) for p in facts.state.presets.values() for j in p.judgements))
        width = self.listing.size.width - 1
        rows = [verdict_row(facts, task, width) for task in tasks]
        self.listing.set_rows(verdict_heading(facts, width), rows, tasks, empty="no answer has been judged yet")
        judged = self._judgement()
        if judged is not None and judged is not self._answer_of:
            self._answer, self._answer_of = None, judged
            if self.spectop.folder is not None:
                self._read(judged)
        lines = judgement_lines(facts, judged, self._answer, self.page.size.width) if judged else []
        self.page.set_lines(lines)

    def _judgement(self) -> Judgement | None:
        preset = self.facts.preset
        wanted = self.listing.chosen
        return next((j for j in preset.judgements if task_of(j) == wanted), None) if preset else None

    def _fill_lossless(self) -> None:
        facts, g = self.facts, self.facts.glyphs
        summary = facts.preset.lossless if facts.preset else None
        differences = [d for d in summary.differences if not d.identical] if summary else []
        why = "lossless_prompts = 0 in the sweep" if facts.state.lossless_prompts == 0 else "not made yet"
        head = [line(Span(f"  no lossless check under this preset: {why}", "muted"))]
        if summary is not None:
            words = f"  {g.hot} DIVERGED:" if summary.diverged else " "
            words += f" {summary.identical}/{summary.compared} texts identical to {plain_text(summary.reference, g)}"
            if summary.median_first_difference is not None:
                words += f", median first difference at token {number(summary.median_first_difference, 0)}"
            if summary.of_the_reference:
                words = f"  {plain_text(summary.preset, g)} is the reference: the others are held against its texts"
            head = [line(Span(words, "bad" if summary.diverged else "strong"))]
        rows = [
            line(Span(f" prompt {d.prompt:>3}  first difference at token {d.first_difference}")) for d in differences
        ]
        keys = [str(d.prompt) for d in differences]
        self.listing.set_rows(head, rows, keys, empty="no differences" if summary else "")
        chosen = next((d for d in differences if str(d.prompt) == self.listing.chosen), None)
        self.page.set_lines(difference_lines(facts, chosen, self.page.size.width) if chosen else ())

    @work(thread=True, exclusive=True, exit_on_error=False, group="answer")
    def _read(self, judged: Judgement) -> None:
        folder = self.spectop.folder
        assert folder is not None
        try:
            found = answer_of(folder, judged)
        except SpectopError as error:
            self.app.call_from_thread(self.spectop.tell, str(error), "error")
            return
        self.app.call_from_thread(self._took, judged, found)

    def _took(self, judged: Judgement, answer: SavedText | None) -> None:
        if judged is self._answer_of:
            self._answer = answer
            self.show_facts()

    def action_look(self, step: int) -> None:
        """Looks at another preset's answers."""
        names = list(self.facts.state.presets)
        if names:
            here = names.index(self.facts.preset_name)
            self.page.set_lines((), keep_place=False)
            self.spectop.look(preset=names[(here + step) % len(names)])

    def action_lossless(self) -> None:
        """Changes between verdicts and lossless differences."""
        self._lossless = not self._lossless
        self.page.set_lines((), keep_place=False)
        self.show_facts()
