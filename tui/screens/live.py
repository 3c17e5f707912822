"""The home screen: the sweep as it runs. Draws the state; every key either looks elsewhere or sends a command."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize

from tui.draw import Line, Span, line
from tui.layout import Needs, Rect, arrange, preset_line_width
from tui.replaying import replay_of
from tui.screens.base import SpectopScreen
from tui.view import Facts
from tui.widgets.gpus import draw_gpus, gpus_away
from tui.widgets.histogram import draw_histogram, preset_strip
from tui.widgets.matrix import draw_matrix, grid
from tui.widgets.now import draw_now
from tui.widgets.panel import Panel
from tui.widgets.presets_line import draw_presets_line, lines_wanted
from tui.widgets.steps import asked_lines, draw_steps
from tui.widgets.tail import draw_events, draw_log
from tui.words import cut

DRAWINGS = {
    "matrix": draw_matrix,
    "now": draw_now,
    "presets": draw_presets_line,
    "steps": draw_steps,
    "strip": preset_strip,
    "histogram": draw_histogram,
    "gpus": draw_gpus,
    "events": draw_events,
    "log": draw_log,
}


def draw_small(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns what is said in a terminal that is too small for anything else."""
    g = facts.glyphs
    words = ["terminal too small", "the sweep goes on", "50 x 12 is enough; q leaves"]
    return [line(Span(cut(w, cells, g))) for w in words[:rows]]


def needs_of(facts: Facts, width: int) -> Needs:
    """Returns what the layout has to know of a state and a view."""
    state = facts.state
    preset = state.presets.get(state.current_preset or "")
    proving = preset is not None and (
        state.phase in ("reconfiguring", "probing", "checking")
        or (preset.status == "not-in-effect" and state.status == "running")
    )
    steps = sum(1 + len(asked_lines(facts, s, width)) for s in preset.steps) if preset else 0
    failed = preset is not None and preset.status == "not-in-effect"
    return Needs(
        contexts=len(state.contexts),
        columns=len(state.concurrencies),
        presets=len(state.presets),
        preset_lines=lines_wanted(facts, width),
        gpus=len(state.gpus.gpus) if state.gpus and not gpus_away(facts) else 0,
        proving=proving,
        steps=max(4, steps + (5 if failed else 2)),
        tail=facts.view.tail,
        zoomed=facts.view.zoomed,
    )


class Live(SpectopScreen):
    """The whole sweep at a glance."""

    CSS_PATH = "live.tcss"
    COMMANDING = ("1-9", "p", "s", "n", "x", "d")
    REPLAYING = (("space", "play"), (". ,", "cell"), ("+ -", "speed"), ("Home End", "go to"))
    KEYS = (
        ("1-9", "preset"),
        ("m", "metric"),
        ("enter", "cell"),
        ("p", "pause"),
        ("s", "skip"),
        ("l", "log"),
        ("d", "detach"),
        ("[ ]", "look at"),
        ("/", "search"),
        ("n", "note"),
        ("z", "zoom"),
        ("P", "presets"),
        ("E", "evals"),
        ("C", "compare"),
        ("R", "recommend"),
        ("S", "sessions"),
        ("x", "stop"),
        ("?", "help"),
        ("q", "quit"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *[Binding(str(i), f"app.apply_number({i})", f"Switch to preset {i}", show=False) for i in range(1, 10)],
        Binding("m", "metric(1)", "Next figure"),
        Binding("M", "metric(-1)", "Previous figure"),
        Binding("up", "move(-1, 0)", "Cell above", show=False),
        Binding("down", "move(1, 0)", "Cell below", show=False),
        Binding("left", "move(0, -1)", "Cell to the left", show=False),
        Binding("right", "move(0, 1)", "Cell to the right", show=False),
        Binding("left_square_bracket", "look(-1)", "Look at the preset before", key_display="["),
        Binding("right_square_bracket", "look(1)", "Look at the preset after", key_display="]"),
        Binding("f", "follow", "Follow the running cell"),
        Binding("escape", "follow", "Follow the running cell", show=False),
        Binding("t", "temperature", "Next temperature"),
        Binding("enter", "open_cell", "Open the cell"),
        Binding("l", "tail", "Events or server log"),
        Binding("v", "level", "Level of the events"),
        Binding("slash", "search", "Search the words", key_display="/"),
        Binding("z", "zoom", "Maximise a panel"),
        Binding("space", "app.replay('toggle')", "Saved session: play or pause"),
        Binding("full_stop", "app.replay('cell', 1)", "Saved session: next cell", key_display="."),
        Binding("comma", "app.replay('cell', -1)", "Saved session: cell before", key_display=","),
        Binding("plus", "app.replay('speed', 1)", "Saved session: faster", key_display="+"),
        Binding("minus", "app.replay('speed', -1)", "Saved session: slower", key_display="-"),
        Binding("home", "app.replay('start')", "Saved session: its start"),
        Binding("end", "app.replay('end')", "Saved session: its end"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, Rect] = {}

    def compose(self) -> ComposeResult:
        """All panels; the layout places those that have room."""
        yield self.head()
        for name in DRAWINGS:
            yield Panel(self._drawing(name), glyphs=self.facts.glyphs, id=name)
        yield Panel(lambda w, h: draw_small(self.facts, w, h), glyphs=self.facts.glyphs, id="small")
        yield self.keys_line()

    def keys(self) -> tuple[tuple[str, str], ...]:
        """Returns the keys that do something in this session's state."""
        kept = [
            (key, "go on" if key == "p" and self.facts.state.paused else words)
            for key, words in self.KEYS
            if self.spectop.commandable or key not in self.COMMANDING
        ]
        zoomed = (("z", "all panels"),) if self.facts.view.zoomed else ()
        return (*zoomed, *(self.REPLAYING if replay_of(self.spectop.source) else ()), *kept)

    def _drawing(self, name: str):  # type: ignore[no-untyped-def]
        draw = DRAWINGS[name]
        return lambda width, height: draw(self.facts, width, height)

    def on_mount(self) -> None:
        """Places the panels."""
        self._place()

    def on_resize(self, _: Resize) -> None:
        """Places the panels for the new size."""
        self._place()

    def _place(self) -> None:
        width, height = self.app.size
        places = arrange(width, height, needs_of(self.facts, preset_line_width(width, height)))
        if places == self._places:
            return
        self._places = places
        for panel in self.query(Panel):
            place = places.get(panel.id or "")
            panel.display = place is not None
            if place is not None:
                panel.styles.offset = (place.x, place.y)
                panel.styles.width = place.width
                panel.styles.height = place.height

    def show_facts(self) -> None:
        """Draws what changed, in its place."""
        self._place()
        super().show_facts()

    def action_metric(self, step: int) -> None:
        """Shows the next figure."""
        self.spectop.look(metric=self.facts.view.metric + step)

    def action_move(self, down: int, across: int) -> None:
        """Moves the cursor over the matrix."""
        point, state = self.facts.point, self.facts.state
        if point is None:
            return
        row = state.contexts.index(point[0]) + down
        column = state.concurrencies.index(point[1]) + across
        row = max(0, min(row, len(state.contexts) - 1))
        column = max(0, min(column, len(state.concurrencies) - 1))
        self.spectop.look(point=(state.contexts[row], state.concurrencies[column]))

    def action_look(self, step: int) -> None:
        """Looks at another preset's cells; nothing is switched."""
        names = list(self.facts.state.presets)
        if names:
            here = names.index(self.facts.preset_name)
            self.spectop.look(preset=names[(here + step) % len(names)])

    def action_follow(self) -> None:
        """Follows the running preset and cell again, and leaves a maximised panel."""
        if self.facts.view.zoomed or self.facts.view.search:
            self.spectop.look(zoomed=None, search="")
        else:
            self.spectop.look(preset=None, point=None)

    def action_temperature(self) -> None:
        """Shows the next temperature's cells."""
        self.spectop.look(temperature=self.facts.view.temperature + 1)

    def action_tail(self) -> None:
        """Shows the other kind of words."""
        view = self.facts.view
        other = "log" if view.tail == "events" else "events"
        zoomed = other if view.zoomed in ("events", "log") else view.zoomed
        self.spectop.look(tail=other, zoomed=zoomed)

    def action_level(self) -> None:
        """Shows events of the next level and worse only."""
        levels = ["info", "warning", "error"]
        here = levels.index(self.facts.view.level)
        self.spectop.look(level=levels[(here + 1) % len(levels)])

    def action_search(self) -> None:
        """Asks what to search events and log for."""
        self.spectop.ask_search()

    def action_zoom(self) -> None:
        """Maximises a panel, or gives the others back."""
        if self.facts.view.zoomed:
            self.spectop.look(zoomed=None)
        else:
            self.spectop.ask_zoom()

    def copied_lines(self) -> list[Line]:
        """Returns the matrix in full width, whatever fits on the screen."""
        width = 8 + 16 * len(self.facts.state.concurrencies)
        return draw_matrix(self.facts, width, 1 + len(self.facts.state.contexts))

    def title_words(self) -> str:
        """Returns which preset's matrix it is, and its figure."""
        return f"{self.facts.preset_name} {self.facts.glyphs.dot} {self.facts.metric.name}"

    def action_open_cell(self) -> None:
        """Opens the focused cell."""
        self.spectop.open_cell()

    def on_panel_clicked(self, event: Panel.Clicked) -> None:
        """Moves the cursor to the cell under the mouse; a second click opens it."""
        if event.panel.id != "matrix":
            return
        size = event.panel.size
        point = grid(self.facts, size.width, size.height).at(event.x, event.y)
        if point is None:
            return
        if self.facts.view.point == point:
            self.spectop.open_cell()
        self.spectop.look(point=point)
