"""The application's inner half: takes states from a source, keeps the facts, draws them at the terminal's pace.

It measures nothing and decides nothing: what it shows is the newest state and the operator's view of it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.text import Text
from textual import work
from textual.app import App
from textual.events import Resize
from textual.filter import LineFilter
from textual.geometry import Size
from textual.worker import Worker, WorkerState

from sessions.commands import Command, Reply, Source
from sessions.errors import EngineLost, SpectopError
from sessions.notify import terminal_notice
from sessions.remaining import remaining_s
from sessions.state import SessionState
from tui.alerts import alert_between
from tui.ascii_filter import AsciiOnly
from tui.clipboard import write_capture
from tui.glyphs import Glyphs, choose
from tui.pace import FASTEST_S, TICK_S, Pace
from tui.replaying import how_it_plays
from tui.screens.base import SpectopScreen
from tui.terminal import CHECK_S, end_soon, terminal_is_gone, terminal_size
from tui.theme import ANSI_ROLES, THEMES, role_colours
from tui.view import Facts, View
from tui.words import cut, plain_text

BELOW_S = 5.0
"""Seconds between two drawings of a screen that lies under a question."""
SETTLE_S = 1.0
"""Seconds from the start to the first collection of garbage."""
STILL = ("finished", "failed", "stopped", "paused", "idle")
"""Phases in which no elapsed time ticks on its own."""


def settle_garbage() -> None:
    """Collects garbage from here on, but looks no more at what is there already.

    Modules, styles and widgets are some hundred thousand objects that stay: going through them takes up to 60 ms, in
    which no key does anything.
    """
    gc.enable()
    gc.freeze()


@runtime_checkable
class Connects(Protocol):
    """A source that has to be connected before it gives states."""

    async def connect(self) -> None:
        """Connects, or raises `EngineLost`."""
        ...


class WatchingApp(App[str]):
    """Watches a source.

    Args:
        source: where states come from.
        glyphs: signs to draw with; by the locale unless given.
        clock: seconds on any monotonic clock, for times that tick between two states.
        period_s: seconds between frames at most.
        folder: the session's folder, where there is one.
        read_only: commands are refused.
    """

    CSS_PATH = "app.tcss"

    def __init__(
        self,
        source: Source,
        *,
        glyphs: Glyphs | None = None,
        clock: Callable[[], float] = time.monotonic,
        period_s: float = FASTEST_S,
        folder: Path | None = None,
        read_only: bool = False,
    ) -> None:
        self._ascii_only = AsciiOnly()
        self.source = source
        self.folder = folder
        self.read_only = read_only
        self.facts = Facts(glyphs=glyphs or choose(os.environ), view=self._first_view())
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        for theme in THEMES:
            self.register_theme(theme)
        # Textual takes TEXTUAL_THEME before our themes are known: only a change makes it look again.
        self.set_reactive(App.theme, "textual-dark")
        self.theme = self._first_theme()
        self.pace = Pace(self._backlog, period_s)
        self._clock = clock
        self._received = clock()
        self._below_drawn = self._shown = self._received
        self._newest: SessionState | None = None
        self._fresh = asyncio.Event()

    def _first_view(self) -> View:
        return View(live=self.source.live, replay=how_it_plays(self.source))

    def _first_theme(self) -> str:
        wished = os.environ.get("TEXTUAL_THEME", "")
        if wished in self.available_themes:
            return wished
        return "ansi-dark" if self.no_color else THEMES[0].name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Returns colours of our own roles for themes that are not ours."""
        return ANSI_ROLES if self.native_ansi_color else role_colours(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Returns Textual's filters, and one that leaves only ASCII where the terminal has no more."""
        filters = super().get_line_filters()
        return [*filters, self._ascii_only] if self.facts.glyphs.name == "ascii" else filters

    def _backlog(self) -> int:
        # Textual has no public word for how much output waits; the pinned version's writer thread keeps a queue.
        writer: Any = getattr(self._driver, "_writer_thread", None)
        queue = getattr(writer, "_queue", None)
        return int(queue.qsize()) if queue is not None else 0

    def on_mount(self) -> None:
        """Starts watching."""
        self.follow_source()
        self.draw_frames()
        self.set_interval(TICK_S, self._tick)
        if not self.is_headless:
            self.set_timer(SETTLE_S, settle_garbage)
        if not self.is_headless and not self.is_web:
            self._watch_terminal()

    def _watch_terminal(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self._end_by_signal, 128 + number)
        self.set_interval(CHECK_S, self._look_for_terminal)

    def _end_by_signal(self, status: int) -> None:
        end_soon(status)
        self.exit("left", return_code=status)

    def _look_for_terminal(self) -> None:
        if terminal_is_gone():
            self._end_by_signal(128 + signal.SIGHUP)
            return
        size = terminal_size()
        if size is not None and size != tuple(self.size):  # the last of a storm of resizes was not told
            self.post_message(Resize(Size(*size), Size(*size)))

    async def on_unmount(self) -> None:
        """Gives the source back."""
        await self.source.close()

    @work(exclusive=True, exit_on_error=False, group="source")
    async def follow_source(self) -> None:
        """Takes states as they come; the newest wins."""
        try:
            if isinstance(self.source, Connects):
                await self.source.connect()
            async for state in self.source.states():
                self._newest = state
                self._fresh.set()
        except EngineLost as gone:
            self._lose(str(gone) or "the engine's process is gone")
        except (SpectopError, OSError) as broken:
            self._lose(f"no more news from the engine: {broken}")

    @work(exclusive=True, exit_on_error=True, group="frames")
    async def draw_frames(self) -> None:
        """Draws the newest state whenever there is one and the terminal has taken the frame before."""
        while True:
            await self._fresh.wait()
            if self.pace.may_draw():
                self._fresh.clear()
                if self._newest is not None:
                    self._received = self._clock()
                    self._wake(alert_between(self.facts.state, self._newest))
                    self._show(replace(self.facts, state=self._newest))
            await asyncio.sleep(self.pace.period_s)

    def _wake(self, words: str | None) -> None:
        """Rings the terminal and shows a desktop notice where it can; like Textual's own clipboard, one write."""
        if words is not None and self.facts.view.live and self._driver is not None:
            self._driver.write(terminal_notice(words))

    async def change_source(self, source: Source, folder: Path | None) -> None:
        """Watches another source in place of this one."""
        old, self.source, self.folder = self.source, source, folder
        self._newest = None
        self.facts = replace(self.facts, state=SessionState(), view=self._first_view())
        self.follow_source()
        await old.close()

    def _lose(self, words: str) -> None:
        if self._newest is not None:
            self.facts = replace(self.facts, state=self._newest)
        self.look(lost=words)

    def _tick(self) -> None:
        """Lets the elapsed times go on where no state came meanwhile that did."""
        ticks = self.facts.view.live and not self.facts.view.lost and self.facts.state.phase not in STILL
        if ticks and self._clock() - self._shown >= TICK_S / 2 and self.pace.may_draw():
            self._show(self.facts)

    def _show(self, facts: Facts) -> None:
        self._shown = self._clock()
        since = self._shown - self._received if facts.view.live and facts.state.phase not in STILL else 0.0
        left = remaining_s(facts.state)
        self.facts = replace(facts, now_t=facts.state.t + since, left_s=left)
        with self.batch_update():
            self._draw_screen()

    def _draw_screen(self) -> None:
        """Draws the screen on top; one that lies under a question only now and then, as all of it is sent anew."""
        if isinstance(self.screen, SpectopScreen):
            self.screen.show_facts()
            return
        now = self._clock()
        below = [s for s in self.screen_stack if isinstance(s, SpectopScreen)]
        if below and now - self._below_drawn >= BELOW_S:
            self._below_drawn = now
            below[-1].show_facts()

    def look(self, **changes: object) -> None:
        """Changes the view and draws it at once."""
        self._show(self.facts.looking(**changes))

    @work(exit_on_error=False, group="commands")
    async def send(self, command: Command) -> None:
        """Sends a command; what is answered is told."""
        reply = await self.answer_to(command)
        level = "warning" if not self.source.live or self.read_only else "error"
        self.tell(reply.words, "information" if reply.ok else level)

    async def answer_to(self, command: Command) -> Reply:
        """Sends a command and returns what is answered; why not, where there is nothing to send it to."""
        if not self.source.live:
            return Reply(False, "this is a saved session: there is nothing to command")
        if self.read_only:
            return Reply(False, "these screens are read-only")
        if self.facts.view.lost:
            return Reply(False, "the engine is gone: nothing can be commanded")
        try:
            return await self.source.command(command)
        except (SpectopError, OSError) as broken:
            return Reply(False, f"not sent: {broken}")

    def _fatal_error(self) -> None:
        """Ends the screens after a fault in themselves: words for the operator, the traceback into a file.

        Textual would print the traceback with all local values onto the terminal.
        """
        trace = traceback.format_exc()
        try:
            kept = f"The details are in {write_capture(trace, 'txt', now=datetime.now(UTC))}"
        except SpectopError as error:
            kept = f"The details could not be kept: {error}"
        last = plain_text(trace.strip().rpartition("\n")[2], self.facts.glyphs, 300)
        words = f"spectop: a fault in the screens: {last}\n{kept}\nA sweep is not touched by it: spectop attach"
        self._exit_renderables.append(Text(words))
        self._return_code = 1
        self._close_messages_no_wait()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Tells of a fault in work beside the screens."""
        self.tell_fault(event)

    def tell_fault(self, event: Worker.StateChanged) -> None:
        """Turns an unexpected fault of a worker into words."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            self.tell(f"fault in {event.worker.name}: {type(error).__name__}: {error}", "error")

    def tell(self, words: str, severity: str = "information") -> None:
        """Shows a notification of plain text in place of the one before it."""
        level: Any = severity
        text = cut(plain_text(words, self.facts.glyphs), max(20, (self.size.width - 10) * 2), self.facts.glyphs)
        self.clear_notifications()
        self.notify(text, severity=level, markup=False, timeout=5 if severity == "error" else 3)
