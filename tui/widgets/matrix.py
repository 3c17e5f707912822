"""The matrix, which is the product: rows contexts, columns concurrency, one figure a cell."""

from __future__ import annotations

from dataclasses import dataclass

from tui.cells import Shown, live_rates, shown
from tui.draw import Line, Span, line, title
from tui.graph import heat
from tui.metrics import ACCEPTANCE, THROUGHPUT, TTFT_P99
from tui.view import Facts
from tui.words import left, number, plain_text, right, with_interval

_ROW_HEAD = 6


FULL_CELL = 12
"""A sign, a figure with its interval (`170.2 ±1.1`) and a mark."""
SHORT_CELL = 8
"""A sign, a figure and a mark."""


@dataclass(frozen=True)
class Grid:
    """Where the cells stand: for drawing and for the mouse.

    Attributes:
        contexts, concurrencies: those that are visible.
        cell: width of a column; `lines`: lines a cell takes.
        head: width of the row headings.
        intervals: whether there is room for them.
        titled: whether a line above the columns names figure and preset.
    """

    contexts: tuple[int, ...]
    concurrencies: tuple[int, ...]
    cell: int
    lines: int
    head: int
    intervals: bool
    titled: bool

    @property
    def top(self) -> int:
        """Lines above the first row of figures."""
        return 2 if self.titled else 1

    @property
    def after(self) -> int:
        """Columns behind a figure: for marks, and a blank where there is room."""
        return 1 if self.cell < FULL_CELL + 1 else 2 if self.cell < 16 else 3

    def at(self, x: int, y: int) -> tuple[int, int] | None:
        """Returns context and concurrency under a place of the panel."""
        column, row = (x - self.head) // self.cell, (y - self.top) // self.lines
        if x < self.head or y < self.top or column >= len(self.concurrencies) or row >= len(self.contexts):
            return None
        return self.contexts[row], self.concurrencies[column]


def grid(facts: Facts, cells: int, rows: int) -> Grid:
    """Returns how the matrix is laid out in a width and height; the focused cell is always visible."""
    contexts, concurrencies = facts.state.contexts, facts.state.concurrencies
    n = max(1, len(concurrencies))
    room = max(1, cells - _ROW_HEAD)
    each = room // n
    intervals = each >= FULL_CELL
    each = min(each, 16) if intervals else max(each, SHORT_CELL)
    visible = max(1, min(n, room // each))
    point = facts.point
    first = 0
    if point is not None and point[1] in concurrencies:
        first = max(0, min(concurrencies.index(point[1]) - visible + 1, n - visible))
    titled = rows >= len(contexts) + 2
    room = rows - (2 if titled else 1)
    lines = 2 if len(contexts) * 2 <= room and intervals and each >= 15 else 1
    tall = max(1, min(len(contexts), room // lines))
    top = 0
    if point is not None and point[0] in contexts:
        top = max(0, min(contexts.index(point[0]) - tall + 1, len(contexts) - tall))
    columns = concurrencies[first : first + visible]
    return Grid(contexts[top : top + tall], columns, each, lines, _ROW_HEAD, intervals, titled)


def draw_matrix(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the matrix of the shown preset under the shown metric."""
    g, state = facts.glyphs, facts.state
    if not state.cells:
        return [line(Span(" no cells planned yet", "muted"))]
    at = grid(facts, cells, rows)
    name = facts.preset_name
    found = {(c, n): shown(facts, name, c, n) for c in state.contexts for n in state.concurrencies}
    values = [s.value for s in found.values() if s.value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    out: list[Line] = [_title(facts, at, cells)] if at.titled else []
    out.append(_heading(facts, at))
    point = facts.point
    for context in at.contexts:
        row: list[Span] = [Span(right(str(context), at.head - 1, g) + " ", "strong")]
        below: list[Span] = [Span(" " * at.head)]
        for concurrency in at.concurrencies:
            cell = found[context, concurrency]
            focused = point == (context, concurrency)
            row.extend(_cell(facts, cell, (context, concurrency), at, low, high, focused=focused))
            if at.lines == 2:
                below.append(Span(_below(facts, name, context, concurrency, at.cell, at.after), "muted"))
        out.append(tuple(row))
        if at.lines == 2:
            out.append(tuple(below))
    return out


def _title(facts: Facts, at: Grid, cells: int) -> Line:
    g = facts.glyphs
    words = f" {facts.metric.name} {g.dot} {plain_text(facts.preset_name, g)}"
    if len(facts.state.temperatures) > 1:
        words += f" {g.dot} temperature {facts.temperature:g}"
    below = [m.name for m in (ACCEPTANCE, TTFT_P99) if m is not facts.metric]
    if at.lines == 2:
        words += f" {g.dot} below: {f' {g.dot} '.join(below)}"
    return title(words, cells - 1, g)


def _heading(facts: Facts, at: Grid) -> Line:
    """The concurrencies; before them the figure's name, or the rows' where a title names the figure."""
    g, state = facts.glyphs, facts.state
    columns = [f"c={n}" for n in at.concurrencies]
    first = at.concurrencies[0]
    if state.concurrencies.index(first) > 0:
        columns[0] = f"{g.back}{columns[0]}"
    if at.concurrencies[-1] != state.concurrencies[-1]:
        columns[-1] += g.arrow
    name = "context" if at.titled else facts.metric.name
    if len(at.contexts) < len(state.contexts):
        name += f" {g.more_down}"
    room = at.head + at.cell - at.after - len(columns[0]) - 1
    spans = [Span(" "), Span(left(name, room - 1, g), "accent"), Span(f" {columns[0]}", "head"), Span(" " * at.after)]
    spans.extend(Span(right(c, at.cell - at.after, g) + " " * at.after, "head") for c in columns[1:])
    return line(*spans)


def _cell(
    facts: Facts, cell: Shown, point: tuple[int, int], at: Grid, low: float, high: float, *, focused: bool
) -> list[Span]:
    g, metric = facts.glyphs, facts.metric
    room = at.cell - 1 - at.after
    role, sign = "", " "
    running = facts.running
    is_running = (
        cell.status == "running"
        and running is not None
        and running.key.preset == facts.preset_name
        and (running.key.context, running.key.concurrency) == point
    )
    if is_running:
        sign, role, text = g.running, "accent", _live(facts, room)
    elif cell.value is not None:
        text = with_interval(cell.value, cell.half if at.intervals else None, g, sign=metric.relative)
        if cell.at_most:
            text = f"{text}^"
        good = cell.value if metric.higher_is_better else low + high - cell.value
        sign, level = heat(good, low, high, g)
        role = f"heat{level}"
        if metric.relative:
            sign, role = (g.same, "muted") if cell.same else (" ", "good" if cell.value > 0 else "warn")
    else:
        sign, role, text = {
            "running": (" ", "muted", "broken off") if facts.over else (g.running, "accent", g.waiting),
            "measured": (" ", "muted", g.absent),
            "failed": (g.failed, "bad", "failed"),
            "skipped": (g.skipped, "muted", "skipped"),
            "not-in-effect": (g.failed, "bad", "unproven"),
            "absent": (" ", "muted", ""),
        }.get(cell.status, (" ", "muted", g.waiting))
    if 0 < cell.done < cell.planned and not is_running and at.cell >= 16:
        text = f"{text} {cell.done}/{cell.planned}"
    body = right(text, room, g)
    room_for_marks = max(1, at.after - 1)
    marks = cell.marks if len(cell.marks) <= room_for_marks else cell.marks[: room_for_marks - 1] + g.several
    mark = Span(marks.ljust(at.after), "warn")
    if focused:
        return [Span(g.here if sign == " " else sign, "cursor"), Span(body, "cursor"), mark]
    return [Span(sign, role), Span(body, role), mark]


def _live(facts: Facts, room: int) -> str:
    running = facts.running
    progress = running.progress if running else None
    if progress is None:
        return facts.glyphs.waiting
    tok_s, accept = live_rates(facts)
    done = f"{progress.share_done * 100:.0f}%"
    if facts.metric.name not in (ACCEPTANCE.name, THROUGHPUT.name):
        return done
    text = f"{number(accept if facts.metric.name == ACCEPTANCE.name else tok_s)} {done}"
    return text if len(text) <= room else done


def _below(facts: Facts, preset: str, context: int, concurrency: int, cells: int, after: int) -> str:
    accept = shown(facts, preset, context, concurrency, ACCEPTANCE).value
    wait = shown(facts, preset, context, concurrency, TTFT_P99)
    parts = []
    if accept is not None and facts.metric is not ACCEPTANCE:
        parts.append(f"{accept:.2f}")
    if wait.value is not None and facts.metric is not TTFT_P99:
        parts.append(f"{wait.value:.0f}{'^' if wait.at_most else ''}")
    return right(f" {facts.glyphs.dot} ".join(parts), cells - after, facts.glyphs) + " " * after
