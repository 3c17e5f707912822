"""The one pure reducer that makes the state: state, event -> state.

The engine keeps the state with it, terminals are fed by it, replay, `show` and resume rebuild it from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from sessions import events as ev
from sessions.events import AnyEvent, Level
from sessions.news import with_news
from sessions.reduce_cells import CELL_REDUCERS
from sessions.reduce_presets import PRESET_REDUCERS, left_behind, resumed_preset, with_preset
from sessions.state import (
    GPU_HISTORY_KEPT,
    LOG_KEPT,
    CellState,
    GpuPoint,
    News,
    Pending,
    PresetState,
    SessionState,
)


def reduce(state: SessionState, event: AnyEvent) -> SessionState:
    """Returns the state after an event; pure.

    Args:
        state: the state before.
        event: what happened.
    """
    state = replace(state, t=max(state.t, event.t), at=event.at or state.at)
    return _REDUCERS[type(event)](state, event)


def reduce_all(events: Iterable[AnyEvent], state: SessionState | None = None) -> SessionState:
    """Returns the state after many events, from an empty one unless one is given."""
    state = state or SessionState()
    for event in events:
        state = reduce(state, event)
    return state


def _started(state: SessionState, e: ev.SessionStarted) -> SessionState:
    state = replace(
        state,
        label=e.label,
        session=e.session,
        base_url=e.base_url,
        model=e.model,
        simulated=e.simulated,
        restarts=e.restarts,
        reference=e.reference,
        repeats=e.repeats,
        max_tokens=e.max_tokens,
        coding=e.coding,
        lossless_prompts=e.lossless_prompts,
        load_s_expected=e.load_s_expected,
        cell_s_expected=e.cell_s_expected,
        engine_pid=e.engine_pid,
        started_at=e.at,
        presets={p.name: PresetState(preset=p) for p in e.presets},
        cells={k.text: CellState(key=k) for k in e.cells},
    )
    return with_news(state, e, "info", f"{_count(len(e.presets), 'preset')}, {_count(len(e.cells), 'cell')} planned")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _resumed(state: SessionState, e: ev.SessionResumed) -> SessionState:
    cells = {
        name: replace(c, status="waiting", progress=None, reason=f"was {c.status}; to be measured anew")
        if c.status in ("running", "failed", "not-in-effect")
        else c
        for name, c in state.cells.items()
    }
    presets = {name: resumed_preset(p) for name, p in state.presets.items()}
    state = replace(
        state,
        cells=cells,
        presets=presets,
        status="running",
        phase="idle",
        phase_words="",
        phase_since_t=e.t,
        paused=False,
        current_cell=None,
        current_preset=None,
        engine_pid=e.engine_pid,
        end_words="",
    )
    return with_news(state, e, "info", "resumed")


def _phase(state: SessionState, e: ev.PhaseChanged) -> SessionState:
    changed = e.phase != state.phase or e.preset != state.current_preset
    key = e.cell.text if e.cell else None
    state = replace(
        state,
        phase=e.phase,
        phase_words=e.words,
        phase_since_t=e.t if changed or key != state.current_cell else state.phase_since_t,
        paused=e.phase == "paused",
        pending="" if e.phase == "paused" and state.pending == "pause" else state.pending,
        current_preset=e.preset,
        current_cell=key,
    )
    if e.phase in ("reconfiguring", "idle"):
        presets = {name: left_behind(p, e.at) if name != e.preset else p for name, p in state.presets.items()}
        state = replace(state, presets=presets)
    if e.phase == "reconfiguring" and e.preset and state.presets[e.preset].status != "switching":
        begun = {"status": "switching", "steps": (), "proof": None, "reason": "", "broken_off_at": None}
        state = with_preset(state, e.preset, switching_since_t=e.t, **begun)
    return with_news(state, e, "info", e.words) if e.words else state


def _gpus(state: SessionState, e: ev.GpusSampled) -> SessionState:
    point = GpuPoint(
        e.t,
        tuple(g.utilisation for g in e.sample.gpus),
        tuple(g.power_w for g in e.sample.gpus),
        tuple(g.temperature_c for g in e.sample.gpus),
    )
    history = (*state.gpu_history[-(GPU_HISTORY_KEPT - 1) :], point)
    return replace(state, gpus=e.sample, gpu_history=history)


def _idle_power(state: SessionState, e: ev.IdlePowerMeasured) -> SessionState:
    known = [watts for watts in e.power_w if watts is not None]
    state = replace(state, idle_power_w=e.power_w)
    return with_news(
        state, e, "info", f"GPUs before the sweep: {sum(known):.0f} W, {len(known)} of {len(e.power_w)} read"
    )


def _server(state: SessionState, e: ev.ServerSampled) -> SessionState:
    return replace(state, server=e.sample)


def _logged(state: SessionState, e: ev.ServerLogged) -> SessionState:
    lines = e.lines if not e.left_out else (f"... {e.left_out} lines left out ...", *e.lines)
    return replace(state, log=(*state.log, *lines)[-LOG_KEPT:])


def _command(state: SessionState, e: ev.CommandReceived) -> SessionState:
    pending: dict[str, Pending] = {"pause": "pause", "stop-after-cell": "stop-after-cell"}
    if e.command in pending:
        state = replace(state, pending=pending[e.command])
    elif e.command == "resume":
        state = replace(state, pending="")
    return with_news(state, e, "info", f"asked: {e.command} {e.argument}".rstrip())


def _note(state: SessionState, e: ev.NoteAdded) -> SessionState:
    state = replace(state, notes=(*state.notes, News(e.t, e.at, "info", e.text)))
    return with_news(state, e, "info", f"note: {e.text}")


def _said(state: SessionState, e: ev.Said) -> SessionState:
    return with_news(state, e, e.level, e.words)


def _ended(state: SessionState, e: ev.SessionEnded) -> SessionState:
    presets = {name: left_behind(p, e.at) for name, p in state.presets.items()}
    state = replace(
        state,
        status=e.status,
        phase=e.status,
        phase_words=e.words,
        phase_since_t=e.t,
        paused=False,
        pending="",
        end_words=e.words,
        current_cell=None,
        presets=presets,
        engine_pid=None,
    )
    measured = sum(1 for c in state.cells.values() if c.status == "measured")
    level: Level = "warning" if measured else "error"
    if e.status == "finished" and measured == len(state.cells):
        level = "good"
    return with_news(state, e, level, f"session {e.status}: {e.words}")


_REDUCERS: dict[type, Callable[[SessionState, Any], SessionState]] = {
    **PRESET_REDUCERS,
    **CELL_REDUCERS,
    ev.SessionStarted: _started,
    ev.SessionResumed: _resumed,
    ev.PhaseChanged: _phase,
    ev.GpusSampled: _gpus,
    ev.IdlePowerMeasured: _idle_power,
    ev.ServerSampled: _server,
    ev.ServerLogged: _logged,
    ev.CommandReceived: _command,
    ev.NoteAdded: _note,
    ev.Said: _said,
    ev.SessionEnded: _ended,
}
