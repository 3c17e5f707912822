"""Accepted drafts of the focused cell: how many steps accepted how many, and how far chains survive."""

from __future__ import annotations

from tui.cells import live_rates, shown
from tui.draw import Line, Span, line, title
from tui.graph import bar
from tui.metrics import THROUGHPUT
from tui.view import Facts
from tui.words import cut, number, plain_text, right, width, with_interval


def counted_point(facts: Facts) -> tuple[int, int] | None:
    """Returns the focused cell; while that is still running and none was chosen, the last one measured before it."""
    point = facts.point
    if facts.view.point is not None or point is None or histogram_of(facts, point):
        return point
    done = [
        c
        for c in facts.state.cells.values()
        if c.key.preset == facts.preset_name and c.figures is not None and c.figures.accepted_histogram
    ]
    if not done:
        return point
    last = max(done, key=lambda c: c.ended_t or 0.0).key
    return last.context, last.concurrency


def histogram_of(facts: Facts, point: tuple[int, int]) -> tuple[int, ...]:
    """Returns the histogram of a matrix point of the shown preset, its repetitions summed."""
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
    g, point = facts.glyphs, counted_point(facts)
    where = f" {g.dot} {point[0]} {g.times} {point[1]}" if point else ""
    out = [title(f"accepted drafts a step{where}", cells, g)]
    counts = histogram_of(facts, point) if point else ()
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
        if s.status == "waiting":
            figure = right(g.waiting, 14, g)
        length = max(0, cells - longest - 14 - 6)
        drawn = bar(abs(s.value) / top, length, g) if s.value is not None and top else ""
        looked_at = name == facts.preset_name
        role = "picked" if looked_at else ""
        words = {"failed": "failed", "not-in-effect": "not in effect", "skipped": "skipped"}.get(s.status, "")
        if s.status == "running":
            words = "broken off" if facts.over else f"{g.running} running"
            running = facts.running
            if running is not None and running.progress is not None and metric is THROUGHPUT:
                figure = right(number(live_rates(facts)[0]), 14, g)
        out.append(
            line(
                Span(f" {g.here if looked_at else ' '} "),
                Span(cut(plain_text(name, g), longest, g), role),
                Span(" " * (longest - width(cut(plain_text(name, g), longest, g)))),
                Span(figure),
                Span(s.marks[:1] or " ", "warn"),
                Span(f" {drawn}", "graph")
                if drawn
                else Span(
                    f" {words}",
                    "accent"
                    if s.status == "running"
                    else "bad"
                    if s.status in ("failed", "not-in-effect")
                    else "muted",
                ),
            )
        )
    return out
