"""What the operator is looking at, and how: the terminal's own state, apart from the session's.

A view never changes a session. `Facts` is what every drawing function gets: the state, the view, the signs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from sessions.events import CellKey
from sessions.state import CellState, PresetState, SessionState
from tui.glyphs import UTF8, Glyphs
from tui.metrics import METRICS, Metric
from tui.words import clock, time_of_day


@dataclass(frozen=True, kw_only=True)
class View:
    """What is shown.

    Attributes:
        preset: the preset looked at; `None` follows the one that is running.
        point: context and concurrency the cursor is on; `None` follows the running cell.
        temperature: which of the session's temperatures; an index.
        metric: which figure; an index into `METRICS`.
        tail: which words are at the bottom where there is room for one kind only.
        search: what the tail is searched for.
        level: the least grave news shown.
        zoomed: the panel that has the whole screen, or `None`.
        lost: why no more states come from a running engine; empty while they do.
        live: whether an engine is behind it.
        replay: how fast a saved session is being played, or empty.
    """

    preset: str | None = None
    point: tuple[int, int] | None = None
    temperature: int = 0
    metric: int = 0
    tail: str = "events"
    search: str = ""
    level: str = "info"
    zoomed: str | None = None
    lost: str = ""
    live: bool = True
    replay: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is drawn: a state and a view.

    Attributes:
        state: the session.
        view: what is looked at.
        glyphs: signs to draw with.
        now_t: seconds since the session's start, now; a little after `state.t` when nothing has happened.
        left_s: expected seconds to the session's end, or `None`.
    """

    state: SessionState = field(default_factory=SessionState)
    view: View = field(default_factory=View)
    glyphs: Glyphs = UTF8
    now_t: float = 0.0
    left_s: float | None = None

    @cached_property
    def preset(self) -> PresetState | None:
        """The preset that is shown."""
        presets = self.state.presets
        for name in (self.view.preset, self.state.current_preset):
            if name is not None and name in presets:
                return presets[name]
        measured = [c for c in self.state.cells.values() if c.figures is not None and c.key.preset in presets]
        if measured:
            return presets[max(measured, key=lambda c: c.ended_t or 0.0).key.preset]
        tried = [p for p in presets.values() if p.switching_since_t is not None]
        if tried:
            return max(tried, key=lambda p: p.switching_since_t or 0.0)
        return next(iter(presets.values()), None)

    @cached_property
    def preset_name(self) -> str:
        """The shown preset's name, or nothing."""
        return self.preset.preset.name if self.preset else ""

    @cached_property
    def running(self) -> CellState | None:
        """The cell that is running; none once the engine is gone."""
        return None if self.view.lost else self.state.cells.get(self.state.current_cell or "")

    @cached_property
    def over(self) -> bool:
        """Whether nothing goes on any more: the session ended, or its engine is gone."""
        return self.state.status != "running" or bool(self.view.lost)

    @cached_property
    def last_seen(self) -> str:
        """What stands beside readings that are no longer news: when they were; empty while they are."""
        if self.view.lost:
            return f"as last seen {time_of_day(self.state.at) or clock(self.state.t)}"
        return "at the end" if self.over else ""

    @cached_property
    def point(self) -> tuple[int, int] | None:
        """Context and concurrency of the focused cell."""
        contexts, concurrencies = self.state.contexts, self.state.concurrencies
        if not contexts:
            return None
        if self.view.point is not None:
            context, concurrency = self.view.point
            if context in contexts and concurrency in concurrencies:
                return self.view.point
        if self.running is not None:
            return self.running.key.context, self.running.key.concurrency
        done = [c for c in self.state.cells.values() if c.status == "measured" and c.key.preset == self.preset_name]
        if done:
            last = max(done, key=lambda c: c.ended_t or 0.0).key
            return last.context, last.concurrency
        return contexts[0], concurrencies[0]

    @cached_property
    def temperature(self) -> float:
        """The shown temperature."""
        temperatures = self.state.temperatures
        return temperatures[self.view.temperature % len(temperatures)] if temperatures else 0.0

    @cached_property
    def metric(self) -> Metric:
        """The shown figure."""
        return METRICS[self.view.metric % len(METRICS)]

    def repetitions(self, preset: str, context: int, concurrency: int) -> list[CellState]:
        """Returns the cells of one matrix point, by repetition."""
        found: list[CellState] = []
        for repetition in range(1, max(1, self.state.repeats) + 1):
            key = CellKey(
                preset=preset,
                context=context,
                concurrency=concurrency,
                temperature=self.temperature,
                repetition=repetition,
            )
            if (cell := self.state.cells.get(key.text)) is not None:
                found.append(cell)
        return found

    def looking(self, **changes: object) -> Facts:
        """Returns the same state looked at another way."""
        return replace(self, view=replace(self.view, **changes))  # type: ignore[arg-type]
