"""The command palette: what can be done now, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.screen import Screen

if TYPE_CHECKING:
    from tui.spectop import SpectopApp


def commands_for(app: SpectopApp, screen: Screen[object]) -> list[SystemCommand]:
    """Returns the commands that are valid in the present state, the dangerous ones behind their questions."""
    facts = app.facts
    state = facts.state
    out: list[SystemCommand] = []

    def add(title: str, words: str, action: Callable[[], object]) -> None:
        out.append(SystemCommand(title, words, action))

    if app.commandable:
        add("Pause" if not state.paused else "Go on", "between two cells", app.action_pause)
        if facts.running is not None:
            add("Skip the running cell", "asks first", app.action_skip)
        add("Measure the focused cell again", "asks first", app.action_repeat)
        for name in state.presets:
            if name != state.current_preset:
                add(f"Apply {name}", "puts the preset in effect; asks first", lambda name=name: app.apply(name))  # type: ignore[misc]
        add("Stop the sweep", "asks how", app.action_stop)
        add("Write a note", "into the session's log", app.action_note)
        add("Detach", "leave; the sweep goes on", app.action_detach)
    for name in state.presets:
        if name != facts.preset_name:
            add(f"Look at {name}", "shows its cells; nothing is switched", lambda name=name: app.look(preset=name))  # type: ignore[misc]
    for number, metric in enumerate(app.metrics):
        add(f"Show {metric.name}", metric.words, lambda number=number: app.look(metric=number))  # type: ignore[misc]
    add("Presets", "all presets with proof and best figures", app.action_presets)
    add("Evals", "verdicts, answers, lossless differences", app.action_evals)
    add("Sessions", "all sessions", app.action_sessions)
    add("Compare", "two presets of this session", app.action_compare)
    add("Recommend", "which preset to run", app.action_recommend)
    add("Copy this screen's table", "to the clipboard and to a file", app.action_copy)
    add("Picture of this screen", "as SVG, to a file", app.action_picture)
    for theme in app.offered_themes:
        add(f"Theme {theme}", "colours of these screens", lambda theme=theme: app.set_theme(theme))  # type: ignore[misc]
    add("Help", "keys, signs, figures", app.action_help)
    add("Leave", "asks what becomes of a running sweep", app.action_leave)
    return out
