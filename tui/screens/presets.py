"""All presets: settings, proof, best figures, pass rates; apply, skip, reorder, add one on the fly."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from reconfig.presets import Preset
from sessions.commands import Command, Reply
from tui.screens.add_preset import AddPreset
from tui.screens.listed import ListedScreen
from tui.widgets.preset_page import preset_heading, preset_lines, preset_row


class Presets(ListedScreen):
    """One line a preset; below, what proves the chosen one and what is known of it."""

    TITLE_WORDS = "presets"
    KEYS = (
        ("enter", "apply"),
        ("k", "skip"),
        ("J K", "move down, up"),
        ("a", "add"),
        ("y", "copy"),
        ("?", "help"),
        ("esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "skip_preset", "Skip this preset"),
        Binding("J", "reorder(1)", "Later in the sweep"),
        Binding("K", "reorder(-1)", "Sooner in the sweep"),
        Binding("a", "add", "Add a preset"),
    ]

    def fill(self) -> None:
        """Draws the table and the chosen preset."""
        facts = self.facts
        presets = facts.state.presets
        cells = self.listing.size.width - 1
        rows = [preset_row(facts, i, p, cells) for i, p in enumerate(presets.values(), start=1)]
        self.listing.set_rows([preset_heading(facts, cells)], rows, list(presets), empty="no presets yet")
        chosen = presets.get(self.listing.chosen)
        self.page.set_lines(preset_lines(facts, chosen, self.page.size.width) if chosen else ())

    def action_choose(self) -> None:
        """Asks whether the chosen preset is to be put in effect."""
        if name := self.listing.chosen:
            self.spectop.apply(name)

    def action_skip_preset(self) -> None:
        """Asks whether the chosen preset is to be left out."""
        if name := self.listing.chosen:
            words = ["Its cells that are not measured yet are left out of the sweep."]
            self.spectop.ask_command(f"Skip {name}?", words, Command(name="skip-preset", argument=name))

    def action_reorder(self, by: int) -> None:
        """Moves the chosen preset in the order of those to come."""
        names = list(self.facts.state.presets)
        name = self.listing.chosen
        if not name:
            return
        here = names.index(name)
        there = max(0, min(here + by, len(names) - 1))
        if here != there:
            names.insert(there, names.pop(here))
            self.spectop.send(Command(name="reorder", argument=",".join(names)))

    def action_add(self) -> None:
        """Asks for a new preset; the form stays until the engine has taken it."""

        async def offer(preset: Preset) -> Reply:
            return await self.spectop.answer_to(Command(name="add-preset", preset=preset))

        def added(words: str | None) -> None:
            if words:
                self.spectop.tell(words)

        if self.spectop.may_command():
            known = [p.preset for p in self.facts.state.presets.values()]
            self.app.push_screen(AddPreset(self.facts.glyphs, known, offer), added)
