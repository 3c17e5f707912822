"""An append-only file of JSON lines that never keeps a part of a line: what `sessions/log.py` writes through.

A full disk, a killed writer and a short write are met here: what is in the file is whole lines, and lines that found
no room wait in order.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from sessions.errors import DiskFull, SessionError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that mean that the disk is full for this file or this user."""
_TAIL = 1 << 20


class LineFile:
    """An append-only file of JSON lines that never keeps a part of a line.

    Args:
        path: made with mode 0600 when it is not there; a torn last line of an earlier writer is cut off, or ended
            where it is whole (`repaired` says what was done).
        write: what puts bytes into a file descriptor.

    Raises:
        SessionError: the file is compressed or in an encoding that lines cannot be added to.
    """

    def __init__(self, path: Path, write: Callable[[int, bytes], int] = os.write) -> None:
        self.path = path
        self.repaired = ""
        self._write = write
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pending: deque[bytes] = deque()
        self._repair()
        self._size = os.fstat(self._fd).st_size

    @property
    def pending(self) -> int:
        """Lines waiting for room."""
        return len(self._pending)

    def _repair(self) -> None:
        head = os.pread(self._fd, 3, 0)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:2] == b"\x1f\x8b":
            os.close(self._fd)
            raise SessionError(f"{self.path}: is UTF-16 or compressed, so nothing can be added; convert it back first")
        size = os.fstat(self._fd).st_size
        whole = size
        tail = b""
        while whole and not tail.count(b"\n"):
            step = min(whole, _TAIL)
            tail = os.pread(self._fd, step, whole - step) + tail
            whole -= step
        rest = tail.rpartition(b"\n")[2]
        if not rest:
            return
        try:
            msgspec.json.decode(rest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            os.ftruncate(self._fd, size - len(rest))
            self.repaired = f"{self.path.name}: a torn last line of {len(rest)} bytes was cut off"
        else:
            self._write(self._fd, b"\n")
            self.repaired = f"{self.path.name}: the last line was ended"

    def last_line(self) -> bytes:
        """Returns the last whole line, or nothing when there is none; looks at the last megabyte."""
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, min(size, _TAIL), max(0, size - _TAIL))
        return tail.rstrip(b"\r\n \0").rpartition(b"\n")[2]

    def add(self, line: bytes) -> None:
        """Appends one line (without its end).

        Raises:
            DiskFull: no room; the line is kept, and so are those after it until `flush` gets through.
        """
        self._pending.append(line + b"\n")
        self.flush()

    def keep(self, line: bytes, limit: int | None = None) -> int:
        """Appends one line to those waiting, without trying; returns how many old ones were dropped for `limit`."""
        self._pending.append(line + b"\n")
        lost = 0
        while limit is not None and len(self._pending) > limit:
            self._pending.popleft()
            lost += 1
        return lost

    def flush(self) -> None:
        """Writes what waits, in order.

        Raises:
            DiskFull: still no room; whole lines that fitted are in the file, a part of a line is not.
            SessionError: the file cannot be written for another reason; the lines are kept as well.
        """
        if not self._pending:
            return
        data = memoryview(b"".join(self._pending))
        done = 0
        try:
            while done < len(data):
                done += self._write(self._fd, bytes(data[done:]) if done else data.obj)  # type: ignore[arg-type]
        except OSError as error:
            self._keep_whole_lines()
            words = f"{self.path}: {error.strerror}; {len(self._pending)} line(s) wait in memory"
            if error.errno in NO_ROOM:
                raise DiskFull(words) from error
            raise SessionError(words) from error
        self._size += done
        self._pending.clear()

    def _keep_whole_lines(self) -> None:
        """After a failed write: forgets the lines that are in the file as a whole, cuts off a part of one."""
        written = os.fstat(self._fd).st_size - self._size
        while self._pending and written >= len(self._pending[0]):
            line = self._pending.popleft()
            written -= len(line)
            self._size += len(line)
        os.ftruncate(self._fd, self._size)

    def sync(self) -> None:
        """Has the kernel put everything on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Closes the file; lines that wait for room are lost with it."""
        os.close(self._fd)
