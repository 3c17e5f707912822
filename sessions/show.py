"""A session as tables for a terminal or a pipe, and as the JSON that `show --json` and `bench --out` give."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadgen.figures import CellFigures, Percentiles
from sessions.events import SCHEMA_VERSION
from sessions.folder import SessionInfo, printable, shortened
from sessions.points import ACCEPTANCE, THROUGHPUT, Estimate, PointCells, points_of
from sessions.review import Listed, Session, gpu_names, status_words
from sessions.settings import settings_of, settings_words, shown_proof
from sessions.state import PresetState, SessionState

NARROWEST = 120
"""Columns assumed where the output is no terminal."""


def session_json(
    state: SessionState,
    folder: Path,
    *,
    info: SessionInfo | None = None,
    skipped: tuple[str, ...] = (),
    live: bool = False,
) -> dict[str, Any]:
    """Returns a session as the machine-readable contract says: schema, session, presets, cells, evals, lossless.

    Args:
        state: the session.
        folder: its folder.
        info: what `session.json` says, where it was read.
        skipped: what of the log could not be read.
        live: an engine writes to it just now.
    """
    empty = msgspec.to_builtins(CellFigures())
    cells = []
    for cell in state.cells.values():
        figures = msgspec.to_builtins(cell.figures) if cell.figures is not None else empty
        head = {**msgspec.to_builtins(cell.key), "status": cell.status, "reason": cell.reason or None}
        failures = [{"kind": kind, "message": words} for kind, words in cell.failures]
        cells.append({**head, **figures, "failures": failures})
    return {
        "schema": SCHEMA_VERSION,
        "session": {
            "name": folder.name,
            "folder": str(folder),
            "label": state.label or (info.label if info else ""),
            "status": status_words(state, live=live),
            "words": state.end_words,
            "created": info.created if info else state.started_at or None,
            "duration_s": state.t,
            "base_url": state.base_url,
            "model": state.model,
            "simulated": state.simulated,
            "reference": state.reference,
            "repeats": state.repeats,
            "max_tokens": state.max_tokens,
            "host": info.host if info else None,
            "version": info.version if info else None,
            "gpus": list((info.gpus if info else ()) or gpu_names(state)) or None,
            "driver": (info.driver if info else None) or (state.gpus.driver if state.gpus else None),
            "notes": [msgspec.to_builtins(n) for n in state.notes],
            "suspicions": [msgspec.to_builtins(s) for s in state.suspicions],
            "skipped": list(skipped),
        },
        "presets": [_preset_json(p) for p in state.presets.values()],
        "cells": cells,
        "evals": [_eval_json(p, i) for p in state.presets.values() for i in range(len(p.evals))],
        "lossless": [msgspec.to_builtins(p.lossless) for p in state.presets.values() if p.lossless is not None],
    }


def _preset_json(preset: PresetState) -> dict[str, Any]:
    return {
        "name": preset.preset.name,
        "settings": settings_of(preset.preset),
        "in_effect": None if preset.proof is None else preset.proof.in_effect,
        "status": preset.status,
        "reason": preset.reason or None,
        "proof": None if preset.proof is None else msgspec.to_builtins(shown_proof(preset.preset, preset.proof)),
    }


def _eval_json(preset: PresetState, index: int) -> dict[str, Any]:
    summary = preset.evals[index]
    judgements = [j for j in preset.judgements if j.problem_set == summary.problem_set]
    return {**msgspec.to_builtins(summary), "answers": [msgspec.to_builtins(j) for j in judgements]}


def print_session(session: Session, out: TextIO) -> None:
    """Prints an opened session: what it is, its tables, and what could not be read."""
    console = console_on(out)
    info = session.info
    if info is not None:
        gpus = f", {len(session.gpus)} x {printable(session.gpus[0])}" if session.gpus else ""
        driver = f", driver {printable(session.driver)}" if session.driver else ""
        console.print(
            Text(f"{printable(info.host)}{gpus}{driver}, spectop {printable(info.version)}, {info.created}", "dim")
        )
    print_tables(session.state, out, live=session.live)
    for words in session.skipped:
        console.print(Text(f"! {words}", "yellow"))


def print_list(listed: list[Listed], sessions_dir: Path, out: TextIO) -> None:
    """Prints the list of sessions, one line each."""
    console = console_on(out)
    if not listed:
        console.print(Text(printable(f"no session in {sessions_dir}")))
        return
    table = new_table()
    for heading in ("session", "status", "cells", "presets", "model"):
        table.add_column(heading, justify="right" if heading in ("cells", "presets") else "left", no_wrap=True)
    for s in listed:
        simulated = " SIMULATED" if s.simulated else ""
        status = Text(s.status + simulated, "green" if s.status == "finished" else "yellow")
        if s.problem:
            table.add_row(s.name, status, "-", "-", s.problem)
        else:
            table.add_row(s.name, status, f"{s.cells_done}/{s.cells}", str(s.presets), s.model)
    print_table(console, f"sessions in {sessions_dir}", table)


def console_on(out: TextIO) -> Console:
    """Returns a console on an output, wide enough for tables where it is no terminal."""
    console = Console(file=out, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and console.width < NARROWEST:
        console = Console(file=out, highlight=False, emoji=False, markup=False, width=NARROWEST)
    return console


def print_tables(state: SessionState, out: TextIO, *, live: bool = True) -> None:
    """Prints a session's presets, cells, evals and suspicions.

    Args:
        state: the session.
        out: where to.
        live: an engine may still be at it; without one, a session that has not ended is "interrupted".
    """
    console = console_on(out)
    simulated = "  SIMULATED" if state.simulated else ""
    head = f"{state.label or 'session'}: {status_words(state, live=live)}"
    measured = sum(1 for c in state.cells.values() if c.status == "measured")
    console.print(Text(printable(f"{head}, {measured} of {len(state.cells)} cells measured{simulated}"), "bold"))
    console.print(Text(printable(f"{state.model} at {state.base_url}, up to {state.max_tokens} output tokens")))
    if not state.presets:
        return
    print_table(console, "presets", _presets(state))
    points = points_of(state)
    if len({preset for preset, _ in points}) > 1:
        print_table(console, "tok/s, all presets", _overview(state, points))
    for name in state.presets:
        own = [p for (preset, _), p in points.items() if preset == name]
        if any(p.figures for p in own):
            title = f"{name}: cells (means over repetitions; * marked, ! without a vote, ^ maximum of under 100)"
            print_table(console, title, _cells(own))
    marks = sorted({(p.preset, p.point, m.kind.value, m.reason) for p in points.values() for m in p.told_marks})
    for preset, point, kind, reason in marks:
        console.print(Text(printable(f"  {kind}: {preset} {point.text}: {reason}"), "yellow"))
    for p in points.values():
        if p.no_figures and p.no_figures not in ("not measured", "being measured"):
            console.print(Text(printable(f"  {p.preset} {p.point.text} {p.no_figures}"), "red"))
    for suspicion in state.suspicions:
        words = f"suspect the {suspicion.suspect}: {suspicion.words} ({suspicion.evidence}); {suspicion.look_at}"
        console.print(Text(printable(f"! {words}"), "yellow"))


def new_table() -> Table:
    """Returns an empty table in the one style of all printed tables."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))


def print_table(console: Console, title: str, table: Table) -> None:
    """Prints a table under its title, which may be wider than it."""
    console.print(Text(f"\n{printable(title)}", "bold", end=""))
    console.print(table)


def _presets(state: SessionState) -> Table:
    table = new_table()
    for heading in ("preset", "settings", "in effect", "pass@1", "lossless"):
        table.add_column(heading, overflow="fold")
    for name, p in state.presets.items():
        proved = proof_words(p)
        mark = " (reference)" if name == state.reference else ""
        table.add_row(
            *(printable(x) for x in (name + mark, settings_words(p.preset), proved, _passed(p), _lossless(p)))
        )
    return table


def proof_words(p: PresetState) -> str:
    """Returns whether a preset is in effect and what proved it, or how far it came and why no further."""
    if p.proof is None or not p.proof.in_effect:
        return f"{p.status}: {shortened(p.reason)}" if p.reason else p.status
    if not p.proof.settings:
        return "proved"
    sources = dict.fromkeys(s.source.partition(" ")[0] for s in p.proof.settings)
    return f"proved: {len(p.proof.settings)} settings read from {', '.join(sources)}"


def _passed(p: PresetState) -> str:
    return (
        "  ".join(
            f"{e.passed}/{e.judged} {e.problem_set}" if e.judged else f"{e.problem_set}: {e.words}" for e in p.evals
        )
        or "-"
    )


def _lossless(p: PresetState) -> str:
    if p.lossless is None:
        return "-"
    if p.lossless.of_the_reference:
        return "reference"
    return f"{p.lossless.identical}/{p.lossless.compared} identical{', DIVERGED' if p.lossless.diverged else ''}"


def _overview(state: SessionState, points: dict[Any, PointCells]) -> Table:
    table = new_table()
    table.add_column("context x concurrency", no_wrap=True)
    for name in state.presets:
        table.add_column(printable(name), justify="right")
    for point in sorted({p for _, p in points}):
        row = []
        for name in state.presets:
            cells = points.get((name, point))
            estimate = cells.estimate(THROUGHPUT) if cells else None
            row.append("-" if cells is None or estimate is None else estimate_words(estimate) + _doubt(cells))
        table.add_row(point.text, *row)
    return table


def _doubt(cells: PointCells) -> str:
    return " !" if cells.void else " *" if cells.told_marks else ""


def _cells(points: list[PointCells]) -> Table:
    table = new_table()
    headings = ("cell", "tok/s", "user tok/s", "TTFT p50 s", "p99 s", "accept", "conc", "J/tok", "ok/failed", "marks")
    for heading in headings:
        table.add_column(
            heading, justify="left" if heading in ("cell", "marks") else "right", no_wrap=heading == "cell"
        )
    for cells in points:
        figures = cells.figures
        if not figures:
            table.add_row(cells.point.text, *["-"] * (len(headings) - 2), printable(cells.no_figures))
            continue
        throughput, acceptance = cells.estimate(THROUGHPUT), cells.estimate(ACCEPTANCE)
        failed = sum(n for f in figures for n in f.requests.failed.values())
        table.add_row(
            cells.point.text,
            ("-" if throughput is None else estimate_words(throughput)) + _doubt(cells),
            mean_words([f.decode_tok_s.p50 for f in figures], 1),
            mean_words([f.ttft_s.p50 for f in figures], 3),
            _tail([f.ttft_s for f in figures]),
            "-" if acceptance is None else estimate_words(acceptance, 2),
            mean_words([f.effective_concurrency for f in figures], 1),
            mean_words([f.energy_j_per_tok for f in figures], 2),
            f"{sum(f.requests.valid for f in figures)}/{failed}",
            " ".join(m.kind.value for m in cells.marks),
        )
    return table


def estimate_words(estimate: Estimate, digits: int = 1) -> str:
    """Returns `170.2 ±1.1`, or the figure alone where its interval is not known."""
    half = "" if estimate.half is None else f" ±{estimate.half:.{digits}f}"
    return f"{estimate.value:.{digits}f}{half}"


def mean_words(values: list[float | None], digits: int) -> str:
    """Returns the mean of the known values, or `-` where none is known."""
    known = [v for v in values if v is not None]
    return f"{sum(known) / len(known):.{digits}f}" if known else "-"


def _tail(found: list[Percentiles]) -> str:
    """Returns the worst repetition's p99, with a sign where it is a maximum for want of samples."""
    known = [p for p in found if p.p99 is not None]
    if not known:
        return "-"
    return f"{max(p.p99 for p in known if p.p99 is not None):.3f}{'^' if any(p.p99_is_max for p in known) else ''}"
