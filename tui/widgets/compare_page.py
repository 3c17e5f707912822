"""A comparison as a page: conditions that differ first, then the matrix of differences, the whole, the rest."""

from __future__ import annotations

from sessions.compare import CellCompared, Compared, Comparison
from sessions.conditions import Difference
from sessions.points import METRICS
from tui.draw import Line, Span, line, title
from tui.glyphs import Glyphs
from tui.words import english, left, number, plain_text, right, with_interval, with_range, wrapped

_ROLES = {"better": "good", "worse": "bad", "same": "muted", "unknown": ""}
_CELL = 17


_VERDICTS = {"same": "same within noise", "unknown": "no interval"}


def difference_words(compared: Compared, glyphs: Glyphs) -> str:
    """Returns `+6.1 ±1.9`, `= +2 -12..+17` where noise covers it, or `+6.1 no interval`."""
    if compared.ratio is None:
        return glyphs.absent
    percent = (compared.ratio - 1) * 100
    if compared.interval is None:
        return f"{with_interval(percent, None, glyphs, sign=True)} no interval"
    low, high = ((bound - 1) * 100 for bound in (compared.interval.lo, compared.interval.hi))
    sign = f"{glyphs.same} " if compared.verdict == "same" else ""
    return sign + with_range(percent, low, high, glyphs)


def draw_comparison(found: Comparison | None, metric: str, words: str, cells: int, glyphs: Glyphs) -> list[Line]:
    """Returns the page.

    Args:
        found: the comparison, or `None` while (or because) there is none.
        metric: key of the figure of the matrix.
        words: what is said in place of it.
        cells: width.
        glyphs: signs to draw with.
    """
    if found is None:
        return [line(Span(f" {words}", "warn"))]
    out: list[Line] = [
        line(Span(" A ", "key"), Span(f" {plain_text(found.a, glyphs)}", "strong"), Span("  the base", "muted")),
        line(Span(" B ", "key"), Span(f" {plain_text(found.b, glyphs)}", "strong")),
    ]
    pairs = list(dict.fromkeys((c.preset_a, c.preset_b) for c in found.cells))
    heads = tuple(f"{a} / {b}: " for a, b in pairs if a != b)
    asked = [c for c in found.conditions if c.what.startswith(heads)] if heads else []
    others = [c for c in found.conditions if c not in asked]
    if others:
        out.append(title(f" {glyphs.hot} conditions that differ", cells, glyphs))
        for c in others:
            out.extend(_difference(c.what, c, cells, "warn", glyphs))
    if asked:
        out.append(title(" what the presets differ in", cells, glyphs))
        for c in asked:
            out.extend(_difference(c.what.rpartition(": ")[2], c, cells, "", glyphs))
    for pair in pairs:
        of = [c for c in found.cells if (c.preset_a, c.preset_b) == pair]
        name = pair[1] if pair[0] == pair[1] else f"{pair[1]} against {pair[0]}"
        out.append(title(f" {plain_text(name, glyphs)}, percent", cells, glyphs))
        out.extend(_matrix(of, metric, cells, glyphs))
    if not found.cells:
        out.append(line(Span(" no cell has figures on both sides", "warn")))
    out.append(title(" over all cells that count on both sides, percent", cells, glyphs))
    for s in found.summary:
        text = right(difference_words(s, glyphs), 18, glyphs)
        name = next((m.words for m in METRICS if m.key == s.metric), s.metric)
        out.append(
            line(
                Span(f"   {left(name, 16, glyphs)}"),
                Span(text, _ROLES[s.verdict]),
                Span(f"  {_VERDICTS.get(s.verdict, s.verdict)}" if s.interval is not None else "", "muted"),
            )
        )
    if found.counts:
        told = ", ".join(f"{n} {_VERDICTS.get(what, what)}" for what, n in found.counts.items())
        out.append(line(Span(f"   throughput, cell by cell: {told}", "muted")))
    for e in found.evals:
        words = f"   {plain_text(e.problem_set, glyphs)} {plain_text(e.preset_b, glyphs)}: "
        words += f"{e.a * 100:.0f} % to {e.b * 100:.0f} % passed"
        out.append(line(Span(words), Span(f"  {_VERDICTS.get(e.verdict, e.verdict)}", _ROLES[e.verdict])))
    if found.left_out:
        out.append(title(f" {english(len(found.left_out), 'cell or preset')} left out", cells, glyphs))
        for words in found.left_out:
            rows = wrapped(plain_text(words, glyphs, 300), cells - 4)
            out.extend(line(Span(f"   {row}", "muted")) for row in rows)
    return out


def _difference(what: str, of: Difference, cells: int, role: str, glyphs: Glyphs) -> list[Line]:
    """Returns `what   A this, B that`, on as many lines as it needs."""
    name = wrapped(plain_text(what, glyphs), 24)
    told = wrapped(f"A {plain_text(of.a, glyphs, 200)}, B {plain_text(of.b, glyphs, 200)}", cells - 30)
    rows = max(len(name), len(told))
    both = zip(name + [""] * (rows - len(name)), told + [""] * (rows - len(told)), strict=True)
    return [line(Span(f"   {left(a, 25, glyphs)}", role), Span(b)) for a, b in both]


def _matrix(of: list[CellCompared], metric: str, cells: int, glyphs: Glyphs) -> list[Line]:
    temperatures = sorted({c.point.temperature for c in of})
    columns = sorted({c.point.concurrency for c in of})
    at = {(c.point.context, c.point.concurrency, c.point.temperature): c for c in of}
    out: list[Line] = []
    for temperature in temperatures:
        warm = f"t{temperature:g}" if len(temperatures) > 1 else ""
        heads = [Span(right(f"c={n}", _CELL, glyphs), "head") for n in columns]
        out.append(line(Span(f" {warm:<6}", "muted"), *heads))
        for context in sorted({c.point.context for c in of if c.point.temperature == temperature}):
            row = [Span(f"{context:>6} ", "strong")]
            row.extend(_cell(at.get((context, n, temperature)), metric, glyphs) for n in columns)
            out.append(tuple(row))
    for c in of:
        if c.doubt:
            words = f"{c.point.text} does not count: {plain_text(c.doubt, glyphs, 300)}"
            for i, told in enumerate(wrapped(words, cells - 6)):
                out.append(line(Span(f"   {glyphs.hot if i == 0 else ' '} {told}", "warn")))
    return out


def _cell(cell: CellCompared | None, metric: str, glyphs: Glyphs) -> Span:
    found = next((m for m in cell.metrics if m.metric == metric), None) if cell else None
    if cell is None or found is None:
        return Span(right(glyphs.absent, _CELL, glyphs), "muted")
    if found.ratio is None:
        both = f"{number(found.a)}/{number(found.b)}"
        return Span(right(both, _CELL, glyphs), "muted")
    text = difference_words(found, glyphs) + (glyphs.hot if cell.doubt else "")
    return Span(right(text, _CELL, glyphs), "warn" if cell.doubt else _ROLES[found.verdict])
