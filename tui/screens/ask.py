"""Questions: one that is answered by a key and says what each answer does, and one that takes a line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.draw import Line, Span, line
from tui.glyphs import Glyphs
from tui.widgets.line_input import LineInput
from tui.widgets.panel import ROLE_CLASSES, Panel
from tui.words import wrapped

_WIDTH = 66
"""Cells for words where the terminal has room for the whole question."""


class Ask(ModalScreen[str]):
    """Asks; the result is the chosen key, or "" when the operator backs out.

    Args:
        title: the question.
        words: what will happen, a line each.
        choices: keys and what they do; the last one backs out.
        glyphs: signs to draw with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "back_out", "Cancel")]
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    CSS_PATH = "ask.tcss"

    def __init__(self, title: str, words: list[str], choices: list[tuple[str, str]], glyphs: Glyphs) -> None:
        super().__init__()
        self.question = title
        self.words = words
        self.choices = choices
        self.glyphs = glyphs

    def compose(self) -> ComposeResult:
        """One panel in the middle."""
        with Vertical(id="question", classes=self.glyphs.name):
            panel = Panel(self._draw, glyphs=self.glyphs, id="words")
            panel.styles.height = len(self._lines(_WIDTH))
            yield panel

    def _draw(self, cells: int, rows: int) -> list[Line]:
        return self._lines(cells)

    def on_resize(self) -> None:
        """Gives the words as many lines as they take now."""
        for panel in self.query("#words"):
            panel.styles.height = len(self._lines(panel.size.width or _WIDTH))

    def _lines(self, cells: int) -> list[Line]:
        out = [*self._above(cells)]
        out.extend(line(Span(f" {key} ", "key"), Span(f"  {what}")) for key, what in self.choices)
        return out

    def _above(self, cells: int) -> list[Line]:
        out = [line(Span(row, "head")) for row in wrapped(self.question, cells)]
        out.append(())
        out.extend(line(Span(row)) for words in self.words for row in wrapped(words, cells))
        out.append(())
        return out

    def on_key(self, event: Key) -> None:
        """Takes the key of a choice."""
        pressed = event.character or event.key
        if pressed in [key for key, _ in self.choices]:
            event.stop()
            self.dismiss("" if pressed == self.choices[-1][0] else pressed)

    def on_panel_clicked(self, event: Panel.Clicked) -> None:
        """Takes a choice by the mouse."""
        chosen = event.y - len(self._above(event.panel.size.width))
        if 0 <= chosen < len(self.choices):
            last = chosen == len(self.choices) - 1
            self.dismiss("" if last else self.choices[chosen][0])

    def action_back_out(self) -> None:
        """Leaves without doing anything."""
        self.dismiss("")


class AskLine(ModalScreen[str | None]):
    """Asks for a line of text; the result is `None` when the operator backs out."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "back_out", "Cancel")]
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    CSS_PATH = "ask.tcss"

    def __init__(self, title: str, hint: str, glyphs: Glyphs, *, value: str = "") -> None:
        super().__init__()
        self.question = title
        self.hint = hint
        self.glyphs = glyphs
        self.value = value

    def compose(self) -> ComposeResult:
        """The question and its field."""
        with Vertical(id="question", classes=self.glyphs.name):
            head = Panel(lambda w, h: [line(Span(self.question, "head"))], glyphs=self.glyphs)
            head.styles.height = 1
            yield head
            yield LineInput(value=self.value, hint=self.hint, id="line")

    def on_mount(self) -> None:
        """Puts the cursor into the field."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Takes the line."""
        self.dismiss(event.value.strip())

    def action_back_out(self) -> None:
        """Leaves without doing anything."""
        self.dismiss(None)
