"""Everything about one matrix point: figures, phases on a time line, distributions, marks, failures, requests."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.figures import CellFigures, Percentiles
from loadgen.records import RequestRecord
from sessions.points import ACCEPTANCE, PER_USER, THROUGHPUT, TTFT
from sessions.state import CellState
from tui.cells import point_cells
from tui.distributions import decode_speeds, spread_lines, timeline
from tui.draw import Line, Span, line, title
from tui.glyphs import Glyphs
from tui.graph import bar
from tui.metrics import MARK_LETTERS
from tui.view import Facts
from tui.words import duration, english, gib, left, number, plain_text, right, share, width, with_interval, wrapped

REQUESTS_SHOWN = 200
FAILURES_SHOWN = 20


def draw_cell(facts: Facts, records: Sequence[RequestRecord] | None, cells: int) -> list[Line]:
    """Returns the page of the focused cell.

    Args:
        facts: state and view.
        records: its measured requests, or `None` while they are not known.
        cells: width.
    """
    point = facts.point
    at = point_cells(facts, facts.preset_name, *point) if point else None
    if at is None:
        return [line(Span(" no such cell", "muted"))]
    out: list[Line] = []
    for cell in at.cells:
        out.extend(_status(facts, cell, cells))
    out.append(())
    if at.figures:
        out.extend(_figures(facts, at.figures, cells))
        out.append(())
    out.extend(_marks(facts, at.cells, cells))
    out.extend(_failures(facts, at.cells, cells))
    if records:
        out.extend(timeline(facts, at.figures, records, cells))
        out.append(())
        out.extend(_distributions(facts, records, cells))
    out.extend(_accepted(facts, at.figures, cells))
    out.extend(_requests(facts, records, cells))
    return out


def _status(facts: Facts, cell: CellState, cells: int) -> list[Line]:
    g = facts.glyphs
    sign, role = {
        "measured": (g.good, "good"),
        "running": (g.running, "accent"),
        "failed": (g.failed, "bad"),
        "not-in-effect": (g.failed, "bad"),
        "skipped": (g.skipped, "warn"),
    }.get(cell.status, (g.waiting, "muted"))
    words = cell.status.replace("-", " ")
    if cell.attempt > 1:
        words += f", attempt {cell.attempt}"
    if cell.ended_t is not None and cell.started_t is not None:
        words += f", took {duration(cell.ended_t - cell.started_t)}"
    spans = [Span(f" {sign} ", role), Span(f"repetition {cell.key.repetition} ", "strong"), Span(words, role)]
    out = [line(*spans)]
    if cell.reason:
        out.extend(line(Span(f"   {row}", role)) for row in wrapped(plain_text(cell.reason, g, 600), cells - 4))
    if cell.progress is not None:
        p = cell.progress
        of = f" of {p.total}" if p.total is not None else ""
        words = f"{p.phase}: {p.finished}{of} requests done, {p.running} running, {p.failed} failed"
        out.append(line(Span(f"   {words}, {number(p.tok_s)} tok/s, accept {number(p.acceptance_length)}")))
    return out


def _figures(facts: Facts, figures: Sequence[CellFigures], cells: int) -> list[Line]:
    g, point = facts.glyphs, facts.point
    at = point_cells(facts, facts.preset_name, *point) if point else None
    assert at is not None
    rows: list[tuple[str, str, str]] = []
    for name, metric, scale, unit in (
        ("throughput", THROUGHPUT, 1.0, "tok/s"),
        ("per-user speed, p50", PER_USER, 1.0, "tok/s"),
        ("time to first token, p50", TTFT, 1000.0, "ms"),
        ("acceptance length", ACCEPTANCE, 1.0, "tokens a step"),
    ):
        found = at.estimate(metric)
        text = g.absent
        extra = ""
        if found is not None:
            half = None if found.half is None else found.half * scale
            text = with_interval(found.value * scale, half, g)
            if found.interval is not None:
                lo, hi = (number(x * scale, 2 if x * scale < 20 else 1) for x in (found.interval.lo, found.interval.hi))
                extra = f"95 %: {lo} to {hi}"
            if metric is ACCEPTANCE and figures[0].acceptance_source:
                extra += f"  from {figures[0].acceptance_source}"
        rows.append((name, f"{text} {unit}" if found else text, extra))
    f = figures[-1]
    rows.append(("whole run", f"{number(f.whole_run_throughput_tok_s)} tok/s", "as the servers' own benchmarks count"))
    rows.append(("TTFT", _percentiles(f.ttft_s), ""))
    rows.append(("end to end", _percentiles(f.e2e_s), ""))
    rows.append(("chunk gap", _percentiles(f.chunk_gap_s), "between chunks, not between tokens"))
    running = f"{number(f.effective_concurrency, 1)} client, {number(f.server_running_mean, 1)} server"
    rows.append(("running, mean", running, f"asked {point[1] if point else ''}"))
    rows.append(("prompt / output tokens", f"{number(f.prompt_tokens_mean, 0)} / {number(f.output_tokens, 0)}", ""))
    failed = sum(f.requests.failed.values())
    rows.append(
        ("requests", f"{f.requests.valid} valid, {failed} failed", f"cached prompt {share(f.cached_token_share)}")
    )
    peak = max((m for m in f.gpu_memory_peak_bytes or () if m is not None), default=None)
    rows.append(("energy", f"{number(f.energy_j_per_tok)} J a token", f"{number(f.gpu_power_mean_w, 0)} W in all"))
    rows.append(("GPU memory, peak", f"{gib(peak)} GiB", f"utilisation {share(f.gpu_utilisation_mean)}"))
    lag = None if f.client.loop_lag_p99_s is None else f.client.loop_lag_p99_s * 1000
    rows.append(("client", f"loop lag p99 {number(lag)} ms", f"CPU {share(f.client.cpu_share)}"))
    out = [title(" figures", cells, g)]
    for name, text, extra in rows:
        out.extend(_row(name, text, extra, cells, g))
    return out


def _row(name: str, text: str, extra: str, cells: int, g: Glyphs) -> list[Line]:
    """Returns a figure and what is said of it: beside it where there is room, else below; neither is ever cut."""
    head = Span(f" {left(name, 25, g)}", "muted")
    if not extra:
        return [line(head, Span(text))]
    column = 34 if cells >= 100 else 25
    if width(text) <= column and 26 + column + 1 + width(extra) <= cells:
        return [line(head, Span(left(text, column, g)), Span(f" {extra}", "muted"))]
    return [line(head, Span(text)), *(line(Span(f"{' ' * 28}{row}", "muted")) for row in wrapped(extra, cells - 28))]


def _percentiles(p: Percentiles) -> str:
    def ms(value: float | None) -> str:
        return "-" if value is None else number(value * 1000)

    worst = "max" if p.p99_is_max else "p99"
    return f"p50 {ms(p.p50)}  p90 {ms(p.p90)}  {worst} {ms(p.p99)} ms"


def _marks(facts: Facts, cells_of: Sequence[CellState], cells: int) -> list[Line]:
    g = facts.glyphs
    lines: list[Line] = []
    for cell in cells_of:
        for mark in cell.figures.marks if cell.figures else ():
            letter = MARK_LETTERS.get(mark.kind, "?")
            rep = f" (rep {cell.key.repetition})" if len(cells_of) > 1 else ""
            words = f"{mark.kind.value}{rep}: {plain_text(mark.reason, g, 600)}"
            for i, row in enumerate(wrapped(words, cells - 4)):
                lines.append(line(Span(f" {letter if i == 0 else ' '} ", "warn"), Span(row)))
    if not lines:
        return []
    return [title(" marks: reasons to doubt these figures", cells, g), *lines, ()]


def _failures(facts: Facts, cells_of: Sequence[CellState], cells: int) -> list[Line]:
    g = facts.glyphs
    kinds: dict[str, int] = {}
    for cell in cells_of:
        for kind, count in (cell.figures.requests.failed if cell.figures else {}).items():
            kinds[kind] = kinds.get(kind, 0) + count
    messages: dict[str, str] = {}
    for cell in cells_of:
        for kind, message in cell.failures:
            messages.setdefault(kind, message)
            kinds.setdefault(kind, 0)
    if not kinds:
        return []
    out = [title(" failures, by kind, with the first message", cells, g)]
    for kind, count in list(kinds.items())[:FAILURES_SHOWN]:
        out.append(line(Span(f" {g.failed} {kind}", "bad"), Span(f"  {count} times" if count else "")))
        if kind in messages:
            out.extend(_wrapped(messages[kind], cells, facts))
    out.append(())
    return out


def _wrapped(message: str, cells: int, facts: Facts) -> list[Line]:
    """A message of any length in lines of the width, bounded; the last line of a traceback always shows."""
    g = facts.glyphs
    lines = message.splitlines() or [""]
    kept = lines if len(lines) <= 12 else [*lines[:3], f"{g.ellipsis} {len(lines) - 8} lines {g.ellipsis}", *lines[-5:]]
    shown = (words for text in kept for words in wrapped(plain_text(text, g, 1200), cells - 4))
    return [line(Span(f"   {words}", "muted")) for words in shown]


def _distributions(facts: Facts, records: Sequence[RequestRecord], cells: int) -> list[Line]:
    g = facts.glyphs
    valid = [r for r in records if r.valid]
    gaps = [(b.t - a.t) * 1000 for r in valid for a, b in zip(r.chunks, r.chunks[1:], strict=False)]
    out: list[Line] = []
    for name, unit, values in (
        ("time to first token", "ms", [r.ttft * 1000 for r in valid if r.ttft is not None]),
        ("per-user speed", "tok/s", decode_speeds(valid)),
        ("chunk gap", "ms", gaps),
    ):
        if values:
            out.append(title(f" {name}, {unit} {g.dot} {len(values)} values", cells, g))
            out.extend(spread_lines(facts, values, cells))
            out.append(())
    return out


def _accepted(facts: Facts, figures: Sequence[CellFigures], cells: int) -> list[Line]:
    g = facts.glyphs
    total: list[int] = []
    for f in figures:
        for i, count in enumerate(f.accepted_histogram or ()):
            if i >= len(total):
                total.append(0)
            total[i] += count
    steps = sum(total)
    if not steps:
        return []
    out = [
        title(
            f" accepted drafts a step {g.dot} {steps:,} steps {g.dot} share, and share of as many or more",
            cells,
            g,
        )
    ]
    survived = steps
    top = max(total)
    for i, count in enumerate(total):
        length = min(50, cells - 26)
        out.append(
            line(
                Span(f" {i:>3} ", "muted"),
                Span(left(bar(count / top, length, g), length, g), "graph"),
                Span(f" {count / steps * 100:5.1f} %"),
                Span(f"  {survived / steps * 100:5.1f} %", "muted"),
            )
        )
        survived -= count
    out.append(())
    return out


def _requests(facts: Facts, records: Sequence[RequestRecord] | None, cells: int) -> list[Line]:
    g = facts.glyphs
    if records is None:
        return [line(Span(" reading the requests" + g.ellipsis, "muted"))]
    if not records:
        return [line(Span(" no requests of this cell are in the log (yet)", "muted"))]
    out = [
        title(f" {english(len(records), 'request')}", cells, g),
        line(Span("   sent s  TTFT ms   e2e s  out  prompt  cached  accept  finish    outcome", "head")),
    ]
    for r in records[:REQUESTS_SHOWN]:
        accept = (
            (r.correct_drafts + r.verify_steps) / r.verify_steps
            if r.verify_steps and r.correct_drafts is not None
            else None
        )
        ttft = None if r.ttft is None else r.ttft * 1000
        figures = (
            f"{r.t_send:>9.2f} {number(ttft):>8} {number(r.e2e, 2):>7} {number(r.n_out, 0):>4} "
            f"{number(r.prompt_tokens, 0):>7} {number(r.cached_tokens, 0):>7} {number(accept, 2):>7}"
        )
        words = right("", 2) + left(plain_text(r.finish_reason or "-", g, 40), 9, g)
        error = f": {plain_text(r.error, g, 300)}" if r.error else ""
        outcome = Span(f" {r.outcome.value}{error}", "good" if r.valid else "bad")
        out.append(line(Span(figures), Span(words, "muted"), outcome))
    if len(records) > REQUESTS_SHOWN:
        out.append(line(Span(f" {len(records) - REQUESTS_SHOWN} more: spectop export", "muted")))
    return out
