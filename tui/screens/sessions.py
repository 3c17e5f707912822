"""The browser of sessions: search, open, compare, delete."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from sessions.errors import SpectopError
from sessions.review import Listed, list_sessions
from tui.draw import Line, Span, fit, line, title
from tui.glyphs import Glyphs
from tui.screens.ask import Ask, AskLine
from tui.screens.compare import Compare
from tui.screens.listed import ListedScreen
from tui.session_files import delete_session
from tui.words import english, left, number, plain_text, right

WIDE, WIDEST_LABEL = 100, 40
_STATUS = {"finished": "good", "running": "accent", "failed": "bad", "unreadable": "bad", "interrupted": "warn"}


def session_heading(glyphs: Glyphs, cells: int) -> Line:
    """Returns the list's heading."""
    label, model = _columns(cells)
    words = f"   {left('started, UTC', 17, glyphs)}{left('label', label, glyphs)} {left('model', model, glyphs)}"
    presets = right("presets", 9, glyphs) if cells >= WIDE else ""
    return line(Span(f"{words}{presets}{right('cells', 8, glyphs)}  status", "head"))


def session_row(listed: Listed, glyphs: Glyphs, cells: int, *, picked: bool) -> Line:
    """Returns a session's line."""
    label, model = _columns(cells)
    when = listed.created.replace("T", " ")[:16]
    status = listed.status + (" SIMULATED" if listed.simulated else "")
    words = f": {plain_text(listed.problem, glyphs, 300)}" if listed.problem else ""
    return line(
        Span(f"{glyphs.on if picked else ' '} ", "accent"),
        Span(left(when or listed.name, 17, glyphs), "muted"),
        Span(left(plain_text(listed.label or listed.name, glyphs), label, glyphs) + " ", "strong"),
        Span(left(plain_text(listed.model, glyphs), model, glyphs)),
        Span(f"{listed.presets:>9}" if cells >= WIDE else ""),
        Span(f"{f'{listed.cells_done}/{listed.cells}':>8}"),
        Span(f"  {status}{words}", _STATUS.get(listed.status, "")),
    )


def session_page(listed: Listed, glyphs: Glyphs, cells: int) -> list[Line]:
    """Returns what a session came to: where, on what, how it ended, and each preset's best."""

    def words(text: str) -> str:
        return plain_text(text, glyphs, 300)

    kinds = Counter(listed.gpus)
    gpus = ", ".join(f"{count} x {name}" for name, count in kinds.items()) or "not known"
    told = [("server", listed.base_url), ("gpus", gpus), ("end", listed.end)]
    out = [title(f" {words(listed.name)}", cells, glyphs)]
    out += [line(Span(f"  {left(name, 8, glyphs)}", "muted"), Span(words(text))) for name, text in told if text]
    if listed.problem:
        return [*out, line(Span(f"  {words(listed.problem)}", "bad"))]
    name = max((len(s.preset) for s in listed.standings), default=0)
    name = max(8, min(name, 24))
    head = f"  {left('preset', name, glyphs)}{right('cells', 9, glyphs)}{right('best tok/s', 12, glyphs)}"
    head += f"{right('accept', 8, glyphs)}  {left('at', 12, glyphs)}settings"
    out += [(), line(Span(head, "head"))]
    for s in listed.standings:
        numbers = f"{right(f'{s.measured}/{s.cells}', 9, glyphs)}{right(number(s.best_tok_s), 12, glyphs)}"
        evals = f"  {'; '.join(s.evals)}" if s.evals else ""
        out.append(
            fit(
                line(
                    Span(f"  {left(words(s.preset), name, glyphs)}", "strong"),
                    Span(f"{numbers}{right(number(s.acceptance_length), 8, glyphs)}"),
                    Span(f"  {left(s.at or glyphs.absent, 12, glyphs)}"),
                    Span(words(f"{s.settings}{evals}"), "muted"),
                ),
                cells - 1,
                glyphs,
            )
        )
    return out


def _columns(cells: int) -> tuple[int, int]:
    rest = max(20, cells - (61 if cells >= WIDE else 52))
    label = min(rest * 6 // 10, WIDEST_LABEL)
    return label, min(rest - label, WIDEST_LABEL)


class Sessions(ListedScreen):
    """All sessions, newest first."""

    OF_SESSION = False
    KEYS = (
        ("enter", "open"),
        ("space", "pick"),
        ("c", "compare"),
        ("/", "search"),
        ("D", "delete"),
        ("y", "copy"),
        ("?", "help"),
        ("esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pick", "Pick for a comparison"),
        Binding("c", "compare", "Compare the picked one (A) with this one (B)"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("D", "delete", "Delete"),
    ]

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._listed: list[Listed] | None = None
        self._search = ""
        self._picked = ""

    def title_words(self) -> str:
        """Returns where the sessions are, and what is searched for."""
        g = self.facts.glyphs
        found = f" {g.dot} /{plain_text(self._search, g, 40)}" if self._search else ""
        return f"sessions in {plain_text(str(self._directory), g)}{found}"

    def on_mount(self) -> None:
        """Reads the list."""
        self.read()

    @work(thread=True, exclusive=True, exit_on_error=False, group="sessions")
    def read(self) -> None:
        """Reads the list of sessions anew."""
        try:
            listed = list_sessions(self._directory)
        except (SpectopError, OSError) as error:
            self.app.call_from_thread(self.spectop.tell, str(error), "error")
            listed = []
        self.app.call_from_thread(self._took, listed)

    def _took(self, listed: list[Listed]) -> None:
        self._listed = listed
        self.show_facts()

    def _wanted(self) -> list[Listed]:
        needle = self._search.casefold()
        return [
            s for s in self._listed or () if needle in f"{s.name} {s.label} {s.model} {s.status} {s.created}".casefold()
        ]

    def fill(self) -> None:
        """Draws the list."""
        g, cells = self.facts.glyphs, self.listing.size.width - 1
        wanted = self._wanted()
        rows = [session_row(s, g, cells, picked=str(s.folder) == self._picked) for s in wanted]
        empty = f"reading{g.ellipsis}" if self._listed is None else "no sessions that fit"
        self.listing.set_rows([session_heading(g, cells)], rows, [str(s.folder) for s in wanted], empty=empty)
        chosen = self._chosen()
        self.page.set_lines(session_page(chosen, g, self.page.size.width) if chosen else ())

    def _chosen(self) -> Listed | None:
        return next((s for s in self._wanted() if str(s.folder) == self.listing.chosen), None)

    def action_page(self, by: int) -> None:
        """Moves the cursor by a page of the list."""
        self.listing.move(by * max(1, self.listing.size.height - 2))

    def action_choose(self) -> None:
        """Opens the chosen session in these screens."""
        chosen = self._chosen()
        if chosen is None:
            return
        if chosen.problem:
            self.spectop.tell(chosen.problem, "error")
        else:
            self.spectop.open_session(chosen.folder)

    def action_pick(self) -> None:
        """Picks the chosen session as A of a comparison."""
        self._picked = "" if self._picked == self.listing.chosen else self.listing.chosen
        self.show_facts()

    def action_compare(self) -> None:
        """Compares the picked session with the chosen one."""
        if not self._picked or self._picked == self.listing.chosen:
            self.spectop.tell("pick one session with space, put the cursor on another, then c", "warning")
            return
        self.app.push_screen(Compare(self._directory, self._picked, self.listing.chosen))

    def action_search(self) -> None:
        """Asks what to search for."""

        def entered(text: str | None) -> None:
            if text is not None:
                self._search = text
                self.show_facts()

        self.app.push_screen(
            AskLine("Search sessions", "label, model, date or status", self.facts.glyphs, value=self._search), entered
        )

    def action_delete(self) -> None:
        """Asks whether the chosen session is to be deleted."""
        chosen = self._chosen()
        if chosen is None:
            return
        if self.spectop.read_only:
            self.spectop.tell("these screens are read-only: nothing is deleted", "warning")
            return

        def answered(answer: str | None) -> None:
            if answer == "y":
                self._delete(chosen.folder)

        words = [
            f"{chosen.name}: {chosen.cells_done} of {english(chosen.cells, 'cell')}.",
            "Its folder is removed; this cannot be undone.",
        ]
        choices = [("y", "delete it"), ("n", "keep it")]
        self.app.push_screen(Ask("Delete this session?", words, choices, self.facts.glyphs), answered)

    @work(thread=True, exit_on_error=False, group="deleting")
    def _delete(self, folder: Path) -> None:
        try:
            delete_session(folder)
        except SpectopError as error:
            self.app.call_from_thread(self.spectop.tell, str(error), "error")
            return
        self.app.call_from_thread(self.spectop.tell, f"deleted {folder.name}")
        self.app.call_from_thread(self.read)
