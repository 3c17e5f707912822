"""One thread that reads the GPUs once a second, apart from every loop that measures.

A read that hangs holds up this thread alone: `stop` doesn't wait for it, and the CPU it cost is told apart from the
time it took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from telemetry.samples import GpuSample, GpuSource

DEFAULT_INTERVAL_S = 1.0
STOP_WAIT_S = 0.5


class PollCost(msgspec.Struct, frozen=True, kw_only=True):
    """What polling cost so far.

    Attributes:
        reads: finished reads; `missed`: ticks that passed while a read was still running.
        wall_s, wall_max_s: seconds reads took, waiting included.
        cpu_s: seconds of CPU of the polling thread, the driver's part of it included.
        cpu_share: of one core, since the start.
        hanging_s: seconds that the present read has been running, when that is longer than an interval.
    """

    reads: int = 0
    missed: int = 0
    wall_s: float = 0.0
    wall_max_s: float = 0.0
    cpu_s: float = 0.0
    cpu_share: float = 0.0
    hanging_s: float | None = None


class Poller:
    """Calls `source.read` every `interval_s` seconds on a thread of its own and hands each sample to `deliver`.

    `deliver` runs on that thread: give `loop.call_soon_threadsafe` something to do and return. `clock` tells
    the session's time in seconds. A source never raises; should one do so, that is a sample with a problem.
    """

    def __init__(
        self,
        source: GpuSource,
        deliver: Callable[[GpuSample], None],
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = DEFAULT_INTERVAL_S,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._clock = clock
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-poller", daemon=True)
        self._started_at = 0.0
        self._reading_since: float | None = None
        self._reads = 0
        self._missed = 0
        self._wall_s = 0.0
        self._wall_max_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        """Starts polling; the first read happens at once."""
        self._started_at = time.monotonic()
        self._thread.start()

    def poke(self) -> None:
        """Asks for a read now rather than at the next tick (a cell's edge, a restarted server)."""
        self._now.set()

    def stop(self) -> bool:
        """Ends polling and closes the source; waits half a second at most.

        Returns:
            Whether the thread has ended; a thread that hangs in the driver is left behind (it is a daemon).
        """
        self._stopping.set()
        self._now.set()
        if self._thread.ident is None:
            self._source.close()
            return True
        self._thread.join(STOP_WAIT_S)
        return not self._thread.is_alive()

    def cost(self) -> PollCost:
        """Returns what polling cost so far; may be called from any thread."""
        now = time.monotonic()
        since = self._reading_since
        running_s = 0.0 if since is None else now - since
        alive_s = now - self._started_at if self._started_at else 0.0
        return PollCost(
            reads=self._reads,
            missed=self._missed,
            wall_s=self._wall_s,
            wall_max_s=max(self._wall_max_s, running_s),
            cpu_s=self._cpu_s,
            cpu_share=self._cpu_s / alive_s if alive_s > 0 else 0.0,
            hanging_s=running_s if running_s > self._interval_s else None,
        )

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self._now.clear()
            sample = self._read()
            if self._stopping.is_set():
                break
            try:
                self._deliver(sample)
            except RuntimeError:
                break  # the loop that took samples is closed: nobody is left to read for
            self._cpu_s = time.thread_time()
            if (late_s := time.monotonic() - due) >= 0:
                ticks = int(late_s // self._interval_s) + 1
                self._missed += ticks - 1
                due += ticks * self._interval_s
            if not self._stopping.is_set():
                self._now.wait(max(0.0, due - time.monotonic()))
        self._source.close()

    def _read(self) -> GpuSample:
        started = time.monotonic()
        self._reading_since = started
        t = self._clock()
        try:
            sample = self._source.read(t)
        except Exception as error:  # the rim of a thread: a driver's surprise must not end the telemetry
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            sample = GpuSample(t=t, source=self._source.name, problem=f"GPU reading failed: {what}")
        self._reading_since = None
        took_s = time.monotonic() - started
        self._reads += 1
        self._wall_s += took_s
        self._wall_max_s = max(self._wall_max_s, took_s)
        return msgspec.structs.replace(sample, poll_s=took_s)
