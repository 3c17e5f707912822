"""What `y` copies besides a screen's lines: whose figures they are, and a command that the operator was asked for."""

from __future__ import annotations

from tui.view import Facts
from tui.widgets.steps import asks_operator
from tui.words import plain_text


def copied_heading(facts: Facts, words: str) -> str:
    """Returns the first line of a copy: `demo 2026-11-30 00:16 · b16t4-w2048 · 60 tokens × 8 users · SIMULATED`.

    Args:
        facts: the session.
        words: what of it is copied.
    """
    state, g = facts.state, facts.glyphs
    label = plain_text(state.label or state.session or "session", g)
    began = state.started_at[:16].replace("T", " ")
    parts = [f"{label} {began}".rstrip(), words, "SIMULATED" if state.simulated else ""]
    return f" {g.dot} ".join(part for part in parts if part)


def asked_command(facts: Facts) -> str:
    """Returns what the operator is asked to restart the server with, in one line; empty when nothing is asked."""
    preset = facts.state.presets.get(facts.state.current_preset or "")
    asked = [s.detail for s in preset.steps if asks_operator(facts, s)] if preset is not None else []
    return plain_text(asked[-1], facts.glyphs, 100_000) if asked else ""
