"""A saved session as a source of its one state, for the screens that open sessions from the list."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sessions.commands import Command, Reply
from sessions.state import SessionState


class Saved:
    """A `Source` of a session that is over."""

    live = False

    def __init__(self, state: SessionState) -> None:
        self._state = state

    async def states(self) -> AsyncIterator[SessionState]:
        """Yields the session's last state."""
        yield self._state

    async def command(self, command: Command) -> Reply:
        """Answers that nothing can be commanded."""
        return Reply(ok=False, words=f"a saved session cannot {command.name}")

    async def close(self) -> None:
        """Has nothing to give back."""
