"""How long a running session will still take, by what was seen of it so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from sessions.state import CellState, SessionState

Where = tuple[int, int]
"""Context and concurrency."""


class Seen(msgspec.Struct, frozen=True):
    """What was seen of cells: seconds, or tok/s, by (context, concurrency)."""

    values: Mapping[Where, float]

    @classmethod
    def of(cls, found: Iterable[tuple[Where, float]]) -> Seen:
        """Collects values; several for one place become their median."""
        grouped: dict[Where, list[float]] = {}
        for where, value in found:
            grouped.setdefault(where, []).append(value)
        return cls({where: median(values) for where, values in grouped.items()})

    def at(self, context: int, concurrency: int) -> float | None:
        """Returns the value at a place; else the median of its concurrency, else of everything; `None` of nothing."""
        if (exact := self.values.get((context, concurrency))) is not None:
            return exact
        near = [v for (_, c), v in self.values.items() if c == concurrency] or list(self.values.values())
        return median(near) if near else None


def remaining_s(state: SessionState) -> float | None:
    """Returns the seconds a session will still take, or `None` when it has ended or nothing is known yet.

    Cells by those measured so far at the same place (or near it), restarts by those of this session or remembered
    ones. Evals are not counted.
    """
    if state.status != "running" or not state.cells:
        return None
    seen = Seen.of(_cell_seconds(state))
    left = [c for c in state.cells.values() if c.status in ("waiting", "running")]
    total = 0.0
    for cell in left:
        whole = seen.at(cell.key.context, cell.key.concurrency) or state.cell_s_expected
        if (seconds := _of_cell(cell, whole, state.t)) is None:
            return None
        total += seconds
    if state.restarts:
        proofs = [p.proof for p in state.presets.values() if p.proof is not None]
        loads = [p.took_s for p in proofs if p.in_effect and p.took_s is not None]
        load = median(loads) if loads else state.load_s_expected
        for name in dict.fromkeys(c.key.preset for c in left):
            preset = state.presets.get(name)
            if preset is None or preset.status == "in-effect":
                continue
            if load is None:
                return None
            since = preset.switching_since_t if preset.status == "switching" else None
            total += load if since is None else max(0.0, load - (state.t - since))
    return total


def _cell_seconds(state: SessionState) -> Iterable[tuple[Where, float]]:
    for cell in state.cells.values():
        if cell.status == "measured" and cell.started_t is not None and cell.ended_t is not None:
            yield (cell.key.context, cell.key.concurrency), cell.ended_t - cell.started_t


def _of_cell(cell: CellState, whole: float | None, now: float) -> float | None:
    if cell.status != "running" or cell.started_t is None:
        return whole
    gone = now - cell.started_t
    share = cell.progress.share_done if cell.progress is not None else 0.0
    if share > 0.1:  # by then the cell itself knows best
        return gone / share * (1 - share)
    return None if whole is None else max(0.0, whole - gone)
