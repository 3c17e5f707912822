"""Expected seconds to a session's end, as the head line shows it."""

from __future__ import annotations

from sessions.state import SessionState


def remaining_s(state: SessionState) -> float | None:
    """Returns the expected seconds to the end by the mean of the cells done so far, or `None` before there are any."""
    if state.status != "running":
        return None
    took = [
        c.ended_t - c.started_t
        for c in state.cells.values()
        if c.status == "measured" and c.started_t is not None and c.ended_t is not None
    ]
    if not took:
        return None
    return sum(took) / len(took) * (len(state.cells) - state.done_cells)
