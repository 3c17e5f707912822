"""What an operator can ask of a running session, and what is answered; the same from a screen and from a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

from reconfig.presets import Preset
from sessions.state import SessionState

CommandName = Literal[
    "pause",
    "resume",
    "skip",
    "repeat",
    "apply",
    "stop",
    "stop-after-cell",
    "note",
    "add-preset",
    "skip-preset",
    "reorder",
]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One wish.

    Attributes:
        name: "skip" and "repeat" take a cell's key text as argument (empty: the running or the last cell); "apply",
            "skip-preset" a preset's name; "note" the text; "reorder" the presets' names, comma separated.
        preset: the new preset of "add-preset".
    """

    name: CommandName
    argument: str = ""
    preset: Preset | None = None


class Reply(msgspec.Struct, frozen=True):
    """Whether the engine takes the command, and what will happen (or why not), in words."""

    ok: bool
    words: str


class Source(Protocol):
    """Where a screen's states come from: a running engine, or a saved session (`live` tells)."""

    live: bool

    def states(self) -> AsyncIterator[SessionState]:
        """Yields a state whenever something changed, at most about four times a second; the newest wins.

        Ends when the session has ended and everything was shown. Raises `sessions.errors.EngineLost` when a running
        engine went away without ending its session.
        """
        ...

    async def command(self, command: Command) -> Reply:
        """Sends a command; a saved session answers that it cannot."""
        ...

    async def close(self) -> None:
        """Gives back what it holds; the engine does not notice."""
        ...
