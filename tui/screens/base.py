"""What all screens have in common: the two lines on top, the keys at the bottom, facts from the application."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.screen import Screen
from textual.worker import Worker

from tui.copying import copied_heading
from tui.draw import Line, Span, line, line_width
from tui.glyphs import Glyphs
from tui.view import Facts
from tui.widgets.head import draw_head
from tui.widgets.panel import ROLE_CLASSES, Panel

if TYPE_CHECKING:
    from tui.spectop import SpectopApp


@functools.lru_cache(64)
def draw_keys(keys: tuple[tuple[str, str], ...], cells: int, glyphs: Glyphs) -> list[Line]:
    """Returns a line of keys with what they do; those that do not fit are left out from the right, not cut.

    The last two are always there.
    """
    always = keys[-2:]
    out: list[Span] = []
    room = cells - sum(len(k) + len(w) + 3 for k, w in always)
    for key, words in (*keys[:-2], *always):
        part = [Span(f" {_key_name(key, glyphs)}", "strong"), Span(f" {words}", "muted"), Span(" ")]
        taken = line_width(tuple(part))
        if (key, words) not in always:
            if taken > room:
                continue
            room -= taken
        out.extend(part)
    return [line(*out)]


def _key_name(key: str, glyphs: Glyphs) -> str:
    return glyphs.enter if key == "enter" else key


class SpectopScreen(Screen[None]):
    """A screen that draws facts."""

    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (("?", "help"), ("esc", "back"))
    TITLE_WORDS: ClassVar[str] = ""
    OF_SESSION: ClassVar[bool] = True
    """Whether what it shows belongs to the session that is watched."""
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "back", "Back")]
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    AUTO_FOCUS = ""

    @property
    def spectop(self) -> SpectopApp:
        """The application, by its own type."""
        app: Any = self.app
        return app  # type: ignore[no-any-return]

    @property
    def facts(self) -> Facts:
        """What there is to draw."""
        return self.spectop.facts

    def head(self) -> Panel:
        """Makes the panel of the two lines on top."""
        return Panel(lambda w, h: draw_head(self.facts, w, h), glyphs=self.facts.glyphs, id="head")

    def keys_line(self) -> Panel:
        """Makes the panel of the keys."""
        return Panel(lambda w, _: draw_keys(self.keys(), w, self.facts.glyphs), glyphs=self.facts.glyphs, id="keys")

    def keys(self) -> tuple[tuple[str, str], ...]:
        """Returns the keys that do something now, with what they do."""
        return self.KEYS

    def on_screen_resume(self) -> None:
        """Draws what changed while another screen was on top."""
        self.show_facts()

    def show_facts(self) -> None:
        """Draws what changed; called by the application for every new state or view."""
        for panel in self.query(Panel):
            panel.redraw()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Tells of a fault in work that ran beside the screen, whatever it is: the screens go on."""
        self.spectop.tell_fault(event)

    def copied_heading(self) -> str:
        """Returns the first line of what `y` copies: whose figures these are."""
        return copied_heading(self.facts, self.title_words()) if self.OF_SESSION else ""

    def title_words(self) -> str:
        """Returns what the screen is called."""
        return self.TITLE_WORDS

    def copied_lines(self) -> list[Line]:
        """Returns what `y` copies: everything but the head and the keys."""
        panels = [p for p in self.query(Panel) if p.display and p.id not in ("head", "keys")]
        return [row for p in panels for row in p.lines]

    def action_back(self) -> None:
        """Goes back to the screen below."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()
