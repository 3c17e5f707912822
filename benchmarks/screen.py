"""The screens' own process in the terminal benchmark: `python -m benchmarks.screen idle|busy`.

Busy is a sweep of 16 cells in the shape of a real one: 4 states a second, GPUs once a second, cells that end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from sessions.reduce import reduce, reduce_all
from tests.tui import scripted as s
from tui.app import run_app


class Sweep:
    """A source: a finished sweep that says nothing, or one that measures, four states a second."""

    live = True

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def states(self) -> AsyncIterator[object]:
        """Yields the states."""
        if self.kind == "idle":
            yield reduce_all(s.finished())
            await asyncio.Event().wait()
        state = reduce_all(s.mid_sweep())
        names = list(state.presets)[2:]
        cells = [s.key(n, c, k) for n in names for c in s.CONTEXTS for k in s.CONCURRENCIES]
        tick = 0
        while True:
            cell = cells[tick // 8 % len(cells)]
            t = state.t + 0.25
            if tick % 8 == 0:
                state = reduce(state, s.ev.PhaseChanged(t=t, phase="measuring", preset=cell.preset, cell=cell))
                state = reduce(state, s.ev.CellStarted(t=t, cell=cell, run=cell.text))
            if tick % 4 == 0:
                state = reduce(reduce(state, s.gpus(t, load=0.8 + tick % 9 / 50)), s.server(t, waiting=tick % 3))
            if tick % 8 == 7:
                for event in s.measured(cell, t)[2:]:
                    state = reduce(state, event)
            else:
                rate = 1500.0 + tick * 37 % 211
                state = reduce(state, s.progressed(cell, t, tick % 8 / 8, rate))
                state = reduce(state, s.decode_log(t, 1))
            yield state
            tick += 1
            await asyncio.sleep(0.25)

    async def command(self, command: object) -> object:
        """Takes nothing."""
        raise NotImplementedError(command)

    async def close(self) -> None:
        """Has nothing to give back."""


if __name__ == "__main__":
    run_app(Sweep(sys.argv[1]))  # type: ignore[arg-type]
