"""Where every line of a session's log is, by time: what lets a replay go to any moment without reading the rest."""

from __future__ import annotations

import io
import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from sessions.events import AnyEvent, CellKey, CellStarted
from sessions.folder import EVENTS_FILE
from sessions.lines import Decoder, Notes, holds_another, open_lines
from sessions.log import GPUS_FILE, SERVER_FILE
from telemetry.samples import GpuSample, ServerSample

EVENT, PROGRESS, GPUS, SERVER = range(4)
"""What a line is: progress of a running cell apart, because only the newest of it shows."""

_T = re.compile(rb'"t":\s*(-?[0-9][0-9.eE+-]*)')
_T_WITHIN = 400
_PROGRESS_BEGINS = b'{"kind":"CellProgressed"'
_STARTED_BEGINS = b'{"kind":"CellStarted"'


class CellBegun(msgspec.Struct, frozen=True):
    """Where in a session a cell's measuring began; an attempt again is another one."""

    t: float
    cell: CellKey


class _File:
    """One file of the log: its lines, as far as they are whole, and how far it was read."""

    def __init__(self, path: Path, kind: int, decoder: Decoder) -> None:
        self.path = path
        self.kind = kind
        self.decoder = decoder
        self.notes = Notes(path.name)
        self._end = 0
        self._last_t = 0.0
        self._lines: BinaryIO | None = None

    def new_lines(self, cells: list[CellBegun]) -> tuple[array[float], array[int], array[int]]:
        """Returns seconds, kinds and offsets of whole lines not seen before; cells that begin are added to `cells`."""
        times, kinds, offsets = array("d"), array("b"), array("q")
        if self._lines is None:
            self._lines = open_lines(self.path, self.notes)
        if self._lines is None:
            return times, kinds, offsets
        self._lines.seek(self._end)
        at, last = self._end, self._last_t
        search, events = _T.search, self.kind == EVENT
        for line in self._lines:
            if line[-1] != 10 and not _whole(line):
                break  # the future: read again when it is whole
            kind = self.kind
            if found := search(line, 0, _T_WITHIN):
                last = max(last, float(found[1]))
            elif not line.strip():
                at += len(line)
                continue
            if events and line.startswith(_PROGRESS_BEGINS) and not holds_another(line):
                kind = PROGRESS
            elif events and line.startswith(_STARTED_BEGINS):
                decoded = self.decoder.line(line.strip(), 0, self.notes)
                cells.extend(CellBegun(last, e.cell) for e in decoded if isinstance(e, CellStarted))
            times.append(last)
            kinds.append(kind)
            offsets.append(at)
            at += len(line)
        self._end, self._last_t = at, last
        return times, kinds, offsets

    def replaced(self) -> bool:
        """Whether another file stands in its place, or it became shorter than what was read of it."""
        if not isinstance(self._lines, io.BufferedReader):
            return False  # absent, or unpacked into memory
        try:
            there, mine = self.path.stat(), os.fstat(self._lines.fileno())
        except OSError:
            return False  # removed: what was open can still be read
        return (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev) or there.st_size < self._end

    def values(self, at: int, number: int) -> Iterator[Any]:
        """Yields what the line at an offset holds."""
        assert self._lines is not None
        self._lines.seek(at)
        line = self._lines.readline().removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\0")
        yield from self.decoder.line(line, number, self.notes)

    def close(self) -> None:
        """Closes the file."""
        if self._lines is not None:
            self._lines.close()


def _whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


class Index:
    """All lines of a session's log in the order in which they happened.

    Args:
        folder: the session's folder.

    Attributes:
        t: seconds of each line; `kind`: what each is (`EVENT`, `PROGRESS`, ...).
        cells: where cells began, in order.
    """

    def __init__(self, folder: Path) -> None:
        files = (
            (EVENTS_FILE, EVENT, AnyEvent),
            (GPUS_FILE, GPUS, GpuSample),
            (SERVER_FILE, SERVER, ServerSample),
        )
        self._files = [_File(folder / name, kind, Decoder.of(of)) for name, kind, of in files]
        self.t: NDArray[np.float64] = np.empty(0)
        self.kind: NDArray[np.int8] = np.empty(0, np.int8)
        self._file: NDArray[np.int8] = np.empty(0, np.int8)
        self._at: NDArray[np.int64] = np.empty(0, np.int64)
        self.cells: list[CellBegun] = []

    def __len__(self) -> int:
        return len(self.t)

    def replaced(self) -> bool:
        """Whether the log is another one now, so that a new index is needed."""
        return any(file.replaced() for file in self._files)

    def extend(self) -> bool:
        """Takes in what was written since; returns whether there was anything."""
        fresh = [file.new_lines(self.cells) for file in self._files]
        count = sum(len(times) for times, _, _ in fresh)
        if not count:
            return False
        t = np.concatenate([np.asarray(times, np.float64) for times, _, _ in fresh])
        if len(self.t):
            t = np.maximum(t, self.t[-1])  # what is found later is later
        order = np.argsort(t, kind="stable")
        sizes = [len(times) for times, _, _ in fresh]
        self.t = np.concatenate([self.t, t[order]])
        self.kind = np.concatenate([self.kind, _joined([k for _, k, _ in fresh], np.int8)[order]])
        self._at = np.concatenate([self._at, _joined([at for _, _, at in fresh], np.int64)[order]])
        self._file = np.concatenate([self._file, np.repeat(np.arange(len(fresh), dtype=np.int8), sizes)[order]])
        return True

    def values(self, i: int) -> Iterator[Any]:
        """Yields what line `i` holds: an event, a sample, several of a fused line, nothing of a damaged one."""
        yield from self._files[self._file[i]].values(int(self._at[i]), i)

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()


def _joined(parts: list[array[int]], kind: Any) -> Any:
    return np.concatenate([np.asarray(part, kind) for part in parts])
