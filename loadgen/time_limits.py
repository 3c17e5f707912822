"""The time limits of one request, watched by a single lazy timer: a chunk costs nothing.

Nothing is limited unless asked. The limit between chunks begins with the first token, so that a long prefill never
meets it; bytes of any kind, comments included, count as life.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from loadgen.failures import Failure
from loadgen.reading import StreamReading
from loadgen.records import GenerationRequest, Outcome


class TimeLimits:
    """Watches one request's limits.

    Args:
        request: its limits; those that are `None` are not watched.
        reading: the answer so far.
        scope: is made to expire when a limit is reached.

    Attributes:
        failure: the limit that was reached, in words.
    """

    def __init__(self, request: GenerationRequest, reading: StreamReading, scope: asyncio.Timeout) -> None:
        self._request = request
        self._reading = reading
        self._start = time.perf_counter_ns() / 1e9
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self.failure: Failure | None = None
        self._watch()

    def close(self) -> None:
        """Stops watching."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _watch(self) -> None:
        now = time.perf_counter_ns() / 1e9
        earliest: float | None = None
        for due, error in self._due():
            if due <= now:
                self.failure = Failure(Outcome.TIMEOUT, error)
                # The scope may have ended at this very moment, cancelled from outside.
                with contextlib.suppress(RuntimeError):
                    self._scope.reschedule(self._loop.time())
                return
            earliest = due if earliest is None else min(earliest, due)
        if earliest is not None:
            self._handle = self._loop.call_later(earliest - now + 0.001, self._watch)

    def _due(self) -> list[tuple[float, str]]:
        """Returns the limits that apply now, with the words for having reached each."""
        request, reading = self._request, self._reading
        due: list[tuple[float, str]] = []
        if request.request_timeout_s is not None:
            limit = request.request_timeout_s
            due.append((self._start + limit, f"the whole request took longer than {limit:g} s"))
        if reading.first_token_ns is None:
            if request.first_token_timeout_s is not None:
                limit = request.first_token_timeout_s
                due.append((self._start + limit, f"no token within {limit:g} s"))
            if request.stall_timeout_s is not None:
                # The stall limit starts with the first token; until then there is only something to look at again.
                due.append((time.perf_counter_ns() / 1e9 + request.stall_timeout_s, ""))
        elif request.stall_timeout_s is not None and reading.last_read_ns is not None:
            limit = request.stall_timeout_s
            due.append((reading.last_read_ns / 1e9 + limit, f"nothing came for {limit:g} s in mid-stream"))
        return due
