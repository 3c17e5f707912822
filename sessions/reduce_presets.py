"""The reducer's part for presets: proved or not, lost, skipped, added, and what their evals said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from evals.verdicts import Judgement, counts_for_the_model
from sessions import events as ev
from sessions.events import Level
from sessions.news import with_news
from sessions.state import CellState, PresetState, SessionState


def with_preset(state: SessionState, name: str, **changes: object) -> SessionState:
    """Returns the state with one preset changed; an unknown one changes nothing."""
    if (before := state.presets.get(name)) is None:
        return state
    return replace(state, presets={**state.presets, name: replace(before, **changes)})


def resumed_preset(preset: PresetState) -> PresetState:
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


def left_behind(preset: PresetState, at: str) -> PresetState:
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
    return with_preset(state, e.preset, steps=steps)


def _proved(state: SessionState, e: ev.PresetProved) -> SessionState:
    name = e.proof.preset
    if e.proof.in_effect:
        proof = e.proof
        state = with_preset(state, name, status="in-effect", proof=proof, proved=proof, reason="", steps=proof.steps)
        if state.restarts and e.proof.took_s is not None:
            state = replace(state, load_s_expected=e.proof.took_s)
        took = f" after {e.proof.took_s:.0f} s" if e.proof.took_s is not None else ""
        return with_news(state, e, "good", f"{name} is in effect{took}")
    why = e.proof.failure or "not in effect"
    state = with_preset(state, name, status="not-in-effect", proof=e.proof, reason=why, steps=e.proof.steps)
    return with_news(state, e, "error", f"{name} is not in effect: {why}")


def _lost(state: SessionState, e: ev.PresetLost) -> SessionState:
    if e.preset in state.presets and state.presets[e.preset].status == "in-effect":
        state = with_preset(state, e.preset, status="waiting", reason=e.reason)
    return with_news(state, e, "error", f"{e.preset} is not known to be in effect any more: {e.reason}")


def _skipped(state: SessionState, e: ev.PresetSkipped) -> SessionState:
    state = with_preset(state, e.preset, status="skipped", reason=e.reason)
    return with_news(state, e, "warning", f"{e.preset} skipped: {e.reason}")


def _added(state: SessionState, e: ev.PresetAdded) -> SessionState:
    cells = {**state.cells, **{k.text: CellState(key=k) for k in e.cells}}
    presets = {**state.presets, e.preset.name: PresetState(preset=e.preset)}
    return with_news(replace(state, cells=cells, presets=presets), e, "info", f"preset {e.preset.name} added")


def _reordered(state: SessionState, e: ev.PresetsReordered) -> SessionState:
    order = [n for n in e.order if n in state.presets] + [n for n in state.presets if n not in e.order]
    presets = {name: state.presets[name] for name in order}
    rank = {name: i for i, name in enumerate(order)}
    cells = dict(sorted(state.cells.items(), key=lambda item: rank.get(item[1].key.preset, len(rank))))
    return with_news(replace(state, presets=presets, cells=cells), e, "info", "presets reordered")


def _judged(state: SessionState, e: ev.AnswerJudged) -> SessionState:
    j = e.judgement
    before = state.presets.get(j.preset)
    if before is None:
        return state
    kept = tuple(
        x for x in before.judgements if (x.problem_set, x.task_id, x.sample) != (j.problem_set, j.task_id, j.sample)
    )
    return with_preset(state, j.preset, judgements=(*kept, j))


def _eval_ended(state: SessionState, e: ev.EvalEnded) -> SessionState:
    s = e.summary
    before = state.presets.get(s.preset)
    kept = tuple(x for x in before.evals if x.problem_set != s.problem_set) if before else ()
    state = with_preset(state, s.preset, evals=(*kept, s))
    level: Level = "error" if not s.judged else "warning" if s.passed < s.judged or s.unjudged else "good"
    why = next((f": {j.detail}" for j in _unjudged(before, s.problem_set)), "")
    return with_news(state, e, level, f"{s.preset} {s.problem_set}: {s.words}{why}")


def _unjudged(preset: PresetState | None, problem_set: str) -> list[Judgement]:
    answers = preset.judgements if preset else ()
    return [j for j in answers if j.problem_set == problem_set and not counts_for_the_model(j)]


def _lossless_ended(state: SessionState, e: ev.LosslessEnded) -> SessionState:
    s = e.summary
    state = with_preset(state, s.preset, lossless=s)
    words = f"{s.preset} lossless: {s.identical} of {s.compared} texts identical to {s.reference}"
    return with_news(state, e, "error" if s.diverged else "good", words)


def _suspicion(state: SessionState, e: ev.SuspicionRaised) -> SessionState:
    kept = tuple(s for s in state.suspicions if (s.rule, s.preset) != (e.suspicion.rule, e.suspicion.preset))
    state = replace(state, suspicions=(*kept, e.suspicion))
    return with_news(state, e, "warning", f"suspect the {e.suspicion.suspect}: {e.suspicion.words}")


PRESET_REDUCERS: dict[type, Callable[[SessionState, Any], SessionState]] = {
    ev.ProofStepChanged: _proof_step,
    ev.PresetProved: _proved,
    ev.PresetLost: _lost,
    ev.PresetSkipped: _skipped,
    ev.PresetAdded: _added,
    ev.PresetsReordered: _reordered,
    ev.AnswerJudged: _judged,
    ev.EvalEnded: _eval_ended,
    ev.LosslessEnded: _lossless_ended,
    ev.SuspicionRaised: _suspicion,
}
