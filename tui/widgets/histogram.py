"""Accepted drafts of the focused cell: how many steps accepted how many, and how far chains survive."""

from __future__ import annotations

from tui.draw import Line, Span, line, title
from tui.graph import bar
from tui.view import Facts
from tui.words import plain_text


def histogram_of(facts: Facts) -> tuple[int, ...]:
    """Returns the histogram of the focused cell, its repetitions summed."""
    point = facts.point
    if point is None:
        return ()
    total: list[int] = []
    for cell in facts.repetitions(facts.preset_name, *point):
        counts = cell.figures.accepted_histogram if cell.figures else None
        for i, count in enumerate(counts or ()):
            if i >= len(total):
                total.append(0)
            total[i] += count
    return tuple(total)


def draw_histogram(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns a bar a count of accepted drafts, with the share that survived to it."""
    g, point = facts.glyphs, facts.point
    where = f" {point[0]} {g.times} {point[1]}" if point else ""
    out = [title(f"accepted drafts{where}", cells, g)]
    counts = histogram_of(facts)
    total = sum(counts)
    if not total:
        out.append(line(Span("no per-step counts for this cell", "muted")))
        return out[:rows]
    room = rows - 1
    kept = counts if len(counts) <= room else (*counts[: room - 1], sum(counts[room - 1 :]))
    top = max(kept)
    survived = total
    for i, count in enumerate(kept):
        name = f"{i}+" if i == len(kept) - 1 and len(counts) > room else str(i)
        share = f"{count / total * 100:4.0f} %"
        reach = f"{survived / total * 100:4.0f} %"
        length = max(1, cells - 4 - 2 * 7 - 1)
        out.append(
            line(
                Span(f"{name:>3} ", "muted"),
                Span(bar(count / top, length, g), "graph"),
                Span(f" {share}"),
                Span(f" {reach}", "muted"),
            )
        )
        survived -= count
    return out[:rows]


def preset_strip(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the focused cell under all presets: a bar each, with figure and interval."""
    from tui.cells import shown
    from tui.words import cut, right, with_interval

    g, point, metric = facts.glyphs, facts.point, facts.metric
    if point is None:
        return []
    out = [title(f" this cell, all presets {g.dot} {metric.name} {g.dot} {point[0]} {g.times} {point[1]}", cells, g)]
    names = list(facts.state.presets)
    found = {n: shown(facts, n, *point) for n in names}
    top = max((abs(s.value) for s in found.values() if s.value is not None), default=0.0)
    longest = min(20, max((len(n) for n in names), default=6))
    room = max(0, rows - 1)
    if len(names) > room:
        here = names.index(facts.preset_name) if facts.preset_name in names else 0
        first = max(0, min(here - room // 2, len(names) - room))
        names = names[first : first + room]
    for name in names:
        s = found[name]
        figure = right(with_interval(s.value, s.half, g, sign=metric.relative), 14, g)
        length = max(0, cells - longest - 14 - 6)
        drawn = bar(abs(s.value) / top, length, g) if s.value is not None and top else ""
        looked_at = name == facts.preset_name
        role = "picked" if looked_at else ""
        words = {"failed": "failed", "not-in-effect": "not in effect", "skipped": "skipped"}.get(s.status, "")
        out.append(
            line(
                Span(f" {g.here if looked_at else ' '} "),
                Span(cut(plain_text(name, g), longest, g).ljust(longest), role),
                Span(figure),
                Span(s.marks[:1] or " ", "warn"),
                Span(f" {drawn}", "graph") if drawn else Span(f" {words}", "bad" if words else "muted"),
            )
        )
    return out
