"""The one writer of a session's folder: events, requests, samples, verdicts and texts, as append-only JSON lines.

What is promised here and nowhere else: one writer at a time (a lock on the folder), every line is with the operating
system when the call returns, a line is whole or not there, and a full disk loses and doubles nothing. Reading is in
`sessions/logread.py` (events) and `sessions/tables.py` (tables).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from evals.verdicts import Judgement
from loadgen.records import RequestRecord
from sessions.errors import DiskFull, SessionError, SessionLocked
from sessions.events import AnswerJudged, AnyEvent, GpusSampled, ServerSampled
from sessions.folder import EVENTS_FILE
from sessions.linefile import NO_ROOM, LineFile
from telemetry.samples import GpuSample, ServerSample

REQUESTS_FILE = "requests.jsonl"
GPUS_FILE = "gpus.jsonl"
SERVER_FILE = "server.jsonl"
EVALS_FILE = "evals.jsonl"
TEXTS_FILE = "texts/texts.jsonl"
LOCK_FILE = "lock"
SAMPLES_KEPT_WHILE_FULL = 50_000
"""Sample lines kept in memory while the disk is full; older ones are counted as lost. Nothing else is ever dropped."""

_LEFTOVER = re.compile(r"\.(control|\w+\.parquet)\.")


class SavedText(msgspec.Struct, frozen=True, kw_only=True):
    """One answer with what was asked: a line of `texts/texts.jsonl`, in the words that `spectop judge` reads.

    Attributes:
        t: seconds since the session's start.
        recipe: how the prompt was made (kind, seed, length) or the prompt itself where it is short.
    """

    t: float
    rid: str
    purpose: str
    preset: str = ""
    cell: str | None = None
    problem_set: str = ""
    task_id: str = ""
    sample: int = 0
    recipe: str = ""
    content: str = ""
    reasoning_content: str = ""
    finish_reason: str | None = None
    n_out: int | None = None


class SessionLog:
    """Appends to a session's folder; holds its lock until closed. For one thread.

    Args:
        folder: the session's folder.
        origin_ns: `time.perf_counter_ns()` at the session's start; now, unless given. For a session that has lines
            already it is set so that `now()` goes on after the last of them: offsets never run backwards.
        texts: whether texts are kept.
        write: what puts bytes into a file descriptor.

    Attributes:
        origin_ns: the session's start on the machine's monotonic clock.
        resumed: the session had events already.
        repaired: what had to be repaired at the ends of an earlier writer's files, in words.
        samples_lost: sample lines dropped while the disk was full; set to 0 by whoever told the operator.

    Raises:
        SessionLocked: another process writes to the session.
        SessionError: a file cannot be appended to.
    """

    def __init__(
        self,
        folder: Path,
        origin_ns: int | None = None,
        *,
        texts: bool = True,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.folder = folder
        self.samples_lost = 0
        self._texts = texts
        self._encoder = msgspec.json.Encoder()
        self._full = False
        self._lock = _lock(folder)
        self._files: dict[str, LineFile] = {}
        try:
            for leftover in folder.glob(".*"):
                if _LEFTOVER.match(leftover.name):  # a killed engine was about to give it its name
                    leftover.unlink(missing_ok=True)
            if texts:
                (folder / TEXTS_FILE).parent.mkdir(mode=0o700, exist_ok=True)
            names = [EVALS_FILE, REQUESTS_FILE, GPUS_FILE, SERVER_FILE, *([TEXTS_FILE] if texts else []), EVENTS_FILE]
            for name in names:
                self._files[name] = LineFile(folder / name, write)
                (folder / name).with_suffix(".parquet").unlink(missing_ok=True)  # the log outgrows it now
        except OSError as error:
            self.close()
            raise SessionError(f"{folder}: cannot be written: {error.strerror}") from error
        except SessionError:
            self.close()
            raise
        self.repaired = tuple(f.repaired for f in self._files.values() if f.repaired)
        last_t = max(_t_of(f.last_line()) for f in self._files.values())
        self.resumed = bool(self._files[EVENTS_FILE].last_line())
        now_ns = time.perf_counter_ns()
        self.origin_ns = now_ns - int(last_t * 1e9) - 1 if last_t > 0 else origin_ns or now_ns

    def now(self) -> float:
        """Returns seconds since the session's start."""
        return (time.perf_counter_ns() - self.origin_ns) / 1e9

    @property
    def full(self) -> bool:
        """Whether lines wait for room on the disk."""
        return self._full

    def append(self, event: AnyEvent) -> None:
        """Writes an event where it belongs: samples to their own files, the rest to `events.jsonl`, verdicts to both.

        Raises:
            DiskFull: there is no room. Raised once; while `full` everything is kept in memory, in order, silently,
                until `retry` or `tick` gets through.
        """
        if isinstance(event, GpusSampled):
            self._add(GPUS_FILE, event.sample, samples=True)
        elif isinstance(event, ServerSampled):
            self._add(SERVER_FILE, event.sample, samples=True)
        else:
            if isinstance(event, AnswerJudged):
                self._add(EVALS_FILE, replace(event.judgement, t=event.t))
            self._add(EVENTS_FILE, event)

    def request(self, record: RequestRecord) -> None:
        """Writes a request's record; raises as `append`."""
        self._add(REQUESTS_FILE, record)

    def text(self, text: SavedText) -> None:
        """Writes an answer's text, unless texts are switched off; raises as `append`."""
        if self._texts:
            self._add(TEXTS_FILE, text)

    def _add(
        self,
        name: str,
        value: AnyEvent | RequestRecord | GpuSample | ServerSample | Judgement | SavedText,
        *,
        samples: bool = False,
    ) -> None:
        try:
            line = self._encoder.encode(value)
        except UnicodeEncodeError:  # a lone surrogate in text from outside
            line = self._encoder.encode(_without_surrogates(msgspec.to_builtins(value)))
        if self._full:
            self.samples_lost += self._files[name].keep(line, SAMPLES_KEPT_WHILE_FULL if samples else None)
            return
        try:
            self._files[name].add(line)
        except SessionError:
            self._full = True
            raise

    def tick(self) -> None:
        """To be called about every second: tries again when the disk was full; raises as `retry`."""
        if self._full:
            self.retry()

    def retry(self) -> None:
        """Writes what waits for room, in order.

        Raises:
            DiskFull: there is still no room for all of it; nothing is lost.
        """
        for file in self._files.values():
            file.flush()
        self._full = False

    def sync(self) -> None:
        """Puts everything on the disk (at a cell's end).

        Raises:
            DiskFull: the disk turned out to be full only now; raised while `full`, too.
        """
        if self._full:
            self.retry()
        self.fsync()

    def fsync(self) -> None:
        """Has the kernel put on the disk what was written so far; raises as `sync`, and may run in any thread."""
        try:
            for file in self._files.values():
                file.sync()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFull(f"{self.folder}: {error.strerror}") from error
            raise SessionError(f"{self.folder}: {error.strerror}") from error

    def close(self) -> None:
        """Closes the files and gives the lock back."""
        if self._lock < 0:
            return
        with contextlib.suppress(SessionError):
            self.retry()
        for file in self._files.values():
            file.close()
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _lock(folder: Path) -> int:
    """Takes the folder's lock and leaves this process's id in it; returns the descriptor that holds it."""
    path = folder / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SessionError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        _flock_patiently(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise SessionLocked(
            f"{folder}: another engine writes to this session (process {holder}); attach to it with `spectop attach`"
        ) from None
    except OSError as error:
        if error.errno not in NO_ROOM:  # the lock is what counts; its holder's number is a courtesy
            os.close(fd)
            raise SessionError(f"{path}: cannot be locked: {error.strerror}") from error
    return fd


def _flock_patiently(fd: int) -> None:
    """Takes the lock; tries for a moment, because `lock_holder` in another process borrows it to look."""
    for _ in range(10):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_holder(folder: Path) -> int | None:
    """Returns the process that writes to a session just now, or `None` when nobody does (0: its number is unknown)."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else 0
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


class _Timed(msgspec.Struct):
    t: float = 0.0


def _t_of(line: bytes) -> float:
    try:
        return msgspec.json.decode(line, type=_Timed).t
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0.0


def _without_surrogates(tree: object) -> object:
    if isinstance(tree, str):
        return tree.encode("utf-8", "replace").decode()
    if isinstance(tree, dict):
        return {key: _without_surrogates(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_surrogates(value) for value in tree]
    return tree
