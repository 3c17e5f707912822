"""The one pure reducer that makes the state: state, event -> state.

The engine keeps the state with it, terminals are fed by it, replay, `show` and resume rebuild it from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from evals.verdicts import Judgement, counts_for_the_model
from loadgen.figures import CellFigures
from sessions import events as ev
from sessions.events import LEFT, AnyEvent, CellKey, Level
from sessions.state import (
    GPU_HISTORY_KEPT,
    HISTORY_KEPT,
    LOG_KEPT,
    NEWS_KEPT,
    CellState,
    GpuPoint,
    News,
    Pending,
    Point,
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


def _news(state: SessionState, event: AnyEvent, level: Level, words: str) -> SessionState:
    line = News(event.t, event.at, level, words)
    return replace(state, news=(*state.news[-(NEWS_KEPT - 1) :], line))


def _preset(state: SessionState, name: str, **changes: object) -> SessionState:
    if (before := state.presets.get(name)) is None:
        return state
    return replace(state, presets={**state.presets, name: replace(before, **changes)})


def _cell(state: SessionState, key: CellKey, **changes: object) -> SessionState:
    before = state.cells.get(key.text) or CellState(key=key)
    return replace(state, cells={**state.cells, key.text: replace(before, **changes)})


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
    return _news(state, e, "info", f"{_count(len(e.presets), 'preset')}, {_count(len(e.cells), 'cell')} planned")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _resumed(state: SessionState, e: ev.SessionResumed) -> SessionState:
    cells = {
        name: replace(c, status="waiting", progress=None, reason=f"was {c.status}; to be measured anew")
        if c.status in ("running", "failed", "not-in-effect")
        else c
        for name, c in state.cells.items()
    }
    presets = {name: _resumed_preset(p) for name, p in state.presets.items()}
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
    return _news(state, e, "info", "resumed")


def _resumed_preset(preset: PresetState) -> PresetState:
    """A preset after a stop: nothing is in effect; what proved its measured cells is kept."""
    if preset.status == "switching":
        return _broken_off(preset, "")
    if preset.status == "not-in-effect" and preset.proved is not None:
        return replace(preset, status="waiting", proof=preset.proved, steps=preset.proved.steps)
    return replace(preset, status="waiting") if preset.status in ("in-effect", "not-in-effect") else preset


def _broken_off(preset: PresetState, at: str) -> PresetState:
    """A preset whose switch ends without a verdict: no step is open, and the proof is again the one before."""
    steps = tuple(
        replace(s, state="failed", detail="broken off", share=None) if s.state == "running" else s
        for s in preset.steps
        if s.state != "waiting"
    )
    return replace(preset, status="waiting", steps=steps, proof=preset.proved, broken_off_at=at)


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
        presets = {name: _left(p, e.at) if name != e.preset else p for name, p in state.presets.items()}
        state = replace(state, presets=presets)
    if e.phase == "reconfiguring" and e.preset and state.presets[e.preset].status != "switching":
        begun = {"status": "switching", "steps": (), "proof": None, "reason": "", "broken_off_at": None}
        state = _preset(state, e.preset, switching_since_t=e.t, **begun)
    return _news(state, e, "info", e.words) if e.words else state


def _left(preset: PresetState, at: str) -> PresetState:
    """A preset that another takes the place of: one that was in effect is done, one that never got there waits."""
    if preset.status == "in-effect":
        return replace(preset, status="done")
    return _broken_off(preset, at) if preset.status == "switching" else preset


def _proof_step(state: SessionState, e: ev.ProofStepChanged) -> SessionState:
    if (preset := state.presets.get(e.preset)) is None:
        return state
    known = [s.name for s in preset.steps]
    if e.step.name in known:
        steps = tuple(e.step if s.name == e.step.name else s for s in preset.steps)
    else:
        steps = (*preset.steps, e.step)
    return _preset(state, e.preset, steps=steps)


def _proved(state: SessionState, e: ev.PresetProved) -> SessionState:
    name = e.proof.preset
    if e.proof.in_effect:
        proof = e.proof
        state = _preset(state, name, status="in-effect", proof=proof, proved=proof, reason="", steps=proof.steps)
        if state.restarts and e.proof.took_s is not None:
            state = replace(state, load_s_expected=e.proof.took_s)
        took = f" after {e.proof.took_s:.0f} s" if e.proof.took_s is not None else ""
        return _news(state, e, "good", f"{name} is in effect{took}")
    why = e.proof.failure or "not in effect"
    state = _preset(state, name, status="not-in-effect", proof=e.proof, reason=why, steps=e.proof.steps)
    return _news(state, e, "error", f"{name} is not in effect: {why}")


def _preset_lost(state: SessionState, e: ev.PresetLost) -> SessionState:
    if e.preset in state.presets and state.presets[e.preset].status == "in-effect":
        state = _preset(state, e.preset, status="waiting", reason=e.reason)
    return _news(state, e, "error", f"{e.preset} is not known to be in effect any more: {e.reason}")


def _preset_skipped(state: SessionState, e: ev.PresetSkipped) -> SessionState:
    state = _preset(state, e.preset, status="skipped", reason=e.reason)
    return _news(state, e, "warning", f"{e.preset} skipped: {e.reason}")


def _preset_added(state: SessionState, e: ev.PresetAdded) -> SessionState:
    cells = {**state.cells, **{k.text: CellState(key=k) for k in e.cells}}
    presets = {**state.presets, e.preset.name: PresetState(preset=e.preset)}
    return _news(replace(state, cells=cells, presets=presets), e, "info", f"preset {e.preset.name} added")


def _reordered(state: SessionState, e: ev.PresetsReordered) -> SessionState:
    order = [n for n in e.order if n in state.presets] + [n for n in state.presets if n not in e.order]
    presets = {name: state.presets[name] for name in order}
    rank = {name: i for i, name in enumerate(order)}
    cells = dict(sorted(state.cells.items(), key=lambda item: rank.get(item[1].key.preset, len(rank))))
    return _news(replace(state, presets=presets, cells=cells), e, "info", "presets reordered")


def _cell_started(state: SessionState, e: ev.CellStarted) -> SessionState:
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


def _cell_progressed(state: SessionState, e: ev.CellProgressed) -> SessionState:
    p = e.progress
    history = state.history
    if p.tok_s is not None:
        history = (*history[-(HISTORY_KEPT - 1) :], Point(e.t, p.tok_s, p.acceptance_length, p.phase == "steady"))
    return replace(_cell(state, e.cell, progress=p), history=history)


def _cell_ended(state: SessionState, e: ev.CellEnded) -> SessionState:
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
        return _news(state, e, "good", f"{where}: {_figures_words(e.figures)}")
    if e.outcome == "not-in-effect" or e.reason == LEFT:
        return state
    return _news(state, e, "warning" if e.outcome == "skipped" else "error", f"{where} {e.outcome}: {e.reason}")


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


def _cell_marked(state: SessionState, e: ev.CellMarked) -> SessionState:
    before = state.cells.get(e.cell.text)
    if before is None or before.figures is None:
        return state
    marks = (*(m for m in before.figures.marks if m.kind != e.mark.kind), e.mark)
    state = _cell(state, e.cell, figures=replace(before.figures, marks=marks))
    return _news(state, e, "warning", f"{e.cell.text} marked {e.mark.kind.value}: {e.mark.reason}")


def _cell_reset(state: SessionState, e: ev.CellReset) -> SessionState:
    state = _cell(state, e.cell, status="waiting", figures=None, progress=None, reason=e.reason)
    return _news(state, e, "info", f"{e.cell.text} will be measured again: {e.reason}")


def _judged(state: SessionState, e: ev.AnswerJudged) -> SessionState:
    j = e.judgement
    before = state.presets.get(j.preset)
    if before is None:
        return state
    kept = tuple(
        x for x in before.judgements if (x.problem_set, x.task_id, x.sample) != (j.problem_set, j.task_id, j.sample)
    )
    return _preset(state, j.preset, judgements=(*kept, j))


def _eval_ended(state: SessionState, e: ev.EvalEnded) -> SessionState:
    s = e.summary
    before = state.presets.get(s.preset)
    kept = tuple(x for x in before.evals if x.problem_set != s.problem_set) if before else ()
    state = _preset(state, s.preset, evals=(*kept, s))
    level: Level = "error" if not s.judged else "warning" if s.passed < s.judged or s.unjudged else "good"
    why = next((f": {j.detail}" for j in _unjudged(before, s.problem_set)), "")
    return _news(state, e, level, f"{s.preset} {s.problem_set}: {s.words}{why}")


def _unjudged(preset: PresetState | None, problem_set: str) -> list[Judgement]:
    answers = preset.judgements if preset else ()
    return [j for j in answers if j.problem_set == problem_set and not counts_for_the_model(j)]


def _lossless_ended(state: SessionState, e: ev.LosslessEnded) -> SessionState:
    s = e.summary
    state = _preset(state, s.preset, lossless=s)
    words = f"{s.preset} lossless: {s.identical} of {s.compared} texts identical to {s.reference}"
    return _news(state, e, "error" if s.diverged else "good", words)


def _suspicion(state: SessionState, e: ev.SuspicionRaised) -> SessionState:
    kept = tuple(s for s in state.suspicions if (s.rule, s.preset) != (e.suspicion.rule, e.suspicion.preset))
    state = replace(state, suspicions=(*kept, e.suspicion))
    return _news(state, e, "warning", f"suspect the {e.suspicion.suspect}: {e.suspicion.words}")


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
    return _news(state, e, "info", f"GPUs before the sweep: {sum(known):.0f} W, {len(known)} of {len(e.power_w)} read")


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
    return _news(state, e, "info", f"asked: {e.command} {e.argument}".rstrip())


def _note(state: SessionState, e: ev.NoteAdded) -> SessionState:
    state = replace(state, notes=(*state.notes, News(e.t, e.at, "info", e.text)))
    return _news(state, e, "info", f"note: {e.text}")


def _said(state: SessionState, e: ev.Said) -> SessionState:
    return _news(state, e, e.level, e.words)


def _ended(state: SessionState, e: ev.SessionEnded) -> SessionState:
    presets = {name: _left(p, e.at) for name, p in state.presets.items()}
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
    return _news(state, e, level, f"session {e.status}: {e.words}")


_REDUCERS: dict[type, Callable[[SessionState, Any], SessionState]] = {
    ev.SessionStarted: _started,
    ev.SessionResumed: _resumed,
    ev.PhaseChanged: _phase,
    ev.ProofStepChanged: _proof_step,
    ev.PresetProved: _proved,
    ev.PresetLost: _preset_lost,
    ev.PresetSkipped: _preset_skipped,
    ev.PresetAdded: _preset_added,
    ev.PresetsReordered: _reordered,
    ev.CellStarted: _cell_started,
    ev.CellProgressed: _cell_progressed,
    ev.CellEnded: _cell_ended,
    ev.CellMarked: _cell_marked,
    ev.CellReset: _cell_reset,
    ev.AnswerJudged: _judged,
    ev.EvalEnded: _eval_ended,
    ev.LosslessEnded: _lossless_ended,
    ev.SuspicionRaised: _suspicion,
    ev.GpusSampled: _gpus,
    ev.IdlePowerMeasured: _idle_power,
    ev.ServerSampled: _server,
    ev.ServerLogged: _logged,
    ev.CommandReceived: _command,
    ev.NoteAdded: _note,
    ev.Said: _said,
    ev.SessionEnded: _ended,
}
