"""A small form that makes a preset while the sweep runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from reconfig.presets import Preset, PresetEntry, PresetError, expand
from sessions.commands import Reply
from tui.draw import Line, Span, line
from tui.glyphs import Glyphs
from tui.widgets.line_input import LineInput
from tui.widgets.panel import ROLE_CLASSES, Panel
from tui.words import plain_text, wrapped

Offer = Callable[[Preset], Awaitable[Reply]]
"""Gives a preset to the engine, which takes it or says why not."""

ALGORITHMS = ("DDTREE", "DFLASH", "NGRAM", "NONE")


class AddPreset(ModalScreen[str | None]):
    """A small form that stays until its preset is taken.

    The result is what the engine answered, or `None` when the operator backs out.

    Args:
        glyphs: signs to draw with.
        known: the session's presets: their names are taken, their algorithms are known besides the usual ones.
        offer: gives the preset to the engine.
    """

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "back_out", "Cancel")]
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    CSS_PATH = "ask.tcss"
    FIELDS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("algorithm", "DDTREE, DFLASH, NGRAM or NONE"),
        ("budget", "nodes of the tree"),
        ("topk", "candidates a position"),
        ("window", "tokens, none, or empty to ask nothing"),
        ("name", "made of the settings when empty"),
        ("flags", "further arguments of the server, as they are"),
    )

    def __init__(self, glyphs: Glyphs, known: Sequence[Preset], offer: Offer) -> None:
        super().__init__()
        self.glyphs = glyphs
        self._taken = [p.name for p in known]
        self._algorithms = tuple(dict.fromkeys((*ALGORITHMS, *(p.algorithm for p in known))))
        self._offer = offer
        self._problem = ""

    def compose(self) -> ComposeResult:
        """A field a line, and a line for what is wrong."""
        with Vertical(id="question", classes=self.glyphs.name):
            head = Panel(lambda w, h: [line(Span("Add a preset; its cells come after the others", "head"))])
            head.styles.height = 1
            yield head
            for name, hint in self.FIELDS:
                with Horizontal():
                    yield Panel(lambda w, h, name=name: [line(Span(name, "muted"))], classes="label")  # type: ignore[misc]
                    yield LineInput(hint=hint, id=name)
            problem = Panel(self._problem_lines, glyphs=self.glyphs, id="problem")
            problem.styles.height = 3
            yield problem
            g = self.glyphs
            keys = f"{g.enter} next, on the last field adds {g.dot} esc cancels"
            foot = Panel(lambda w, h: [line(Span(keys, "muted"))], glyphs=g)
            foot.styles.height = 1
            yield foot

    def _problem_lines(self, cells: int, rows: int) -> list[Line]:
        told = wrapped(plain_text(self._problem, self.glyphs, 400), cells) if self._problem else []
        return [line(Span(row, "bad")) for row in told]

    def on_mount(self) -> None:
        """Begins with the first field."""
        self.query_one("#algorithm", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Goes to the next field; after the last one, takes the preset or says what is wrong."""
        names = [name for name, _ in self.FIELDS]
        here = names.index(event.input.id or "")
        if here + 1 < len(names):
            self.query_one(f"#{names[here + 1]}", Input).focus()
            return
        try:
            preset = self._entered()
        except PresetError as wrong:
            self._refuse(str(wrong).replace("presets[1]: ", ""))
        else:
            self._give(preset)

    @work(exclusive=True, exit_on_error=False, group="adding")
    async def _give(self, preset: Preset) -> None:
        reply = await self._offer(preset)
        if reply.ok:
            self.dismiss(reply.words)
        else:
            self._refuse(reply.words)

    def _refuse(self, words: str) -> None:
        """Says what is wrong and goes to the field that it names; all that was typed stays."""
        self._problem = words
        self.query_one("#problem", Panel).redraw()
        names = [name for name, _ in self.FIELDS]
        field = words.partition(":")[0]
        self.query_one(f"#{field if field in names else names[0]}", Input).focus()

    def _entered(self) -> Preset:
        text = {name: self.query_one(f"#{name}", Input).value.strip() for name, _ in self.FIELDS}

        def whole(name: str) -> int | None:
            if not text[name]:
                return None
            try:
                value = int(text[name])
            except ValueError as wrong:
                raise PresetError(f"{name}: {text[name]!r} is not a whole number") from wrong
            if value < 1:
                raise PresetError(f"{name}: 1 or more, not {value}")
            return value

        algorithm = text["algorithm"].upper() or "DDTREE"
        if algorithm not in self._algorithms:
            known = f"{', '.join(self._algorithms[:-1])} or {self._algorithms[-1]}"
            raise PresetError(f"algorithm: {known}, not {text['algorithm']}")
        window = "none" if text["window"].lower() == "none" else whole("window")
        entry = PresetEntry(
            algorithm=algorithm,
            budget=whole("budget"),
            topk=whole("topk"),
            window=window,  # type: ignore[arg-type]
            name=text["name"] or None,
            flags=text["flags"].split(),
        )
        preset = expand([entry])[0]
        if preset.name in self._taken:
            raise PresetError(f"name: there is a preset {preset.name} already; give this one another")
        return preset

    def action_back_out(self) -> None:
        """Leaves without adding anything."""
        self.dismiss(None)
