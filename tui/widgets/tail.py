"""The words: what happened, and what the server's log says; outside text as plain text, newest last."""

from __future__ import annotations

from sessions.state import News
from tui.draw import Line, Span, line, title
from tui.view import Facts
from tui.words import clock, plain_text, time_of_day

LEVELS = ("info", "good", "warning", "error")
_ROLES = {"info": "", "good": "good", "warning": "warn", "error": "bad"}


def news_line(facts: Facts, news: News) -> Line:
    """Returns one event as a line: time, sign, words."""
    g = facts.glyphs
    sign = {"info": " ", "good": g.good, "warning": g.hot, "error": g.failed}[news.level]
    when = time_of_day(news.at) or clock(news.t)
    role = _ROLES[news.level]
    return line(
        Span(f" {when} ", "muted"),
        Span(f"{sign} ", role),
        Span(plain_text(news.words, g, 600), "" if news.level == "good" else role),
    )


def wanted_news(facts: Facts) -> list[News]:
    """Returns the events that fit level and search, oldest first."""
    least = {"info": 0, "good": 0, "warning": 2, "error": 3}[facts.view.level]
    needle = facts.view.search.casefold()
    return [
        n for n in facts.state.news if LEVELS.index(n.level) >= least and (not needle or needle in n.words.casefold())
    ]


def draw_events(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the newest events under a heading that says what is filtered."""
    heading = "events"
    if facts.view.level != "info":
        heading += f" {facts.glyphs.dot} {facts.view.level} and worse"
    heading = _with_search(facts, heading)
    found = wanted_news(facts)
    lines = [news_line(facts, n) for n in found[-max(0, rows - 1) :]] if rows > 1 else []
    if facts.view.lost:
        lost = News(facts.state.t, "", "error", facts.view.lost)
        lines = [*lines[-max(0, rows - 2) :], news_line(facts, lost)]
    if not lines:
        lines = [line(Span(" nothing that fits" if facts.view.search else " nothing yet", "muted"))]
    return [title(f" {heading}", cells, facts.glyphs), *lines][:rows]


def log_lines(facts: Facts) -> list[Line]:
    """Returns the server's log, oldest first, what is searched for told by its role."""
    g = facts.glyphs
    needle = facts.view.search.casefold()
    out: list[Line] = []
    for raw in facts.state.log:
        if needle and needle not in raw.casefold():
            continue
        left_out = raw.startswith("... ") and raw.endswith(" left out ...")
        low = raw[:400].lower()
        role = "warn" if left_out or "warn" in low else "bad" if "error" in low or "traceback" in low else ""
        out.append(line(Span(f" {plain_text(raw, g, 600)}", role)))
    return out


def draw_log(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the newest lines of the server's log."""
    lines = log_lines(facts)[-max(0, rows - 1) :] if rows > 1 else []
    if not lines:
        words = " nothing that fits" if facts.view.search else " the server has said nothing yet"
        lines = [line(Span(words, "muted"))]
    return [title(f" {_with_search(facts, 'server log')}", cells, facts.glyphs), *lines][:rows]


def _with_search(facts: Facts, heading: str) -> str:
    return (
        f"{heading} {facts.glyphs.dot} /{plain_text(facts.view.search, facts.glyphs, 40)}"
        if facts.view.search
        else heading
    )
