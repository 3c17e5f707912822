"""When an attached terminal is to be woken: a sweep ended, or a preset could not be put in effect."""

from __future__ import annotations

from sessions.state import SessionState


def alert_between(before: SessionState, after: SessionState) -> str | None:
    """Returns the words for a bell and a desktop notice, or `None` when nothing happened that is worth one.

    Args:
        before: the state shown last; an empty one (nothing shown yet) alerts nobody.
        after: the newest state.
    """
    if not before.session or before.session != after.session:
        return None
    if before.status == "running" and after.status != "running":
        return f"spectop: {after.label} {after.status}, {after.end_words}".rstrip(", ")
    failed = [
        name
        for name, preset in after.presets.items()
        if preset.status == "not-in-effect"
        and name in before.presets
        and before.presets[name].status != "not-in-effect"
    ]
    return f"spectop: {', '.join(failed)} is not in effect" if failed else None
