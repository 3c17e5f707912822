"""Marks that a cell gets from what was measured beside it: a wider tree that accepts less, text that differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from loadgen.figures import Mark
from loadgen.marks import diverged, tau_drop
from reconfig.presets import Preset
from sessions.events import CellKey
from sessions.state import CellState, SessionState
from sessions.sweep import Sweep


def marks_from_neighbours(state: SessionState, measured: CellKey, sweep: Sweep) -> Iterator[tuple[CellKey, Mark]]:
    """Yields (cell, mark) for every cell that the newly measured one throws a doubt on; often another than itself.

    Args:
        state: with the newly measured cell in it.
        measured: that cell.
        sweep: with the limits of the lossless check.
    """
    cell = state.cells[measured.text]
    lossless = state.presets[measured.preset].lossless
    if lossless is not None and lossless.identical_share is not None:
        mark = diverged(
            lossless.identical_share,
            lossless.median_first_difference,
            share_limit=sweep.evals.lossless_share,
            position_limit=sweep.evals.lossless_position,
        )
        if mark is not None:
            yield measured, mark
    column = [c for c in _same_point(state, cell) if _budget(state, c) is not None]
    column.sort(key=lambda c: _budget(state, c) or 0)
    for smaller, larger in itertools.pairwise(column):
        if measured not in (smaller.key, larger.key) or smaller.figures is None or larger.figures is None:
            continue
        if (mark := tau_drop(larger.figures, smaller.figures)) is not None:
            yield larger.key, mark


def _same_point(state: SessionState, cell: CellState) -> list[CellState]:
    """The measured cells of the same matrix point and repetition whose presets differ in budget alone."""
    like = _but_budget(state.presets[cell.key.preset].preset)
    return [
        other
        for other in state.cells.values()
        if other.status == "measured"
        and (other.key.context, other.key.concurrency, other.key.temperature, other.key.repetition)
        == (cell.key.context, cell.key.concurrency, cell.key.temperature, cell.key.repetition)
        and _but_budget(state.presets[other.key.preset].preset) == like
    ]


def _but_budget(preset: Preset) -> tuple[object, ...]:
    return (preset.algorithm, preset.topk, preset.window, preset.block_size, preset.flags, tuple(preset.env.items()))


def _budget(state: SessionState, cell: CellState) -> int | None:
    return state.presets[cell.key.preset].preset.budget
