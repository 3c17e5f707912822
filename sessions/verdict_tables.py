"""Comparisons and recommendations as tables for a terminal or a pipe."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from loadgen.figures import Interval
from sessions.compare import CellCompared, Compared, Comparison
from sessions.folder import printable
from sessions.points import METRICS, matrix
from sessions.recommend import Choice, Recommendation
from sessions.show import console_on, new_table, print_table

_STYLES = {"better": "green", "worse": "red", "same": "", "unknown": "yellow"}
_WORDS = {"better": "better", "worse": "worse", "same": "same", "unknown": "?"}


def print_comparison(found: Comparison, out: TextIO) -> None:
    """Prints a comparison: differing conditions, the verdict over all, cell by cell, evals, what has no pair."""
    console = console_on(out)
    simulated = "  SIMULATED" if found.simulated else ""
    console.print(Text(printable(f"A {found.a}"), "bold"))
    console.print(Text(printable(f"B {found.b}{simulated}"), "bold"))
    _conditions(found, console)
    _over_all(found, console)
    if found.cells:
        table = new_table()
        table.add_column("cell", no_wrap=True)
        shown = [
            m for m in METRICS if any(c.ratio is not None for x in found.cells for c in x.metrics if c.metric == m.key)
        ]
        for metric in shown:
            table.add_column(metric.words, justify="right")
        keys = {m.key for m in shown}
        for cell in found.cells:
            doubt = " !" if cell.doubt else ""
            table.add_row(printable(_where(cell)) + doubt, *(_change(m) for m in cell.metrics if m.metric in keys))
        print_table(
            console,
            "cell by cell: B against A, % (95 % interval); ? scatter not known; ! does not count",
            table,
        )
    for cell in found.cells:
        if cell.doubt:
            console.print(Text(printable(f"  not counted: {_where(cell)}: {cell.doubt}"), "yellow"))
    for rates in found.evals:
        preset = rates.preset_b if rates.preset_a == rates.preset_b else f"{rates.preset_a} / {rates.preset_b}"
        words = (
            f"  {preset} {rates.problem_set}: {rates.a:.0%} to {rates.b:.0%} passed "
            f"({rates.interval.lo * 100:+.0f} to {rates.interval.hi * 100:+.0f} points): {rates.verdict}"
        )
        console.print(Text(printable(words), _STYLES[rates.verdict]))
    for words in found.left_out:
        console.print(Text(printable(f"  left out: {words}"), "dim"))


def _conditions(found: Comparison, console: Console) -> None:
    if not found.conditions:
        console.print(Text("measured under the same conditions, as far as they are known"))
        return
    table = new_table()
    for heading in ("condition", "A", "B"):
        table.add_column(heading, overflow="fold")
    for difference in found.conditions:
        table.add_row(printable(difference.what), difference.a, difference.b)
    print_table(console, "not measured alike", table)


def _over_all(found: Comparison, console: Console) -> None:
    counted = sum(found.counts.values())
    if not counted:
        console.print(Text("no cell counts on both sides: nothing can be said", "yellow"))
        return
    said = ", ".join(f"{n} {_WORDS[v]}" for v, n in sorted(found.counts.items()))
    console.print(Text(f"tok/s in {counted} shared cells: {said}"))
    for whole in found.summary:
        words = next(m.words for m in METRICS if m.key == whole.metric)
        line = Text(f"  {words}, geometric mean of the ratios, %: ")
        console.print(line.append(_change(whole)))


def _where(cell: CellCompared) -> str:
    preset = cell.preset_b if cell.preset_a == cell.preset_b else f"{cell.preset_a} / {cell.preset_b}"
    return f"{preset} {cell.point.text}"


def _change(compared: Compared) -> Text:
    """Returns `-5.9 (-7.8..-4.0) worse`, in percent."""
    if compared.ratio is None:
        return Text("-")
    bounds = ""
    if compared.interval is not None:
        bounds = f"({_percent(compared.interval.lo)}..{_percent(compared.interval.hi)}) "
    return Text(f"{_percent(compared.ratio)} {bounds}{_WORDS[compared.verdict]}", _STYLES[compared.verdict])


def _percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    return f"{change:+.1f}" if abs(change) < 10 else f"{change:+.0f}"


def percent_range(interval: Interval) -> str:
    """Returns an interval of a ratio as percent of change: `-1.2 to +3.4`."""
    return f"{(interval.lo - 1) * 100:+.1f} to {(interval.hi - 1) * 100:+.1f}"


def print_recommendation(found: Recommendation, out: TextIO) -> None:
    """Prints a recommendation: the one preset, the policy table, every cell's best, the standings, warnings."""
    console = console_on(out)
    simulated = "  SIMULATED" if found.simulated else ""
    sure = found.overall is not None and not found.equal
    console.print(Text(printable(found.headline + simulated), "bold" if sure else "bold yellow"))
    for words in found.warnings:
        console.print(Text(printable(f"! {words}"), "yellow"))
    for temperature in matrix(c.point for c in found.choices)[2]:
        choices = [c for c in found.choices if c.point.temperature == temperature]
        warm = f", temperature {temperature:g}" if temperature else ""
        _policy(choices, f"policy by {found.by}: context x concurrency -> preset{warm}", console)
    _choices(found, console)
    _standings(found, console)


def _policy(choices: list[Choice], title: str, console: Console) -> None:
    contexts, concurrencies, _ = matrix(c.point for c in choices)
    table = new_table()
    table.add_column("context", justify="right")
    for concurrency in concurrencies:
        table.add_column(f"c={concurrency}", no_wrap=True)
    named = {(c.point.context, c.point.concurrency): c for c in choices}
    for context in contexts:
        cells = [named.get((context, concurrency)) for concurrency in concurrencies]
        table.add_row(str(context), *("-" if c is None or c.preset is None else printable(c.preset) for c in cells))
    print_table(console, title, table)


def _choices(found: Recommendation, console: Console) -> None:
    table = new_table()
    for heading in ("cell", found.by, "best", "against the reference", "not distinguishable"):
        table.add_column(heading, no_wrap=heading != "not distinguishable")
    for c in found.choices:
        if c.preset is None or c.value is None:
            table.add_row(c.point.text, "-", "no vote", "", "")
            continue
        half = "" if c.interval is None else f" ±{(c.interval.hi - c.interval.lo) / 2:.1f}"
        gain = "" if c.gain is None else f"{(c.gain - 1) * 100:+.1f} %"
        if c.gain_interval is not None:
            gain += f" ({percent_range(c.gain_interval)})"
        table.add_row(c.point.text, f"{c.value:.1f}{half}", printable(c.preset), gain, printable(", ".join(c.equal)))
    print_table(console, "best in each cell", table)
    for c in found.choices:
        for preset, reason in c.without_vote:
            console.print(Text(printable(f"  no vote: {preset} {c.point.text}: {reason}"), "yellow"))


def _standings(found: Recommendation, console: Console) -> None:
    table = new_table()
    for heading in ("preset", "ratio", "95 % interval", "cells", "best or equal in"):
        table.add_column(heading, justify="left" if heading == "preset" else "right")
    for s in found.standings:
        interval = "" if s.interval is None else f"{s.interval.lo:.3f} to {s.interval.hi:.3f}"
        value = "-" if s.ratio is None else f"{s.ratio:.3f}"
        table.add_row(printable(s.preset), value, interval, f"{s.points} of {s.of}", str(s.best_at))
    print_table(console, f"over all cells, against {found.reference} (geometric mean of the ratios)", table)
