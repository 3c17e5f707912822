"""Replays a session from its log: any moment of it as a state, and a source that plays it to the live screens.

A running session can be looked at in the same way: what its engine adds meanwhile is found by `Replay.extend`.
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import io
import os
import re
from array import array
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self

import msgspec

from sessions.commands import Command, Reply
from sessions.events import AnyEvent, CellKey, CellStarted, GpusSampled, ServerSampled
from sessions.folder import EVENTS_FILE
from sessions.lines import Decoder, Notes, open_lines
from sessions.log import GPUS_FILE, SERVER_FILE, lock_holder
from sessions.reduce import reduce
from sessions.state import GPU_HISTORY_KEPT, HISTORY_KEPT, SessionState
from telemetry.samples import GpuSample, ServerSample

SPEEDS = (1.0, 10.0, 100.0)
TICK_S = 0.25
_JUMP = 2_000
"""Lines; a longer way is not gone line by line: what no longer shows at its end is left out."""

_EVENT, _PROGRESS, _GPUS, _SERVER = range(4)
_KEPT = {_PROGRESS: 2 * HISTORY_KEPT, _GPUS: GPU_HISTORY_KEPT, _SERVER: 1}
_T = re.compile(rb'"t":\s*(-?[0-9][0-9.eE+-]*)')
_PROGRESS_BEGINS = b'{"kind":"CellProgressed"'
_STARTED_BEGINS = b'{"kind":"CellStarted"'
_FILES = ((EVENTS_FILE, _EVENT), (GPUS_FILE, _GPUS), (SERVER_FILE, _SERVER))


class CellBegun(msgspec.Struct, frozen=True):
    """Where in a session a cell's measuring began; an attempt again is another one."""

    t: float
    cell: CellKey


class _File:
    """One file of the log: its lines, as far as they are whole, and how far it was read."""

    def __init__(self, path: Path, kind: int) -> None:
        self.path = path
        self.kind = kind
        self.end = 0
        self.last_t = 0.0
        self.number = 0
        self.lines: BinaryIO | None = None

    def new_lines(self) -> Iterator[tuple[float, int, bytes]]:
        """Yields (seconds, offset, line) of whole lines not seen before."""
        if self.lines is None:
            self.lines = open_lines(self.path, Notes(self.path.name))
        if self.lines is None:
            return
        self.lines.seek(self.end)
        while line := self.lines.readline():
            if not line.endswith(b"\n") and not _whole(line):
                return  # the future: read again when it is whole
            at, self.end = self.end, self.end + len(line)
            if not line.strip():
                continue
            if found := _T.search(line, 0, 400):
                self.last_t = max(self.last_t, float(found[1]))
            yield self.last_t, at, line

    def replaced(self) -> bool:
        """Whether another file stands in its place, or it became shorter than what was read of it."""
        if not isinstance(self.lines, io.BufferedReader):
            return False  # absent, or unpacked into memory
        try:
            there, mine = self.path.stat(), os.fstat(self.lines.fileno())
        except OSError:
            return False  # removed: what was open can still be read
        return (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev) or there.st_size < self.end

    def read(self, at: int) -> bytes:
        """Returns the line at an offset."""
        assert self.lines is not None
        self.lines.seek(at)
        return self.lines.readline()

    def close(self) -> None:
        """Closes the file."""
        if self.lines is not None:
            self.lines.close()


def _whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


class Replay:
    """Any moment of a session as a state; a cursor that moves both ways.

    Args:
        folder: the session's folder.

    Attributes:
        state: at the cursor.
        t: the cursor, seconds since the session's start.
        cells: where cells began, in order.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._decoders = [Decoder.of(AnyEvent), Decoder.of(GpuSample), Decoder.of(ServerSample)]
        self._notes = Notes(EVENTS_FILE)
        self._begin()
        self.extend()

    def _begin(self) -> None:
        self._files = [_File(self._folder / name, kind) for name, kind in _FILES]
        self._t = array("d")
        self._file = array("b")
        self._kind = array("b")
        self._at = array("q")
        self._next = 0
        self.cells: list[CellBegun] = []
        self.state = SessionState()
        self.t = 0.0

    @property
    def length_s(self) -> float:
        """Seconds from the session's start to the last line of its log."""
        return self._t[-1] if self._t else 0.0

    @property
    def at_end(self) -> bool:
        """Whether nothing comes after the cursor."""
        return self._next >= len(self._t)

    def extend(self) -> bool:
        """Takes in what was written since; returns whether there was anything. A replaced log is begun anew."""
        if any(file.replaced() for file in self._files):
            self.close()
            self._begin()
        fresh = []
        for index, file in enumerate(self._files):
            fresh.append([self._entry(index, *found) for found in file.new_lines()])
        before = len(self._t)
        for t, index, kind, at in heapq.merge(*fresh):
            self._t.append(max(t, self.length_s))
            self._file.append(index)
            self._kind.append(kind)
            self._at.append(at)
        return len(self._t) > before

    def _entry(self, index: int, t: float, at: int, line: bytes) -> tuple[float, int, int, int]:
        kind = self._files[index].kind
        if kind == _EVENT and line.startswith(_PROGRESS_BEGINS):
            kind = _PROGRESS
        elif kind == _EVENT and line.startswith(_STARTED_BEGINS):
            for event in self._decoders[0].line(line.strip(), 0, self._notes):
                if isinstance(event, CellStarted):
                    self.cells.append(CellBegun(t, event.cell))
        return t, index, kind, at

    def seek(self, t: float) -> SessionState:
        """Moves to a moment; returns the state that everything up to and at it makes."""
        self.t = min(max(0.0, t), self.length_s)
        target = bisect.bisect_right(self._t, self.t)
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
        newest = {kind: deque[int](maxlen=kept) for kind, kept in _KEPT.items()}
        events: list[int] = []
        for i in range(self._next, target):
            if (kind := self._kind[i]) == _EVENT:
                events.append(i)
            else:
                newest[kind].append(i)
        yield from heapq.merge(events, *newest.values())

    def _events(self, i: int) -> Iterator[AnyEvent]:
        index = self._file[i]
        line = self._files[index].read(self._at[i]).removeprefix(b"\xef\xbb\xbf").strip()
        for value in self._decoders[index].line(line, i, self._notes):
            if isinstance(value, GpuSample):
                yield GpusSampled(t=value.t, sample=value)
            elif isinstance(value, ServerSample):
                yield ServerSampled(t=value.t, sample=value)
            else:
                yield value

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()

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
