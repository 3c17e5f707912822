"""Keys that move through a saved session: play, pause, faster, slower, from cell to cell.

Reading sessions back takes numpy; the screens of a running one do without, and are there sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessions.commands import Source
from tui.words import clock

if TYPE_CHECKING:
    from sessions.replay import ReplaySource


def replay_of(source: Source) -> ReplaySource | None:
    """Returns the source as a replay, where it is one."""
    if source.live:
        return None
    from sessions.replay import ReplaySource

    return source if isinstance(source, ReplaySource) else None


def how_it_plays(source: Source) -> str:
    """Returns how a saved session is being played: `10x`, `paused`; empty where its end stands still."""
    replay = replay_of(source)
    if replay is None:
        return ""
    if not replay.paused:
        return f"{replay.speed:g}x"
    return "paused" if replay.position_s < replay.length_s - 0.001 else ""


def toggle(replay: ReplaySource) -> str:
    """Plays or pauses; at the end, plays from the start. Returns what happens, in words."""
    if not replay.paused:
        replay.pause()
        return f"paused at {clock(replay.position_s)}"
    if replay.position_s >= replay.length_s - 0.001 and not replay.growing:
        replay.seek(0.0)
    replay.play()
    return f"playing at {replay.speed:g}x"


def change_speed(replay: ReplaySource, by: int) -> str:
    """Takes the next faster or slower speed; returns it in words."""
    from sessions.replay import SPEEDS

    nearest = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - replay.speed))
    replay.speed = SPEEDS[max(0, min(nearest + by, len(SPEEDS) - 1))]
    return f"{replay.speed:g}x"


def jump(replay: ReplaySource, cells: int) -> str:
    """Goes to where a cell began, so many cells from here; returns which, in words."""
    begun = replay.step_cell(cells)
    return f"{clock(begun.t)}: {begun.cell.text} begins" if begun is not None else "no cell begins there"


def go_to(replay: ReplaySource, place: str) -> str:
    """Goes to the session's start or end."""
    replay.seek(0.0 if place == "start" else replay.length_s)
    return f"the session's {place}"
