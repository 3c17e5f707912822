"""A small form that makes a preset while the sweep runs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from reconfig.presets import Preset, PresetEntry, PresetError, expand
from tui.draw import Span, line
from tui.glyphs import Glyphs
from tui.widgets.panel import Panel
from tui.words import plain_text


class AddPreset(ModalScreen[Preset | None]):
    """A small form; the result is the preset, or `None` when the operator backs out."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "back_out", "Cancel")]
    CSS_PATH = "ask.tcss"
    FIELDS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("algorithm", "DDTREE, DFLASH, NGRAM or NONE"),
        ("budget", "nodes of the tree"),
        ("topk", "candidates a position"),
        ("window", "tokens, none, or empty to ask nothing"),
        ("name", "made of the settings when empty"),
        ("flags", "further arguments of the server, as they are"),
    )

    def __init__(self, glyphs: Glyphs, taken: list[str]) -> None:
        super().__init__()
        self.glyphs = glyphs
        self._taken = taken
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
                    yield Input(placeholder=hint, compact=True, id=name)
            problem = Panel(
                lambda w, h: [line(Span(x, "bad")) for x in self._problem.splitlines()],
                glyphs=self.glyphs,
                id="problem",
            )
            problem.styles.height = 2
            yield problem

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
            self.dismiss(self._entered())
        except PresetError as wrong:
            self._problem = plain_text(str(wrong).replace("presets[1]: ", ""), self.glyphs, 400)
            self.query_one("#problem", Panel).redraw()
            self.query_one("#algorithm", Input).focus()

    def _entered(self) -> Preset:
        text = {name: self.query_one(f"#{name}", Input).value.strip() for name, _ in self.FIELDS}

        def whole(name: str) -> int | None:
            if not text[name]:
                return None
            if not text[name].isdigit():
                raise PresetError(f"{name}: {text[name]!r} is not a whole number")
            return int(text[name])

        window = "none" if text["window"].lower() == "none" else whole("window")
        entry = PresetEntry(
            algorithm=text["algorithm"].upper() or "DDTREE",
            budget=whole("budget"),
            topk=whole("topk"),
            window=window,  # type: ignore[arg-type]
            name=text["name"] or None,
            flags=text["flags"].split(),
        )
        preset = expand([entry])[0]
        if preset.name in self._taken:
            raise PresetError(f"there is a preset {preset.name} already; give this one a name")
        return preset

    def action_back_out(self) -> None:
        """Leaves without adding anything."""
        self.dismiss(None)
