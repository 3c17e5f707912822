"""The plan as data: which cells in which order, and what comes next. The engine asks, and does nothing else.

Resume needs nothing of its own: what is missing is what the state says is still waiting. An adaptive order would
replace `next_step` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconfig.presets import Preset
from sessions.events import CellKey
from sessions.state import PresetState, SessionState


class ApplyPreset(msgspec.Struct, frozen=True):
    """Put a preset in effect and prove it."""

    preset: str


class RunCoding(msgspec.Struct, frozen=True):
    """Run the coding eval under the preset in effect."""

    preset: str


class RunLossless(msgspec.Struct, frozen=True):
    """Run the lossless check under the preset in effect."""

    preset: str


class MeasureCell(msgspec.Struct, frozen=True):
    """Measure a cell under the preset in effect."""

    cell: CellKey


Step = ApplyPreset | RunCoding | RunLossless | MeasureCell


def plan_cells(
    presets: Sequence[Preset],
    contexts: Sequence[int],
    concurrencies: Sequence[int],
    temperatures: Sequence[float],
    repeats: int,
) -> tuple[CellKey, ...]:
    """Returns every cell in measuring order.

    Within a preset, repetitions alternate forward and backward through the matrix, so that a drift shows as a
    difference between repetitions instead of hiding in the order of the cells.
    """
    cells = []
    for preset in presets:
        points = [(x, c, t) for t in temperatures for x in contexts for c in concurrencies]
        for repetition in range(1, repeats + 1):
            for context, concurrency, temperature in points if repetition % 2 else points[::-1]:
                cells.append(
                    CellKey(
                        preset=preset.name,
                        context=context,
                        concurrency=concurrency,
                        temperature=temperature,
                        repetition=repetition,
                    )
                )
    return tuple(cells)


def reference_first(presets: Sequence[Preset], reference: str | None) -> tuple[Preset, ...]:
    """Returns the presets with the reference in front: the others' texts are compared with its."""
    return tuple(sorted(presets, key=lambda p: p.name != reference))


def next_step(state: SessionState, wanted: str | None = None) -> Step | None:
    """Returns what comes next, or `None` when nothing is left.

    Args:
        state: the session so far.
        wanted: a preset that the operator asked for now.
    """
    present = next((p for p in state.presets.values() if p.status == "in-effect"), None)
    if wanted is not None and (present is None or present.preset.name != wanted):
        return ApplyPreset(wanted)
    if present is not None and (step := _left_under(state, present)) is not None:
        return step
    for name, preset in state.presets.items():
        if preset.status in ("waiting", "done") and _left_under(state, preset) is not None:
            return ApplyPreset(name)
    return None


def anything_left(state: SessionState, name: str) -> bool:
    """Whether anything is still to be done under a preset, were it in effect: evals, or cells that have no figures."""
    preset = state.presets[name]
    lost = any(c.key.preset == name and c.status == "not-in-effect" for c in state.cells.values())
    return lost or _left_under(state, preset) is not None


def _left_under(state: SessionState, preset: PresetState) -> Step | None:
    name = preset.preset.name
    cell = next((c for c in state.cells.values() if c.key.preset == name and c.status == "waiting"), None)
    if state.coding is not None and all(e.problem_set != state.coding for e in preset.evals):
        return RunCoding(name)
    if state.lossless_prompts and preset.lossless is None:
        return RunLossless(name)
    return MeasureCell(cell.key) if cell is not None else None
