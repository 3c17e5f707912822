"""The words: what happened, and what the server's log says; outside text as plain text, newest last."""

from __future__ import annotations

from sessions.state import News
from tui.draw import Line, Span, line, line_width, title
from tui.view import Facts
from tui.widgets.head import resume_command
from tui.words import clock, plain_text, time_of_day, width, wrapped

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


def news_lines(facts: Facts, news: News, cells: int) -> list[Line]:
    """Returns one event: in as many lines as it takes where something is wrong, else in one that ends between words."""
    whole = news_line(facts, news)
    if line_width(whole) <= cells:
        return [whole]
    *before, words = whole
    indent = line_width(tuple(before))
    first, *rest = wrapped(words.text, cells - indent - 3)
    if news.level not in ("warning", "error"):
        first = first.rpartition(", ")[0] or first
        return [line(*before, Span(f"{first} {facts.glyphs.ellipsis}", words.role))]
    return [line(*before, Span(first, words.role)), *(line(Span(" " * indent + row, words.role)) for row in rest)]


def next_step(facts: Facts, cells: int) -> list[Line]:
    """Returns what can be done once nothing goes on any more."""
    state, g = facts.state, facts.glyphs
    if state.status == "finished":
        session = plain_text(state.session or "last", g)
        steps = ["R recommends, C compares", f"report: spectop report {session} -o r.html"]
    elif facts.over and not facts.view.lost:
        steps = [f"go on: {plain_text(resume_command(state), g)}"]
    else:
        return []
    if width("; ".join(steps)) <= cells - 4:
        steps = ["; ".join(steps)]
    return [line(Span(f" {g.arrow} {row}", "strong")) for step in steps for row in wrapped(step, cells - 4)]


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
    if facts.view.lost:
        found = [*found, News(facts.state.t, facts.state.at, "error", facts.view.lost)]
    step = next_step(facts, cells)
    room = max(1, rows - 1 - len(step))
    lines: list[Line] = []
    for news in reversed(found[-room:]):
        rows_of = news_lines(facts, news, cells)
        if lines and len(lines) + len(rows_of) > room:
            break
        lines = [*rows_of, *lines][:room]
    lines = [*lines, *step]
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
