"""A line of what happened, for those who watch."""

from __future__ import annotations

from msgspec.structs import replace

from sessions.events import AnyEvent, Level
from sessions.state import NEWS_KEPT, News, SessionState


def with_news(state: SessionState, event: AnyEvent, level: Level, words: str) -> SessionState:
    """Returns the state with one more line, at the event's moment; the oldest beyond `NEWS_KEPT` go."""
    line = News(event.t, event.at, level, words)
    return replace(state, news=(*state.news[-(NEWS_KEPT - 1) :], line))
