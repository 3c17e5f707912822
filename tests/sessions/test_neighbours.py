"""Marks that a cell gets from what was measured beside it."""

from __future__ import annotations

from evals.verdicts import LosslessDifference, LosslessSummary
from loadgen.figures import CellFigures, Interval, MarkKind
from reconfig.presets import Preset
from sessions import events as ev
from sessions.engine.neighbours import marks_from_neighbours
from sessions.plan import plan_cells
from sessions.reduce import reduce_all
from sessions.state import SessionState
from sessions.sweep import EvalsTable, ServerTable, Sweep

PRESETS = (
    Preset(name="b16", algorithm="DDTREE", budget=16, topk=4),
    Preset(name="b8", algorithm="DDTREE", budget=8, topk=4),
    Preset(name="b4-other", algorithm="DDTREE", budget=4, topk=2),
)
SWEEP = Sweep(server=ServerTable(base_url="http://h"), evals=EvalsTable(lossless_prompts=4))


def state_after(taus: dict[str, float], *more: ev.AnyEvent) -> SessionState:
    cells = plan_cells(PRESETS, [60], [1], [0.0], 1)
    started = ev.SessionStarted(
        t=0.0, label="l", session="s", base_url="u", model="m", presets=PRESETS, cells=cells, reference="b8"
    )
    ended = [
        ev.CellEnded(
            t=1.0,
            cell=cell,
            run=cell.text,
            outcome="measured",
            figures=CellFigures(
                acceptance_length=taus[cell.preset],
                acceptance_source="per-request",
                acceptance_ci95=Interval(taus[cell.preset] - 0.1, taus[cell.preset] + 0.1),
            ),
        )
        for cell in cells
        if cell.preset in taus
    ]
    return reduce_all([started, *more, *ended])


def test_a_wider_tree_that_accepts_less_is_marked_whichever_was_measured_last():
    state = state_after({"b16": 3.0, "b8": 4.0})
    for last in ("b16", "b8"):
        key = state.cells[f"{last}/60x1/t0/r1"].key
        ((marked, mark),) = marks_from_neighbours(state, key, SWEEP)
        assert marked.preset == "b16" and mark.kind is MarkKind.TAU_DROP


def test_presets_that_differ_in_more_than_the_budget_are_not_compared():
    state = state_after({"b16": 3.0, "b4-other": 4.0})
    assert list(marks_from_neighbours(state, state.cells["b16/60x1/t0/r1"].key, SWEEP)) == []


def test_a_preset_whose_text_diverged_marks_its_cells_and_a_marked_cell_keeps_its_figures():
    summary = LosslessSummary(
        preset="b16",
        reference="b8",
        prompts=4,
        compared=4,
        identical=1,
        identical_share=0.25,
        median_first_difference=9.0,
        diverged=True,
        differences=(LosslessDifference(prompt=1, identical=False, first_difference=9),),
    )
    state = state_after({"b16": 5.0, "b8": 4.0}, ev.LosslessEnded(t=0.5, summary=summary))
    key = state.cells["b16/60x1/t0/r1"].key
    ((marked, mark),) = marks_from_neighbours(state, key, SWEEP)
    assert mark.kind is MarkKind.DIVERGED and "25%" in mark.reason
    after = reduce_all([ev.CellMarked(t=2.0, cell=marked, mark=mark)], state).cells[key.text]
    assert after.figures is not None and after.figures.acceptance_length == 5.0
    assert [m.kind for m in after.figures.marks] == [MarkKind.DIVERGED]


def test_the_limits_are_those_of_the_sweep():
    summary = LosslessSummary(
        preset="b16",
        reference="b8",
        prompts=4,
        compared=4,
        identical=3,
        identical_share=0.75,
        median_first_difference=60.0,
        diverged=True,
    )
    state = state_after({"b16": 5.0}, ev.LosslessEnded(t=0.5, summary=summary))
    key = state.cells["b16/60x1/t0/r1"].key
    strict = Sweep(server=SWEEP.server, evals=EvalsTable(lossless_share=0.7))
    assert len(list(marks_from_neighbours(state, key, SWEEP))) == 1
    assert list(marks_from_neighbours(state, key, strict)) == []
