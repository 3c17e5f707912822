"""The engine's side of the load processes: starts them, spreads the work over them, merges what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Literal

from loadgen.arrival import StopRule
from loadgen.errors import CellError, WorkerLost
from loadgen.messages import (
    Beat,
    CancelOne,
    CellFailed,
    CellOver,
    CellPrepared,
    Command,
    Configure,
    OneDone,
    PrepareCell,
    RecordMade,
    Report,
    RunOne,
    Share,
    SkipCell,
    StartCell,
    StopStarting,
    frame,
    read_report,
)
from loadgen.records import Generation, GenerationRequest, RequestRecord
from loadgen.spec import CellProgress, CellSpec, Target, WorkerHealth

PROGRESS_S = 0.25
RATE_SPAN_S = 1.0
HEADSTART_S = 0.02
CLOSE_LIMIT_S = 5.0
STDERR_LINES = 40

OnRecord = Callable[[RequestRecord], None]
OnProgress = Callable[[CellProgress], None]
OnText = Callable[[Generation], None]
Phase = Literal["calibrating", "warmup", "ramp", "steady", "tail"]


class _Process:
    """One load process and the pipes to it."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, on_report: Callable[[int, Report], None]
    ) -> None:
        self.number = number
        self.process = process
        self.running = 0
        self.lost: WorkerLost | None = None
        self._on_report = on_report
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        loop = asyncio.get_running_loop()
        self._errors = loop.create_task(self._read_errors())
        self.reports = loop.create_task(self._read_reports())

    @classmethod
    async def spawn(cls, number: int, on_report: Callable[[int, Report], None]) -> _Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "loadgen.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for the engine to handle
        )
        return cls(number, process, on_report)

    def send(self, command: Command) -> None:
        if self.lost is not None:
            raise self.lost
        assert self.process.stdin is not None
        self.process.stdin.write(frame(command))

    async def close(self) -> None:
        """Closes its input, which ends it; kills it when it does not end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        await self.reports
        await self._errors

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self._stderr.append(line.decode("utf-8", "replace").rstrip())

    async def _read_reports(self) -> None:
        assert self.process.stdout is not None
        while (report := await read_report(self.process.stdout)) is not None:
            self._on_report(self.number, report)
        status = await self.process.wait()
        await self._errors
        self.lost = WorkerLost(
            f"load process {self.number} (pid {self.process.pid}) ended with status {status}",
            stderr_tail="\n".join(self._stderr),
        )


class _Cell:
    """The cell that is running: what its workers told, merged."""

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
        self._beats: dict[int, Beat] = {}
        self._rates: deque[tuple[float, int]] = deque()

    def take(self, worker: int, report: Report) -> None:
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
            case CellOver():
                self._overs.append(report)
                self._end_one(None)
            case CellFailed():
                self._end_one(None if self.skipped else CellError(f"cell {self.spec.cell}: {report.error}"))
            case _:
                pass

    def fail(self, error: BaseException) -> None:
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
        return 0.0 if self.start_ns is None else max(0.0, (time.perf_counter_ns() - self.start_ns) / 1e9)

    def health(self) -> WorkerHealth:
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
            tok_s=(tokens - before) / span if span > 0 and tokens else None,
            acceptance_length=((sum(beat.correct_drafts for beat in beats) + steps) / steps if steps else None),
        )

    def _phase(self, beats: list[Beat]) -> Phase:
        if self.start_ns is None:
            return "warmup"
        if any(beat.idle for beat in beats):
            return "tail"
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


class WorkerPool:
    """Load processes for one target.

    Args:
        workers: number of processes.
        origin_ns: the session's start, `time.perf_counter_ns`; every time in a record counts from it.
        target: the server under test.
    """

    def __init__(self, workers: int, origin_ns: int, target: Target) -> None:
        if workers < 1:
            raise ValueError(f"at least one load process is needed, not {workers}")
        self._wanted = workers
        self._origin_ns = origin_ns
        self._target = target
        self._processes: list[_Process] = []
        self._ones: dict[int, tuple[int, asyncio.Future[Generation]]] = {}
        self._next = 0
        self._serial = 0
        self._cell: _Cell | None = None

    @property
    def target(self) -> Target:
        """The server under test, as it is talked to now."""
        return self._target

    async def start(self) -> None:
        """Starts the processes, anew when some of them were lost."""
        await self.close()
        self._processes = list(
            await asyncio.gather(*(_Process.spawn(number, self._take) for number in range(self._wanted)))
        )
        for process in self._processes:
            process.reports.add_done_callback(partial(self._lose, process))
            process.send(Configure(self._target, self._origin_ns, process.number))

    async def close(self) -> None:
        """Ends the processes; their running requests are aborted."""
        processes, self._processes = self._processes, []
        closed = WorkerLost("the load processes were closed")
        for _, future in self._ones.values():
            if not future.done():
                future.set_exception(closed)
        if self._cell is not None:
            self._cell.fail(closed)
        await asyncio.gather(*(process.close() for process in processes))

    async def retarget(self, target: Target) -> None:
        """Takes another target from now on; whoever calls this has nothing running."""
        self._target = target
        for process in self._processes:
            process.send(Configure(target, self._origin_ns, process.number))

    async def generate(self, request: GenerationRequest) -> Generation:
        """Runs one generation in the process that has the fewest of them.

        Raises:
            WorkerLost: the process died.
        """
        process = min(self._running(), key=lambda process: process.running)
        number, self._next = self._next, self._next + 1
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        process.send(RunOne(number, request))
        self._ones[number] = (process.number, future)
        process.running += 1
        try:
            return await future
        except asyncio.CancelledError:
            if process.lost is None:
                process.send(CancelOne(number))
            raise
        finally:
            process.running -= 1
            del self._ones[number]

    async def run_cell(
        self, spec: CellSpec, on_record: OnRecord, on_progress: OnProgress, on_text: OnText | None = None
    ) -> WorkerHealth:
        """Runs one cell over all processes.

        Args:
            spec: the cell.
            on_record: takes each record as its request ends, warm-up included.
            on_progress: takes the state of the cell about four times a second.
            on_text: takes each generation with its text, where the cell keeps texts.

        Returns:
            How the load processes fared; also when the cell was skipped.

        Raises:
            CellError: the cell can't be run as asked.
            WorkerLost: a process died; `start()` again before the next cell.
        """
        if self._cell is not None:
            raise RuntimeError("a cell is running already")
        processes = self._running()[: max(1, spec.concurrency)]
        self._serial += 1
        try:
            cell = self._cell = _Cell(
                self._serial,
                spec,
                workers=len(processes),
                origin_ns=self._origin_ns,
                on_record=on_record,
                on_text=on_text,
            )
        except ValueError as exc:
            raise CellError(f"cell {spec.cell}: {exc}") from exc
        ticks = asyncio.get_running_loop().create_task(self._tick(cell, processes, on_progress))
        try:
            for process in processes:
                process.send(PrepareCell(spec, Share(cell.serial, process.number, len(processes))))
            await cell.prepared
            if not cell.skipped:
                cell.start_ns = time.perf_counter_ns() + int(HEADSTART_S * 1e9)
                for process in processes:
                    process.send(StartCell(cell.start_ns))
            await cell.over
            on_progress(cell.progress())
            return cell.health()
        except BaseException:  # whatever it was, the other processes stop too
            await self.skip()
            raise
        finally:
            ticks.cancel()
            self._cell = None

    async def skip(self) -> None:
        """Abandons the running cell, if there is one: its requests are aborted, and `run_cell` returns."""
        cell = self._cell
        if cell is None:
            return
        cell.skipped = True
        for process in self._processes[: cell.workers]:
            if process.lost is None:
                process.send(SkipCell())

    def _running(self) -> list[_Process]:
        if not self._processes:
            raise WorkerLost("no load process is running")
        for process in self._processes:
            if process.lost is not None:
                raise process.lost
        return self._processes

    async def _tick(self, cell: _Cell, processes: list[_Process], on_progress: OnProgress) -> None:
        told = False
        while True:
            await asyncio.sleep(PROGRESS_S)
            on_progress(cell.progress())
            if not told and cell.enough():
                told = True
                for process in processes:
                    process.send(StopStarting())

    def _take(self, worker: int, report: Report) -> None:
        if isinstance(report, OneDone):
            if report.number in self._ones:
                future = self._ones[report.number][1]
                if not future.done():
                    future.set_result(report.generation)
        elif self._cell is not None and report.serial == self._cell.serial:
            self._cell.take(worker, report)

    def _lose(self, process: _Process, reports: asyncio.Task[None]) -> None:
        """A process ended: whoever waits for it is told, unless it was closed."""
        if reports.cancelled() or (error := reports.exception() or process.lost) is None:
            return
        for number, future in self._ones.values():
            if number == process.number and not future.done():
                future.set_exception(error)
        if self._cell is not None and process.number < self._cell.workers:
            self._cell.fail(error)
