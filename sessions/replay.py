"""Replays a session from its log: any moment of it as a state, and a source that plays it to the live screens.

A running session can be looked at in the same way: what its engine adds meanwhile is found by `Replay.extend`.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal, Self

import numpy as np

from sessions.commands import Command, Reply
from sessions.events import AnyEvent, GpusSampled, ServerSampled
from sessions.log import lock_holder
from sessions.reduce import reduce
from sessions.replay_index import EVENT, GPUS, PROGRESS, SERVER, CellBegun, Index
from sessions.state import GPU_HISTORY_KEPT, HISTORY_KEPT, SessionState
from telemetry.samples import GpuSample, ServerSample

SPEEDS = (1.0, 10.0, 100.0)
TICK_S = 0.25
_JUMP = 2_000
"""Lines; a longer way is not gone line by line: what no longer shows at its end is left out."""
_KEPT = {PROGRESS: 2 * HISTORY_KEPT, GPUS: GPU_HISTORY_KEPT, SERVER: 1}


class Replay:
    """Any moment of a session as a state; a cursor that moves both ways.

    Args:
        folder: the session's folder.

    Attributes:
        state: at the cursor.
        t: the cursor, seconds since the session's start.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begin()
        self.extend()

    def _begin(self) -> None:
        self._index = Index(self._folder)
        self._next = 0
        self.state = SessionState()
        self.t = 0.0

    @property
    def cells(self) -> list[CellBegun]:
        """Where cells began, in order."""
        return self._index.cells

    @property
    def length_s(self) -> float:
        """Seconds from the session's start to the last line of its log."""
        return float(self._index.t[-1]) if len(self._index) else 0.0

    @property
    def at_end(self) -> bool:
        """Whether nothing comes after the cursor."""
        return self._next >= len(self._index)

    def extend(self) -> bool:
        """Takes in what was written since; returns whether there was anything. A replaced log is begun anew."""
        if self._index.replaced():
            self.close()
            self._begin()
        return self._index.extend()

    def seek(self, t: float) -> SessionState:
        """Moves to a moment; returns the state that everything up to and at it makes."""
        self.t = min(max(0.0, t), self.length_s)
        target = int(np.searchsorted(self._index.t, self.t, side="right"))
        if target < self._next:
            self._next, self.state = 0, SessionState()
        for i in self._way(target):
            for event in self._events(i):
                self.state = reduce(self.state, event)
        self._next = target
        return self.state

    def _way(self, target: int) -> Iterator[int]:
        """Yields the lines to be taken on the way to a place, in order."""
        if target - self._next <= _JUMP:
            yield from range(self._next, target)
            return
        kinds = self._index.kind[self._next : target]
        parts = [np.flatnonzero(kinds == EVENT)]
        parts += [np.flatnonzero(kinds == kind)[-kept:] for kind, kept in _KEPT.items()]
        yield from (int(i) for i in np.sort(np.concatenate(parts)) + self._next)

    def _events(self, i: int) -> Iterator[AnyEvent]:
        for value in self._index.values(i):
            if isinstance(value, GpuSample):
                yield GpusSampled(t=value.t, sample=value)
            elif isinstance(value, ServerSample):
                yield ServerSampled(t=value.t, sample=value)
            else:
                yield value

    def close(self) -> None:
        """Closes the log."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReplaySource:
    """Plays a session to the screens, as `sessions.commands.Source`.

    Args:
        folder: the session's folder.
        speed: seconds of the session a second.
        start: where to begin: at the session's start, playing, or at its end, paused.

    Attributes:
        paused: the cursor stands.
    """

    live = False

    def __init__(self, folder: Path, *, speed: float = 1.0, start: Literal["start", "end"] = "start") -> None:
        self.folder = folder
        self.speed = speed
        self.paused = start == "end"
        self._replay = Replay(folder)
        self._replay.seek(self._replay.length_s if start == "end" else 0.0)
        self._moved = asyncio.Event()
        self._closed = False

    @property
    def position_s(self) -> float:
        """The cursor, seconds since the session's start."""
        return self._replay.t

    @property
    def length_s(self) -> float:
        """Seconds from the session's start to its last line; grows while its engine runs."""
        return self._replay.length_s

    @property
    def cells(self) -> list[CellBegun]:
        """Where cells began."""
        return self._replay.cells

    @property
    def growing(self) -> bool:
        """Whether an engine still writes to the session."""
        return lock_holder(self.folder) is not None

    def pause(self) -> None:
        """Stops the cursor."""
        self.paused = True
        self._moved.set()

    def play(self, speed: float | None = None) -> None:
        """Lets the cursor go on, at another speed if given."""
        self.speed = speed or self.speed
        self.paused = False
        self._moved.set()

    def seek(self, t: float) -> None:
        """Moves the cursor to a moment, seconds since the session's start."""
        self._replay.seek(t)
        self._moved.set()

    def step_cell(self, count: int) -> CellBegun | None:
        """Moves the cursor to where the `count`th cell from here began (negative: back); returns it, or `None`."""
        starts = [c.t for c in self.cells]
        here = (
            bisect.bisect_right(starts, self.position_s) if count > 0 else bisect.bisect_left(starts, self.position_s)
        )
        index = here + count - (1 if count > 0 else 0)
        if not 0 <= index < len(starts):
            return None
        self.seek(starts[index])
        return self.cells[index]

    async def states(self) -> AsyncIterator[SessionState]:
        """Yields the state whenever the cursor moved, at most four times a second, until `close`.

        At the end the cursor waits: for a seek, or for what a running engine adds.
        """
        loop = asyncio.get_running_loop()
        shown: SessionState | None = None
        since = loop.time()
        while True:
            if self._replay.state is not shown:
                shown = self._replay.state
                yield shown
            self._moved.clear()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
            if self._closed:
                return
            now = loop.time()
            if self._replay.at_end:
                self._replay.extend()
            if not self.paused and not self._replay.at_end:
                self._replay.seek(self._replay.t + (now - since) * self.speed)
            since = now

    async def command(self, command: Command) -> Reply:
        """Refuses: a log cannot be commanded."""
        return Reply(False, f"{command.name}: this is a replay of {self.folder.name}; a running one takes commands")

    async def close(self) -> None:
        """Ends `states` and closes the log."""
        self._closed = True
        self._moved.set()
        self._replay.close()
