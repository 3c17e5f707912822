"""The one door through which events enter: stamped, reduced into the state, written to the log, sent to terminals.

A full disk shows here: lines wait in memory in order, the engine pauses, and goes on when there is room. It counts as
full a little before it is, because the server's log and other small files need room beside these lines.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec.structs import replace

from loadgen.records import RequestRecord
from sessions.errors import SessionError
from sessions.events import UNSTAMPED, AnyEvent, Said
from sessions.folder import utc_now
from sessions.log import SavedText, SessionLog
from sessions.reduce import reduce
from sessions.state import SessionState

ROOM_LEAST = 1 << 20
"""Bytes; with less free the disk counts as full."""


class Recorder:
    """Takes everything that happens in a session.

    Args:
        log: the session's log, already locked by this process.
        state: the state so far (a resumed session has one).
    """

    def __init__(self, log: SessionLog, state: SessionState | None = None) -> None:
        self.log = log
        self.state = state or SessionState()
        self._told = False
        self._syncing: set[asyncio.Future[None]] = set()
        self._publish: list[Callable[[AnyEvent], None]] = []

    def now(self) -> float:
        """Returns seconds since the session's start, on the monotonic clock."""
        return self.log.now()

    @property
    def disk_full(self) -> bool:
        """Whether lines wait for room on the disk, or would have to soon."""
        return self.log.full or self._room() < ROOM_LEAST

    def subscribe(self, publish: Callable[[AnyEvent], None]) -> None:
        """Adds somebody who is told of every event; must not block."""
        self._publish.append(publish)

    def happen(self, event: AnyEvent) -> None:
        """Takes an event; its time is stamped here unless it carries one."""
        stamped = replace(event, t=round(self.now(), 6) if event.t == UNSTAMPED else event.t, at=utc_now())
        self.state = reduce(self.state, stamped)
        self._write(lambda: self.log.append(stamped))
        for publish in self._publish:
            publish(stamped)

    def request(self, record: RequestRecord) -> None:
        """Writes a request's record."""
        self._write(lambda: self.log.request(record))

    def text(self, text: SavedText) -> None:
        """Writes an answer's text, where the sweep keeps texts."""
        self._write(lambda: self.log.text(text))

    def tick(self) -> None:
        """Called about once a second: writes again what a full disk refused, and looks how much room there is."""
        self._write(self.log.tick)
        if self.log.full:
            return
        room = self._room()
        if room < ROOM_LEAST:
            self._tell(f"{self.log.folder}: {room >> 10} KiB left on the disk")
        elif self._told:
            self._told = False
            lost, self.log.samples_lost = self.log.samples_lost, 0
            left_out = f", {lost} telemetry samples were left out" if lost else ""
            self.happen(Said(level="good", words=f"there is room on the disk again; no result was lost{left_out}"))

    def sync(self) -> None:
        """Makes what was written so far survive a power cut; called at the end of every cell.

        Returns at once: a slow disk holds up a thread, and not what else the engine has to do.
        """
        if not self.log.full:
            syncing = asyncio.get_running_loop().run_in_executor(None, self.log.fsync)
            self._syncing.add(syncing)
            syncing.add_done_callback(self._synced)

    async def settle(self) -> None:
        """Waits until everything that was to be put on the disk is there; to be called before the log is closed."""
        await asyncio.gather(*self._syncing, return_exceptions=True)

    def _synced(self, syncing: asyncio.Future[None]) -> None:
        self._syncing.discard(syncing)
        if (error := syncing.exception()) is not None:
            self._tell(str(error))

    def _write(self, action: Callable[[], None]) -> None:
        try:
            action()
        except SessionError as error:  # no room, or a disk that fails: the lines wait, and are tried again
            self._tell(str(error))

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            self.happen(Said(level="error", words=f"{what}; the sweep pauses until there is room"))

    def _room(self) -> int:
        """Bytes that this user may still write; a file system that does not tell counts as empty."""
        try:
            disk = os.statvfs(self.log.folder)
        except OSError:
            return ROOM_LEAST
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else ROOM_LEAST
