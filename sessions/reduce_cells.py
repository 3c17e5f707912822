"""The reducer's part for cells: begun, progressing, ended, marked, to be measured again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from loadgen.figures import CellFigures
from sessions import events as ev
from sessions.events import LEFT, CellKey
from sessions.news import with_news
from sessions.state import HISTORY_KEPT, CellState, Point, SessionState


def _cell(state: SessionState, key: CellKey, **changes: object) -> SessionState:
    before = state.cells.get(key.text) or CellState(key=key)
    return replace(state, cells={**state.cells, key.text: replace(before, **changes)})


def _started(state: SessionState, e: ev.CellStarted) -> SessionState:
    return _cell(
        state,
        e.cell,
        status="running",
        run=e.run,
        attempt=e.attempt,
        progress=None,
        started_t=e.t,
        ended_t=None,
        reason="",
    )


def _progressed(state: SessionState, e: ev.CellProgressed) -> SessionState:
    p = e.progress
    history = state.history
    if p.tok_s is not None:
        history = (*history[-(HISTORY_KEPT - 1) :], Point(e.t, p.tok_s, p.acceptance_length, p.phase == "steady"))
    return replace(_cell(state, e.cell, progress=p), history=history)


def _ended(state: SessionState, e: ev.CellEnded) -> SessionState:
    state = _cell(
        state,
        e.cell,
        status=e.outcome,
        run=e.run,
        figures=e.figures,
        reason=e.reason,
        failures=e.failures,
        progress=None,
        ended_t=e.t,
    )
    where = f"{e.cell.preset} {e.cell.context} x {e.cell.concurrency}"
    if e.outcome == "measured" and e.figures is not None:
        return with_news(state, e, "good", f"{where}: {_figures_words(e.figures)}")
    if e.outcome == "not-in-effect" or e.reason == LEFT:
        return state
    return with_news(state, e, "warning" if e.outcome == "skipped" else "error", f"{where} {e.outcome}: {e.reason}")


def _figures_words(figures: CellFigures) -> str:
    parts = []
    if figures.throughput_tok_s is not None:
        parts.append(f"{figures.throughput_tok_s:.1f} tok/s")
    if figures.acceptance_length is not None:
        parts.append(f"accept {figures.acceptance_length:.2f}")
    failed = sum(figures.requests.failed.values())
    parts.append(f"{figures.requests.valid} requests, {failed} failed")
    if figures.marks:
        parts.append("marks: " + ", ".join(m.kind.value for m in figures.marks))
    return ", ".join(parts)


def _marked(state: SessionState, e: ev.CellMarked) -> SessionState:
    before = state.cells.get(e.cell.text)
    if before is None or before.figures is None:
        return state
    marks = (*(m for m in before.figures.marks if m.kind != e.mark.kind), e.mark)
    state = _cell(state, e.cell, figures=replace(before.figures, marks=marks))
    return with_news(state, e, "warning", f"{e.cell.text} marked {e.mark.kind.value}: {e.mark.reason}")


def _reset(state: SessionState, e: ev.CellReset) -> SessionState:
    state = _cell(state, e.cell, status="waiting", figures=None, progress=None, reason=e.reason)
    return with_news(state, e, "info", f"{e.cell.text} will be measured again: {e.reason}")


CELL_REDUCERS: dict[type, Callable[[SessionState, Any], SessionState]] = {
    ev.CellStarted: _started,
    ev.CellProgressed: _progressed,
    ev.CellEnded: _ended,
    ev.CellMarked: _marked,
    ev.CellReset: _reset,
}
