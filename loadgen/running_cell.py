"""A running cell as the engine sees it: the reports of its workers, merged into one state and one health."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from loadgen.arrival import StopRule
from loadgen.errors import CellError
from loadgen.messages import Beat, CellFailed, CellOver, CellPrepared, RecordMade, Report
from loadgen.records import Generation, RequestRecord
from loadgen.spec import CellProgress, CellSpec, ClosedLoop, WorkerHealth

RATE_SPAN_S = 1.0

OnRecord = Callable[[RequestRecord], None]
OnText = Callable[[Generation], None]
Phase = Literal["calibrating", "warmup", "ramp", "steady", "tail"]


class RunningCell:
    """The cell that is running: what its workers told, merged.

    Args:
        serial: number of this run; reports of other runs are not for it.
        spec: the cell.
        workers: how many processes run it.
        origin_ns: the session's start.
        on_record: takes each record.
        on_text: takes each generation.

    Live rates are given only where the server counts tokens as they come: counts that arrive with a request's end
    would make rates that never were.

    Attributes:
        prepared: done when every worker is ready to start.
        over: done when every worker has ended its part.
        skipped: the cell was abandoned.
        start_ns: start of the measured part, once it is known.
    """

    def __init__(
        self,
        serial: int,
        spec: CellSpec,
        *,
        workers: int,
        origin_ns: int,
        on_record: OnRecord,
        on_text: OnText | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.serial = serial
        self.spec = spec
        self.workers = workers
        self.stop = StopRule(spec.stop)
        self.prepared: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self.skipped = False
        self.start_ns: int | None = None
        self.records: list[RequestRecord] = []
        self._origin_ns = origin_ns
        self._on_record = on_record
        self._on_text = on_text
        self._ready = 0
        self._overs: list[CellOver] = []
        self._ended = 0
        self._uncounted = False
        self._beats: dict[int, Beat] = {}
        self._rates: deque[tuple[float, int]] = deque()

    def take(self, worker: int, report: Report) -> None:
        """Takes a report of a worker."""
        match report:
            case CellPrepared():
                self._ready += 1
                if self._ready == self.workers and not self.prepared.done():
                    self.prepared.set_result(None)
            case RecordMade(record=record):
                self._take_record(record)
                if self._on_text is not None:
                    self._on_text(Generation(record=record, content=report.content, reasoning=report.reasoning))
            case Beat():
                self._beats[worker] = report
                self._uncounted = self._uncounted or report.uncounted > 0
            case CellOver():
                self._overs.append(report)
                self._end_one(None)
            case CellFailed():
                self._end_one(None if self.skipped else CellError(f"cell {self.spec.cell}: {report.error}"))
            case _:
                pass

    def fail(self, error: BaseException) -> None:
        """Ends the cell with an error."""
        for future in (self.prepared, self.over):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits for it gets it; nobody may be waiting

    def enough(self) -> bool:
        """Whether the interval of the headline figure is narrow enough to stop starting requests."""
        if self.spec.stop.interval_share is None or self.start_ns is None:
            return False
        return not self.stop.may_start(len(self.records), self.elapsed_s())

    def elapsed_s(self) -> float:
        """Seconds since the measured part began."""
        return 0.0 if self.start_ns is None else max(0.0, (time.perf_counter_ns() - self.start_ns) / 1e9)

    def health(self) -> WorkerHealth:
        """How the processes fared: the worst of them, and the streams open at once in all of them together."""
        edges = [(t, 1) for over in self._overs for t in over.opened_ns]
        edges += [(t, -1) for over in self._overs for t in over.closed_ns]
        open_now = most = 0
        for _, step in sorted(edges):
            open_now += step
            most = max(most, open_now)
        late = sorted(record.t_send - record.t_due for record in self.records)
        return WorkerHealth(
            loop_lag_p99_s=max((over.loop_lag_p99_s for over in self._overs), default=0.0),
            cpu_share=max((over.cpu_share for over in self._overs), default=0.0),
            streams_open_max=most,
            start_lateness_p99_s=late[min(len(late) - 1, int(0.99 * len(late)))] if late else 0.0,
            workers=self.workers,
        )

    def progress(self) -> CellProgress:
        """The state of the cell now, with rates over about the last second."""
        beats = list(self._beats.values())
        now = (time.perf_counter_ns() - self._origin_ns) / 1e9
        tokens = sum(beat.tokens for beat in beats)
        steps = sum(beat.verify_steps for beat in beats)
        finished = sum(beat.finished for beat in beats)
        self._rates.append((now, tokens))
        while len(self._rates) > 2 and now - self._rates[1][0] >= RATE_SPAN_S:
            self._rates.popleft()
        began, before = self._rates[0]
        span = now - began
        return CellProgress(
            cell=self.spec.cell,
            phase=self._phase(beats),
            t=now,
            started=sum(beat.started for beat in beats),
            finished=finished,
            failed=sum(beat.failed for beat in beats),
            running=sum(beat.running for beat in beats),
            total=self.stop.total,
            share_done=min(1.0, self.stop.share_done(finished, self.elapsed_s())),
            tokens=tokens,
            tok_s=(tokens - before) / span if span > 0 and tokens and not self._uncounted else None,
            acceptance_length=((sum(beat.correct_drafts for beat in beats) + steps) / steps if steps else None),
        )

    def _phase(self, beats: list[Beat]) -> Phase:
        if self.start_ns is None:
            return "warmup"
        if any(beat.idle for beat in beats):
            return "tail"
        if not isinstance(self.spec.arrival, ClosedLoop):
            return "steady" if any(beat.finished for beat in beats) else "ramp"
        wanted = self.spec.concurrency if self.stop.total is None else min(self.spec.concurrency, self.stop.total)
        return "steady" if sum(beat.in_decode for beat in beats) >= wanted else "ramp"

    def _take_record(self, record: RequestRecord) -> None:
        if record.purpose == "cell":
            self.records.append(record)
            self.stop.note(record)
        self._on_record(record)

    def _end_one(self, error: CellError | None) -> None:
        self._ended += 1
        if error is not None:
            self.fail(error)
        if self._ended == self.workers:
            for future in (self.prepared, self.over):
                if not future.done():
                    future.set_result(None)
