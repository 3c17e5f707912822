"""What comes next, by the state alone."""

from __future__ import annotations

from evals.verdicts import EvalSummary, LosslessSummary
from loadgen.figures import CellFigures
from reconfig.presets import Preset, Proof
from sessions import events as ev
from sessions.plan import ApplyPreset, MeasureCell, RunCoding, RunLossless, next_step, plan_cells, reference_first
from sessions.reduce import reduce_all
from sessions.state import SessionState

A = Preset(name="a", algorithm="NONE")
B = Preset(name="b", algorithm="DDTREE", budget=8)


def started(repeats: int = 1, coding: str | None = None, lossless: int = 0) -> ev.SessionStarted:
    return ev.SessionStarted(
        t=0.0,
        label="l",
        session="s",
        base_url="http://h",
        model="m",
        presets=(A, B),
        cells=plan_cells([A, B], [60], [1, 8], [0.0], repeats),
        coding=coding,
        lossless_prompts=lossless,
    )


def in_effect(name: str) -> list[ev.AnyEvent]:
    return [
        ev.PhaseChanged(t=1.0, phase="reconfiguring", preset=name),
        ev.PresetProved(t=2.0, proof=Proof(preset=name, in_effect=True)),
    ]


def measured(cell: ev.CellKey) -> ev.CellEnded:
    return ev.CellEnded(t=3.0, cell=cell, run=cell.text, outcome="measured", figures=CellFigures())


def after(*events: ev.AnyEvent) -> SessionState:
    return reduce_all(events)


def test_repetitions_alternate_forward_and_backward():
    cells = plan_cells([A], [60, 1024], [1, 8], [0.0], 2)
    forward = [(c.context, c.concurrency) for c in cells[:4]]
    assert [(c.context, c.concurrency) for c in cells[4:]] == forward[::-1]
    assert [c.repetition for c in cells] == [1] * 4 + [2] * 4


def test_the_reference_comes_first():
    assert [p.name for p in reference_first([B, A], "a")] == ["a", "b"]


def test_a_preset_is_applied_before_its_cells():
    assert next_step(after(started())) == ApplyPreset("a")


def test_evals_come_before_cells_and_only_once():
    state = after(started(coding="core-5", lossless=4), *in_effect("a"))
    assert next_step(state) == RunCoding("a")
    summary = EvalSummary(
        preset="a", problem_set="core-5", problems=5, samples=5, passed=5, pass_at_1=1.0, pass_at_1_ci95=None
    )
    state = reduce_all([ev.EvalEnded(t=3.0, summary=summary)], state)
    assert next_step(state) == RunLossless("a")
    lossless = LosslessSummary(
        preset="a",
        reference="a",
        prompts=4,
        compared=0,
        identical=0,
        identical_share=None,
        median_first_difference=None,
        diverged=False,
    )
    state = reduce_all([ev.LosslessEnded(t=4.0, summary=lossless)], state)
    assert isinstance(next_step(state), MeasureCell)


def test_the_next_preset_follows_when_one_is_through_and_then_nothing():
    begin = started()
    own = [c for c in begin.cells if c.preset == "a"]
    state = after(begin, *in_effect("a"), *map(measured, own))
    assert next_step(state) == ApplyPreset("b")
    state = reduce_all([*in_effect("b"), *(measured(c) for c in begin.cells if c.preset == "b")], state)
    assert next_step(state) is None


def test_a_wanted_preset_goes_first_and_the_left_one_is_come_back_to():
    begin = started()
    state = after(begin, *in_effect("a"))
    assert next_step(state, "b") == ApplyPreset("b")
    state = reduce_all([*in_effect("b"), *(measured(c) for c in begin.cells if c.preset == "b")], state)
    assert next_step(state) == ApplyPreset("a")


def test_a_preset_that_is_not_in_effect_is_not_tried_again():
    begin = started()
    failed = ev.PresetProved(t=2.0, proof=Proof(preset="a", in_effect=False, failure="window"))
    state = after(begin, ev.PhaseChanged(t=1.0, phase="reconfiguring", preset="a"), failed)
    assert next_step(state) == ApplyPreset("b")


def test_a_given_up_preset_waits_again():
    state = after(
        started(),
        ev.PhaseChanged(t=1.0, phase="reconfiguring", preset="a"),
        ev.PhaseChanged(t=2.0, phase="idle"),
    )
    assert state.presets["a"].status == "waiting"


def test_resume_measures_a_begun_cell_anew():
    begin = started()
    first = begin.cells[0]
    state = after(begin, *in_effect("a"), ev.CellStarted(t=3.0, cell=first, run=first.text), ev.SessionResumed(t=4.0))
    assert state.cells[first.text].status == "waiting"
    assert state.cells[first.text].attempt == 1
    assert next_step(state) == ApplyPreset("a")
