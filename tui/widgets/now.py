"""What is running now: live rates over time, the server's own gauges, the best preset for the cell."""

from __future__ import annotations

from tui.cells import lead_over, live_rates, point_cells, shown
from tui.draw import Line, Span, line, title
from tui.graph import area, by_time
from tui.metrics import THROUGHPUT
from tui.view import Facts
from tui.words import cut, decimals, number, plain_text, right, share, width, with_interval

WINDOW_S = 60.0
"""Seconds of history that the graphs show."""


def draw_now(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns rates, gauges and the best preset of the focused cell, as much as fits."""
    g, state = facts.glyphs, facts.state
    running = facts.running
    progress = running.progress if running else None
    tok_s, accept = live_rates(facts)
    words = "now, last minute" if running else "last measured minute"
    if facts.view.lost:
        words = facts.last_seen
    out: list[Line] = [title(words, cells, g)]
    graph_cells = max(0, cells - 8 - 7)
    spare = rows - 1 - 2
    each = max(1, min(5, spare // 2))
    gap = spare >= 2 * each + 1 and each > 1
    times = [p.t for p in state.history]
    dots = graph_cells * (2 if g.braille else 1)
    series = ([p.tok_s for p in state.history], [p.acceptance_length for p in state.history])
    drawn = by_time(times, series, WINDOW_S, dots)
    for name, values, newest in zip(("tok/s", "accept"), drawn, (tok_s, accept), strict=True):
        for i, row in enumerate(area(values, graph_cells, each, g)):
            figure = right(number(newest) if i == 0 and running else "", 6, g)
            out.append(line(Span(f"{name if i == 0 else '':<7}", "muted"), Span(row, "graph"), Span(f" {figure}")))
        if gap:
            out.append(())
    server = state.server
    gauges = []
    if server is not None:
        for name, text in (
            ("running" if cells >= 34 else "run", number(server.running, 0)),
            ("waiting" if cells >= 34 else "wait", number(server.waiting, 0)),
            ("kv", share(server.token_usage)),
        ):
            gauges.extend([Span(f"{name} ", "muted"), Span(f"{text}  ", "muted" if facts.over else "")])
    elif progress is not None:
        gauges = [Span("running ", "muted"), Span(f"{progress.running}")]
    out.append(line(*gauges))
    if server is not None and server.problem:
        out.append(line(Span(f"{g.hot} {plain_text(server.problem, g)}", "warn")))
    out.append(best_here(facts, cells))
    return out[:rows]


def best_here(facts: Facts, cells: int) -> Line:
    """Returns the best other preset of the focused cell with its lead, or that the shown one is the best."""
    g, point = facts.glyphs, facts.point
    if point is None:
        return ()
    rates = {name: s for name in facts.state.presets if (s := shown(facts, name, *point, THROUGHPUT)).value is not None}
    mine = rates.get(facts.preset_name)
    if len(rates) < 2:
        return line(Span("best here ", "muted"), Span("one preset measured so far" if rates else g.waiting, "muted"))
    best = max(rates, key=lambda n: rates[n].value or 0.0)
    if mine is None:
        return line(Span("best here ", "muted"), Span(cut(plain_text(best, g), cells - 10, g), "strong"))
    if best == facts.preset_name:
        best = max((n for n in rates if n != best), key=lambda n: rates[n].value or 0.0)
        words = "next here "
    else:
        words = "best here "
    words = words if cells >= 34 else words.replace("here ", "")
    of = {n: at.estimate(THROUGHPUT.estimate) if (at := point_cells(facts, n, *point)) else None for n in rates}
    lead, half, noise = lead_over(of[best], of[facts.preset_name])
    figure = with_interval(lead, half, g, sign=True)
    tail = f" {g.same} noise" if noise else " %"
    if len(words) + len(figure) + len(tail) + min(12, width(best)) >= cells:
        figure = f"{lead:+.{decimals(lead, half)}f}" if lead is not None else g.absent
    name = cut(plain_text(best, g), max(4, cells - len(words) - len(figure) - len(tail) - 1), g)
    role = "muted" if noise else "good" if (lead or 0) > 0 else ""
    return line(Span(words, "muted"), Span(name, "strong"), Span(f" {figure}{tail}", role))
