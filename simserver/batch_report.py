"""What the scheduler reports of its batches: the log lines, and the gauges that move with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from simserver.counters import Counters, Window
from simserver.log import ServerLog
from simserver.settings import Settings


@dataclass(frozen=True)
class LoadView:
    """How loaded the scheduler is at one moment.

    Attributes:
        waiting_uncached: prompt tokens in the queue that nothing was computed for yet.
        used: KV cache tokens that running requests hold, of `capacity`.
        captured: a decode graph was captured for a batch of this size.
    """

    running: int
    waiting: int
    waiting_uncached: int
    used: int
    capacity: int
    captured: bool

    @property
    def usage(self) -> float:
        """Share of the KV cache in use."""
        return self.used / self.capacity if self.capacity else 0.0


class BatchReport:
    """Writes `Prefill batch` and `Decode batch` lines and sets the gauges that go with them."""

    def __init__(self, settings: Settings, log: ServerLog, counters: Counters) -> None:
        self._settings = settings
        self._log = log
        self._counters = counters
        self._last_prefill = counters.window.since = time.perf_counter()

    def _show(self, view: LoadView) -> None:
        self._counters.shown_running = view.running
        self._counters.shown_waiting = view.waiting
        self._counters.shown_used = view.used

    def prefill(self, view: LoadView, started: int, new: int, hits: int, due: float) -> None:
        """Reports a prefill pass.

        Args:
            view: the load at its end, its own requests not yet counted as running.
            started: requests whose prefill began with this pass.
            new: prompt tokens computed.
            hits: prompt tokens found in the cache.
            due: when it ended, `time.perf_counter()` seconds.
        """
        elapsed = max(1e-6, due - self._last_prefill)
        self._last_prefill = due
        self._show(view)
        self._log.line(
            f"Prefill batch, #new-seq: {started}, #new-token: {new}, #cached-token: {hits}, "
            f"token usage: {view.usage:.2f}, #running-req: {view.running}, #queue-req: {view.waiting}, "
            f"#pending-token: {view.waiting_uncached}, cuda graph: False, "
            f"input throughput (token/s): {new / elapsed:.2f}",
            scheduler=True,
        )

    def decode(self, view: LoadView, due: float) -> None:
        """Reports the decode steps since the last report, which ended at `due`."""
        counters = self._counters
        window = counters.window
        throughput = window.tokens / max(1e-6, due - window.since)
        acceptance = ""
        if self._settings.speculative:
            counters.accept_length = (window.correct + window.rows) / window.rows
            proposed = window.rows * max(1, self._settings.draft_tokens - 1)
            counters.accept_rate = window.correct / proposed
            counters.lifetime_correct += window.correct
            counters.lifetime_rows += window.rows
            acceptance = f"accept len: {counters.accept_length:.2f}, accept rate: {counters.accept_rate:.2f}, "
        counters.last_throughput = counters.gen_throughput = throughput
        counters.window = Window(since=due)
        self._show(view)
        self._log.line(
            f"Decode batch, #running-req: {view.running}, #token: {view.used}, token usage: {view.usage:.2f}, "
            f"{acceptance}cuda graph: {view.captured}, gen throughput (token/s): {throughput:.2f}, "
            f"#queue-req: {view.waiting}",
            scheduler=True,
        )
