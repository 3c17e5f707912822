"""Reads a session's events as far as they are sound, says what was skipped, and rebuilds the state from them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sessions.errors import NewerSchema, SessionError
from sessions.events import AnyEvent, GpusSampled, ServerSampled
from sessions.folder import EVENTS_FILE, read_info
from sessions.lines import Decoder, Notes, holds_another, iter_decoded, numbered_lines
from sessions.log import GPUS_FILE, SERVER_FILE, lock_holder
from sessions.reduce import reduce, reduce_all
from sessions.state import GPU_HISTORY_KEPT, HISTORY_KEPT, SessionState
from telemetry.samples import GpuSample, ServerSample

_PROGRESS = b'{"kind":"CellProgressed"'
_TAIL = 1 << 22
"""Bytes at the end of a file of samples that hold the newest of them."""


class EventsRead(msgspec.Struct, frozen=True):
    """What was read.

    Attributes:
        events: in the order of the file, which is the order in which they happened.
        skipped: what was left out or repaired, in words, one entry a kind of fault.
        lines_skipped: how many lines gave nothing at all; a torn last line is counted in `torn`.
        torn: the last line is incomplete: the writer was killed, or is writing just now (`live`).
        live: an engine holds the session's lock.
    """

    events: list[AnyEvent]
    skipped: list[str]
    lines_skipped: int = 0
    torn: bool = False
    live: bool = False


_EVENT = Decoder.of(AnyEvent)
_GPUS = Decoder.of(GpuSample)
_SERVER = Decoder.of(ServerSample)


def read_events(folder: Path) -> EventsRead:
    """Reads all events of a session, those kept in `events.jsonl`.

    Args:
        folder: the session's folder.

    Raises:
        NewerSchema: a newer version wrote the session.
        SessionError: the file is there and cannot be read.
    """
    return _read(folder, iter_decoded(folder / EVENTS_FILE, _EVENT, notes := Notes(EVENTS_FILE)), notes)


def _read(folder: Path, events: Iterator[AnyEvent], notes: Notes) -> EventsRead:
    check_readable(folder)
    live = lock_holder(folder) is not None
    read = list(events)
    skipped = notes.words()
    if not read and not notes.torn:
        skipped.append(f"{EVENTS_FILE}: empty session, nothing happened in it")
    if notes.torn and not live:
        skipped.append(f"{EVENTS_FILE}: the session ended abruptly, 1 incomplete line ignored")
    return EventsRead(read, skipped, notes.lines_skipped, notes.torn, live)


def check_readable(folder: Path) -> None:
    """Refuses a session of a newer schema; a damaged or missing `session.json` keeps nobody from the log.

    Raises:
        NewerSchema: a newer version wrote the session.
    """
    try:
        read_info(folder)
    except NewerSchema:
        raise
    except SessionError:
        return


def read_for_state(folder: Path) -> EventsRead:
    """Reads the events that make the state at the end: all but the live progress that no longer shows in it.

    Raises:
        NewerSchema: a newer version wrote the session.
        SessionError: the file is there and cannot be read.
    """
    notes = Notes(EVENTS_FILE)
    return _read(folder, _without_old_progress(folder, notes), notes)


def _without_old_progress(folder: Path, notes: Notes) -> Iterator[AnyEvent]:
    """Yields the events, of live progress only the newest line and the newest that make a point of the history."""
    kept: list[tuple[int, bytes]] = []
    newest: tuple[int, bytes] | None = None
    points: deque[tuple[int, bytes]] = deque(maxlen=HISTORY_KEPT)
    for numbered in numbered_lines(folder / EVENTS_FILE, notes):
        line = numbered[1]
        if not line.startswith(_PROGRESS) or holds_another(line):
            kept.append(numbered)
            continue
        newest = numbered
        if b'"tok_s":null' not in line:
            points.append(numbered)
    progress = [*points, newest] if newest is not None and (not points or points[-1] != newest) else points
    for number, line in heapq.merge(kept, progress):
        yield from _EVENT.line(line, number, notes)


def newest_samples(folder: Path, name: str, decoder: Decoder, count: int) -> list[Any]:
    """Returns the last `count` values of a file of samples, oldest first, reading its end only where that is enough."""
    path = folder / name
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    notes = Notes(name)
    if size > _TAIL:
        with path.open("rb") as file:
            file.seek(size - _TAIL)
            lines = file.read().split(b"\n")[1:]
        found = [v for line in lines[-count - 1 :] if line.strip() for v in decoder.line(line.strip(), 0, notes)]
        if len(found) >= count:
            return found[-count:]
    return list(deque(iter_decoded(path, decoder, notes), maxlen=count))


def state_from(folder: Path, read: EventsRead, *, samples: bool = True) -> SessionState:
    """Returns the state that events and (unless told otherwise) the newest samples of a session make."""
    state = reduce_all(read.events)
    if not samples:
        return state
    for gpus in newest_samples(folder, GPUS_FILE, _GPUS, GPU_HISTORY_KEPT):
        state = reduce(state, GpusSampled(t=gpus.t, sample=gpus))
    for server in newest_samples(folder, SERVER_FILE, _SERVER, 1):
        state = reduce(state, ServerSampled(t=server.t, sample=server))
    return state


def state_of(folder: Path) -> SessionState:
    """Rebuilds a session's state from its log.

    Raises:
        NewerSchema: a newer version wrote the session.
        SessionError: the log is there and cannot be read.
    """
    return state_from(folder, read_for_state(folder))
