"""The GPUs, a line each: load, memory, power, temperature, a short history, and what holds a clock back."""

from __future__ import annotations

from sessions.state import GpuPoint
from telemetry.samples import GpuReading, GpuSample
from tui.draw import Line, Span, line, title
from tui.glyphs import Glyphs
from tui.graph import area, bar, by_time
from tui.remembered import remembered
from tui.view import Facts
from tui.words import gib, number, plain_text, right

BENIGN = frozenset({"gpu_idle", "idle", "applications_clocks_setting", "application_clocks", "none"})
"""Clock event reasons that are no sign of trouble."""
HOT_C = 83.0
WINDOW_S = 60.0


def draw_gpus(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns all GPUs: one a line, two a line where there are more than lines."""
    g, sample = facts.glyphs, facts.state.gpus
    if sample is None:
        return [line(Span(" gpu  no reading yet", "muted"))]
    if gpus_away(facts):
        when = facts.last_seen or "while the server restarts"
        return [line(Span(" gpu  ", "muted"), Span(f"simulated GPUs: no reading {when}", "muted"))]
    if sample.problem and not sample.gpus:
        return [line(Span(" gpu  ", "muted"), Span(plain_text(sample.problem, g), "warn"))]
    return _table(sample, facts.state.gpu_history, facts.over, facts.last_seen, g, cells, rows)


@remembered(4)
def _table(
    sample: GpuSample, points: tuple[GpuPoint, ...], over: bool, seen: str, g: Glyphs, cells: int, rows: int
) -> list[Line]:
    """Draws the readings; `seen` is when they were, where they are no longer news."""
    readings = list(sample.gpus)
    room = rows - 1
    if len(readings) > room and cells >= 76:
        return _pairs(readings, seen, g, cells, rows)
    history = max(0, min(int(WINDOW_S) // (2 if g.braille else 1), cells - 84))
    history = history if history >= 8 else 0
    heading = f" gpu  {'util':<{_bar_cells(cells) + 6}} {'memory GiB':>13}  {'power W':>11} {g.degree + 'C':>4}  "
    head = [Span(heading, "head")]
    if history:
        head.append(Span(f"{'last minute'[:history]:<{history}}  ", "head"))
    if seen:
        head.append(Span(seen, "warn"))
    else:
        head.append(Span("flags", "head"))
        head.append(Span(" (simulated)" if sample.source == "simulated" else "", "muted"))
    out: list[Line] = [tuple(head)]
    graphs = _histories(points, len(readings), history, g)
    for reading, graph in zip(readings[:room], graphs, strict=False):
        ours = sample.ours is None or reading.index in sample.ours
        out.append(_row(reading, graph, g, cells, ours=ours, over=over))
    if len(readings) > room > 0:
        out[-1] = line(Span(f"      {g.more_down} {len(readings) - room + 1} more (z, g)", "warn"))
    return out


def gpus_away(facts: Facts) -> bool:
    """Whether the GPUs are simulated and away with their server: nothing is lost, there is just no reading."""
    sample = facts.state.gpus
    return sample is not None and sample.source == "simulated" and all(r.state == "absent" for r in sample.gpus)


def _bar_cells(cells: int) -> int:
    return 10 if cells < 110 else 14


def _row(r: GpuReading, history: str, g: Glyphs, cells: int, *, ours: bool, over: bool) -> Line:
    index = Span(f"{r.index:>3}  ", "" if ours else "muted")
    if r.state != "ok":
        words = "fell off the bus" if r.state == "lost" else "no longer there"
        note = f": {plain_text(r.note, g)}" if r.note else ""
        return line(index, Span(f"{g.failed} LOST, {words}{note}", "bad"))
    spans = [
        index,
        Span(bar(r.utilisation, _bar_cells(cells), g), "muted" if over else "graph"),
        Span(right("-" if r.utilisation is None else f"{r.utilisation * 100:.0f} %", 6, g)),
        Span(f" {gib(r.memory_used_bytes):>6} /{gib(r.memory_total_bytes):>5}", ""),
        Span(f"  {number(r.power_w, 0):>5} /{number(r.power_limit_w, 0):>4}"),
        Span(f" {number(r.temperature_c, 0):>4}  ", "warn" if (r.temperature_c or 0) >= HOT_C else ""),
    ]
    if history:
        spans.append(Span(history + "  ", "graph"))
    spans.extend(flags(r, g))
    return line(*spans)


def _histories(points: tuple[GpuPoint, ...], gpus: int, cells: int, g: Glyphs) -> list[str]:
    """Returns every GPU's load as a graph of so many cells, empty for none."""
    if not cells:
        return [""] * gpus
    series = [[p.utilisation[i] if i < len(p.utilisation) else None for p in points] for i in range(gpus)]
    drawn = by_time([p.t for p in points], series, WINDOW_S, cells * (2 if g.braille else 1))
    return [area(values, cells, 1, g, top=1.0)[0] for values in drawn]


def flags(r: GpuReading, g: Glyphs) -> list[Span]:
    """Returns what is wrong with a GPU, as signs and words."""
    out = [Span(f"{g.hot} {plain_text(t, g).replace('_', ' ')} ", "warn") for t in r.throttle or () if t not in BENIGN]
    if r.xid:
        out.append(Span(f"{g.failed} Xid {r.xid} ", "bad"))
    if r.ecc_uncorrected:
        out.append(Span(f"{g.failed} ECC {r.ecc_uncorrected} ", "bad"))
    if not out and (r.temperature_c or 0) >= HOT_C:
        out.append(Span(f"{g.hot} hot ", "warn"))
    if r.note and not out:
        out.append(Span(plain_text(r.note, g), "muted"))
    return out


def _pairs(readings: list[GpuReading], seen: str, g: Glyphs, cells: int, rows: int) -> list[Line]:
    half = cells // 2
    when = f"  ({seen})" if seen else ""
    out = [title(f" gpu   util    GiB      W   {g.degree}C{when}", cells, g)]
    for start in range(0, len(readings), 2):
        row: list[Span] = []
        for r in readings[start : start + 2]:
            row.extend(_short(r, g, half))
        out.append(tuple(row))
    if len(out) > rows:
        more = line(Span(f"      {g.more_down} {len(readings) - 2 * (rows - 2)} more", "warn"))
        out = [*out[: rows - 1], more]
    return out


def _short(r: GpuReading, g: Glyphs, cells: int) -> list[Span]:
    if r.state != "ok":
        return [Span(f"{r.index:>3}  {g.failed} LOST".ljust(cells), "bad")]
    load = "-" if r.utilisation is None else f"{r.utilisation * 100:.0f} %"
    text = f"{r.index:>3}  {load:>6} {gib(r.memory_used_bytes):>6} "
    text += f"{number(r.power_w, 0):>6} {number(r.temperature_c, 0):>4} "
    flag = flags(r, g)
    words = "".join(s.text for s in flag)[: cells - len(text) - 1]
    return [Span(text), Span(words.ljust(cells - len(text)), flag[0].role if flag else "")]
