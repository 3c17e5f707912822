"""The engine's load processes together: starts them, and spreads cells and single generations over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from loadgen.errors import CellError, WorkerLost
from loadgen.load_process import LoadProcess
from loadgen.messages import (
    CancelOne,
    Configure,
    OneDone,
    PrepareCell,
    Report,
    RunOne,
    Share,
    SkipCell,
    StartCell,
    StopStarting,
)
from loadgen.records import Generation, GenerationRequest
from loadgen.running_cell import OnRecord, OnText, RunningCell
from loadgen.spec import CellProgress, CellSpec, Target, WorkerHealth

PROGRESS_S = 0.25
HEADSTART_S = 0.02

OnProgress = Callable[[CellProgress], None]


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
        self._processes: list[LoadProcess] = []
        self._ones: dict[int, tuple[int, asyncio.Future[Generation]]] = {}
        self._next = 0
        self._serial = 0
        self._cell: RunningCell | None = None

    @property
    def target(self) -> Target:
        """The server under test, as it is talked to now."""
        return self._target

    async def start(self) -> None:
        """Starts the processes, anew when some of them were lost."""
        await self.close()
        self._processes = list(
            await asyncio.gather(*(LoadProcess.spawn(number, self._take) for number in range(self._wanted)))
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
        self,
        spec: CellSpec,
        on_record: OnRecord,
        on_progress: OnProgress,
        on_text: OnText | None = None,
        before_start: Callable[[], Awaitable[None]] | None = None,
    ) -> WorkerHealth:
        """Runs one cell over all processes.

        Args:
            spec: the cell.
            on_record: takes each record as its request ends, warm-up included.
            on_progress: takes the state of the cell about four times a second.
            on_text: takes each generation with its text, where the cell keeps texts.
            before_start: awaited between the warm-up and the measured part.

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
            cell = self._cell = RunningCell(
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
            if before_start is not None and not cell.skipped:
                await before_start()
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

    def _running(self) -> list[LoadProcess]:
        if not self._processes:
            raise WorkerLost("no load process is running")
        for process in self._processes:
            if process.lost is not None:
                raise process.lost
        return self._processes

    async def _tick(self, cell: RunningCell, processes: list[LoadProcess], on_progress: OnProgress) -> None:
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

    def _lose(self, process: LoadProcess, reports: asyncio.Task[None]) -> None:
        """A process ended: whoever waits for it is told, unless it was closed."""
        if reports.cancelled() or (error := reports.exception() or process.lost) is None:
            return
        for number, future in self._ones.values():
            if number == process.number and not future.done():
                future.set_exception(error)
        if self._cell is not None and process.number < self._cell.workers:
            self._cell.fail(error)
