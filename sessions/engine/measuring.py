"""One cell from its first warm-up to its figures: the only place where a cell is measured.

Everything outside the requests themselves is kept short: workers and connections stay, readings are taken at the
edges, and the figures come from the same pure functions that every view uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import Literal

import msgspec

from loadgen.errors import CellError, TargetError, WorkerLost
from loadgen.figures import CellFigures, GoodputLimits
from loadgen.lag import LagWatcher
from loadgen.marks import graph_missed
from loadgen.measure import measure_cell
from loadgen.phases import steady_window
from loadgen.pool import WorkerPool
from loadgen.records import RequestRecord
from loadgen.spec import Calibration, CellProgress, CellSpec, ClosedLoop, Stop, Target, WorkerHealth
from loadgen.workload_calibration import calibrate_target
from reconfig.presets import Preset
from sessions.engine.guarding import Guard
from sessions.engine.target import flush_cache
from sessions.engine.watching import Watch
from sessions.events import CellEnded, CellKey, CellProgressed, CellReset, CellStarted, PhaseChanged, PresetLost
from sessions.recorder import Recorder
from sessions.sweep import Seconds, Sweep

WARMUP_MOST = 8
FAILURES_SHOWN = 8
CALIBRATION_LIMIT_S = 120.0


class _Attempt(msgspec.Struct, kw_only=True):
    """One attempt at one cell, while it runs.

    Attributes:
        dropped: why the operator's wish ended it; `lost`: how its server is not the proven one.
        began: `time.perf_counter()` of its begin; `opened_t`, `started_t`, `ended_t`: session seconds of its begin, of
            its measured part's begin, and of its end.
    """

    cell: CellKey
    preset: Preset
    run: str
    spec: CellSpec
    began: float
    opened_t: float
    started_t: float | None = None
    ended_t: float = 0.0
    records: list[RequestRecord] = []
    dropped: str | None = None
    lost: str | None = None

    @property
    def over(self) -> bool:
        """Whether something ended it before its time."""
        return self.dropped is not None or self.lost is not None


class Measuring:
    """Measures cells, one at a time.

    Args:
        sweep: what is asked.
        recorder: where everything goes.
        pool: the worker processes; this process reads no stream.
        watch: GPU and server readings.
        guard: tells whether it is still the proven server.

    Attributes:
        target: the server as it was found after the last preset was put in effect.
    """

    def __init__(
        self, sweep: Sweep, recorder: Recorder, pool: WorkerPool, watch: Watch, target: Target, guard: Guard
    ) -> None:
        self.target = target
        self._sweep = sweep
        self._recorder = recorder
        self._pool = pool
        self._watch = watch
        self._guard = guard
        self._attempt: _Attempt | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._skipping: asyncio.Future[None] | None = None
        self._again: set[str] = set()
        self._calibration: Calibration | None = None
        self._lag = LagWatcher()

    async def drop(self, why: str) -> None:
        """Abandons the running cell; `measure` returns soon, with the cell skipped."""
        if self._attempt is not None:
            self._attempt.dropped = self._attempt.dropped or why
            await self._stop()

    def _lose(self, why: str) -> None:
        if self._attempt is not None:
            self._attempt.lost = self._attempt.lost or why
            self._skipping = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
        await self._pool.skip()

    async def measure(self, cell: CellKey, preset: Preset) -> bool:
        """Measures a cell.

        Args:
            cell: which.
            preset: what is in effect.

        Returns:
            Whether the cell has figures.
        """
        before = self._recorder.state.cells.get(cell.text)
        number = (before.attempt if before else 0) + 1
        run = cell.text if number == 1 else f"{cell.text}#{number}"
        attempt = _Attempt(
            cell=cell,
            preset=preset,
            run=run,
            spec=self.spec(cell, run, number),
            began=time.perf_counter(),
            opened_t=self._recorder.now(),
        )
        self._recorder.happen(PhaseChanged(phase="warming", preset=cell.preset, cell=cell))
        self._recorder.happen(CellStarted(cell=cell, run=run, attempt=number))
        if why := self._too_long(cell):
            self._end(attempt, "skipped", why)
            return False
        self._attempt = attempt
        self._guard.alarm = self._lose
        self._lag.start()
        try:
            await self._prepare(attempt)
            health = None if attempt.over else await self._run(attempt)
            if health is None:
                return self._abandon(attempt)
            return await self._judge(attempt, health)
        except CellError as error:
            self._end(attempt, "failed", str(error))
            return False
        except WorkerLost as error:
            self._end(attempt, "failed", f"a load process died: {error}")
            await self._pool.start()
            return False
        finally:
            self._lag.stop()
            self._guard.alarm = None
            self._attempt = None

    def _too_long(self, cell: CellKey) -> str:
        most, asked = self.target.max_model_len, self._sweep.matrix.max_tokens
        if most is None or cell.context + asked <= most:
            return ""
        return f"{cell.context} prompt and {asked} output tokens are more than the server's {most} a request"

    async def _prepare(self, attempt: _Attempt) -> None:
        """Does what precedes a cell: calibration, the flush, a look at the server. A dropped cell ends it at once."""
        self._preparing = asyncio.ensure_future(self._make_ready(attempt))
        try:
            await self._preparing
        except asyncio.CancelledError:
            if not attempt.over:
                self._preparing.cancel()
                raise
        finally:
            self._preparing = None

    async def _make_ready(self, attempt: _Attempt) -> None:
        with contextlib.suppress(TargetError, TimeoutError):  # the cell itself will tell what is wrong
            async with asyncio.timeout(CALIBRATION_LIMIT_S):
                self._calibration = await calibrate_target(attempt.spec, self.target, self._pool, self._calibration)
        attempt.spec = msgspec.structs.replace(attempt.spec, calibration=self._calibration)
        flushing = flush_cache(self.target) if self._sweep.load.flush_cache else asyncio.sleep(0, False)
        changed, _ = await asyncio.gather(self._guard.changed(), flushing)
        attempt.lost = attempt.lost or changed

    async def _run(self, attempt: _Attempt) -> WorkerHealth | None:
        """Runs the requests, a reading of everything before and after the measured ones; `None` when it was ended."""

        async def before_start() -> None:
            await self._watch.edge()
            attempt.started_t = self._recorder.now()

        health = await self._pool.run_cell(
            attempt.spec,
            on_record=lambda record: self._record(record, attempt.records),
            on_progress=lambda progress: self._progress(attempt.cell, progress),
            before_start=before_start,
        )
        attempt.ended_t = self._recorder.now()
        changed, _ = await asyncio.gather(self._guard.changed(), self._watch.edge())
        attempt.lost = attempt.lost or changed
        return None if attempt.over else health

    def spec(self, cell: CellKey, run: str, attempt: int) -> CellSpec:
        """Returns what the load generator is asked for a cell."""
        matrix, load = self._sweep.matrix, self._sweep.load
        requests = None if matrix.duration is not None else requests_of(self._sweep, cell.concurrency)
        warmup = min(cell.concurrency, WARMUP_MOST) if matrix.warmup is None else matrix.warmup
        return CellSpec(
            cell=run,
            context=cell.context,
            concurrency=cell.concurrency,
            max_tokens=matrix.max_tokens,
            temperature=cell.temperature,
            arrival=load.arrival,
            stop=Stop(
                requests=requests,
                duration_s=_plain(matrix.duration),
                interval_share=matrix.interval,
                min_requests=cell.concurrency if isinstance(load.arrival, ClosedLoop) and requests is None else 1,
            ),
            workload=load.workload,
            warmup_requests=warmup,
            ignore_eos=load.ignore_eos,
            route=load.route,
            seed=load.seed + cell.repetition,
            salt=f"{self._recorder.state.session}#{attempt}",
            start_rate_limit=load.start_rate_limit,
            request_timeout_s=_plain(load.request_timeout),
            stall_timeout_s=_plain(load.stall_timeout),
            first_token_timeout_s=_plain(load.first_token_timeout),
        )

    def _record(self, record: RequestRecord, records: list[RequestRecord]) -> None:
        records.append(record)
        self._recorder.request(record)

    def _progress(self, cell: CellKey, progress: CellProgress) -> None:
        if progress.phase not in ("calibrating", "warmup") and self._recorder.state.phase == "warming":
            self._recorder.happen(PhaseChanged(phase="measuring", preset=cell.preset, cell=cell))
        self._recorder.happen(CellProgressed(cell=cell, progress=progress))

    async def _judge(self, attempt: _Attempt, health: WorkerHealth) -> bool:
        records = attempt.records
        measured = [r for r in records if r.purpose == "cell"]
        failed = sum(1 for r in measured if not r.valid)
        if not measured or failed == len(measured):
            self._end(attempt, "failed", "no request came back" if not measured else f"all {failed} requests failed")
            return False
        if failed / len(measured) > self._sweep.limits.error_share and attempt.cell.text not in self._again:
            self._end(attempt, "failed", f"{failed} of {len(measured)} requests failed")
            self._once_more(attempt.cell, "too many failures; measured once more")
            return False
        figures = await asyncio.to_thread(self._figures, attempt, measured, health)
        if attempt.over:
            return self._abandon(attempt)
        requests_s = max(r.t for r in records) - min(r.t_send for r in records)
        self._end(attempt, "measured", "", figures, requests_s)
        return True

    def _figures(self, attempt: _Attempt, measured: list[RequestRecord], health: WorkerHealth) -> CellFigures:
        """Computes the figures; in a thread, since that takes long enough to be felt by those who watch."""
        preset = attempt.preset
        whole = (attempt.opened_t, attempt.ended_t)
        counted = (attempt.opened_t if attempt.started_t is None else attempt.started_t, attempt.ended_t)
        window = steady_window(measured, attempt.spec) or counted
        figures = measure_cell(
            attempt.records,
            attempt.spec,
            health=health,
            server=self._watch.server_window(*window, *counted),
            gpus=self._watch.gpu_window(*window, *whole),
            speculative=preset.speculative,
            chain=preset.speculative and preset.budget is None,
            goodput_limits=self._goodput(),
        )
        client = msgspec.structs.replace(figures.client, engine_lag_p99_s=self._lag.lag_s(0.99))
        marks = figures.marks
        if (batch := self._watch.graph_missed(*counted)) is not None:
            marks = (*marks, graph_missed(batch))
        return msgspec.structs.replace(figures, client=client, marks=marks)

    def _abandon(self, attempt: _Attempt) -> Literal[False]:
        """Ends a cell before its time: it gets no figures. One whose server went away is measured once more."""
        if attempt.lost is None:
            self._end(attempt, "skipped", attempt.dropped or "")
            return False
        self._end(attempt, "failed", attempt.lost)
        self._recorder.happen(PresetLost(preset=attempt.cell.preset, reason=attempt.lost))
        self._once_more(attempt.cell, "its server went away; measured once more")
        return False

    def _once_more(self, cell: CellKey, reason: str) -> None:
        if cell.text not in self._again:
            self._again.add(cell.text)
            self._recorder.happen(CellReset(cell=cell, reason=reason))

    def _goodput(self) -> GoodputLimits | None:
        limits = self._sweep.limits
        if limits.goodput_ttft is None and limits.goodput_tpot is None and limits.goodput_e2e is None:
            return None
        return GoodputLimits(ttft_s=limits.goodput_ttft, tpot_s=limits.goodput_tpot, e2e_s=limits.goodput_e2e)

    def _end(
        self,
        attempt: _Attempt,
        outcome: Literal["measured", "failed", "skipped"],
        reason: str,
        figures: CellFigures | None = None,
        requests_s: float | None = None,
    ) -> None:
        took = time.perf_counter() - attempt.began
        self._recorder.happen(
            CellEnded(
                cell=attempt.cell,
                run=attempt.run,
                outcome=outcome,
                figures=figures,
                reason=reason,
                failures=failures_of(attempt.records),
                took_s=round(took, 3),
                overhead_s=None if requests_s is None else round(took - requests_s, 3),
            )
        )
        self._recorder.sync()


def requests_of(sweep: Sweep, concurrency: int) -> int:
    """Returns how many requests a cell starts: the number asked for, else so many a slot."""
    return sweep.matrix.requests or sweep.matrix.requests_per_slot * concurrency


def failures_of(records: list[RequestRecord]) -> tuple[tuple[str, str], ...]:
    """Returns (kind, first message) of each kind of failure, the most frequent first."""
    counts = Counter(r.outcome for r in records if not r.valid)
    first = {r.outcome: r.error or "" for r in reversed(records) if not r.valid}
    return tuple((f"{count} x {kind.value}", first[kind][:500]) for kind, count in counts.most_common(FAILURES_SHOWN))


def _plain(duration: Seconds | None) -> float | None:
    """A duration as a plain number, which is what messages to other processes carry."""
    return None if duration is None else float(duration)
