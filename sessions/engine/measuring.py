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
from loadgen.spec import Calibration, CellProgress, CellSpec, Stop, Target, WorkerHealth
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
        self._guard = guard
        self._lost: str | None = None
        self._skipping: asyncio.Future[None] | None = None
        self._sweep = sweep
        self._recorder = recorder
        self._pool = pool
        self._watch = watch
        self._dropped: str | None = None
        self._calibration: Calibration | None = None
        self._lag = LagWatcher()

    async def drop(self, why: str) -> None:
        """Abandons the running cell; `measure` returns soon, with the cell skipped or reset."""
        self._dropped = why
        await self._pool.skip()

    def _lose(self, why: str) -> None:
        self._lost = why
        self._skipping = asyncio.ensure_future(self._pool.skip())

    def _why_dropped(self) -> str | None:
        return self._dropped

    async def measure(self, cell: CellKey, preset: Preset) -> bool:
        """Measures a cell.

        Args:
            cell: which.
            preset: what is in effect.

        Returns:
            Whether the cell has figures.
        """
        before = self._recorder.state.cells.get(cell.text)
        attempt = (before.attempt if before else 0) + 1
        run = cell.text if attempt == 1 else f"{cell.text}#{attempt}"
        self._dropped = self._lost = None
        spec = await self._calibrated(self.spec(cell, run))
        began = time.perf_counter()
        self._recorder.happen(PhaseChanged(phase="warming", preset=cell.preset, cell=cell))
        self._recorder.happen(CellStarted(cell=cell, run=run, attempt=attempt))
        records: list[RequestRecord] = []
        flushing = flush_cache(self.target) if self._sweep.load.flush_cache else asyncio.sleep(0, False)
        self._lost, _, _ = await asyncio.gather(self._guard.changed(), flushing, self._watch.edge())
        if self._lost is not None:
            return self._give_up(cell, run, attempt, records, began)
        if (why := self._why_dropped()) is not None:
            self._end(cell, run, "skipped", why, records, began)
            return False
        cell_start = self._recorder.now()
        self._lag.start()
        self._guard.alarm = self._lose
        try:
            health = await self._pool.run_cell(
                spec,
                on_record=lambda record: self._record(record, records),
                on_progress=lambda progress: self._progress(cell, progress),
            )
        except CellError as error:
            self._end(cell, run, "failed", str(error), records, began)
            return False
        except WorkerLost as error:
            self._end(cell, run, "failed", f"a load process died: {error}", records, began)
            await self._pool.start()
            return False
        finally:
            self._lag.stop()
            self._guard.alarm = None
        cell_end = self._recorder.now()
        changed, _ = await asyncio.gather(self._guard.changed(), self._watch.edge())
        self._lost = self._lost or changed
        if self._lost is not None:
            return self._give_up(cell, run, attempt, records, began)
        return await self._judge(cell, run, attempt, spec, preset, records, health, (cell_start, cell_end), began)

    def spec(self, cell: CellKey, run: str) -> CellSpec:
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
                min_requests=cell.concurrency,
            ),
            workload=load.workload,
            warmup_requests=warmup,
            ignore_eos=load.ignore_eos,
            route=load.route,
            seed=load.seed + cell.repetition,
            start_rate_limit=load.start_rate_limit,
            request_timeout_s=_plain(load.request_timeout),
            stall_timeout_s=_plain(load.stall_timeout),
            first_token_timeout_s=_plain(load.first_token_timeout),
        )

    async def _calibrated(self, spec: CellSpec) -> CellSpec:
        """Returns the cell with what is known of how the server counts prompt tokens, asking it what is not."""
        with contextlib.suppress(TargetError, WorkerLost):  # the cell itself will tell what is wrong
            self._calibration = await calibrate_target(spec, self.target, self._pool, self._calibration)
        return msgspec.structs.replace(spec, calibration=self._calibration)

    def _record(self, record: RequestRecord, records: list[RequestRecord]) -> None:
        records.append(record)
        self._recorder.request(record)

    def _progress(self, cell: CellKey, progress: CellProgress) -> None:
        if progress.phase not in ("calibrating", "warmup") and self._recorder.state.phase == "warming":
            self._recorder.happen(PhaseChanged(phase="measuring", preset=cell.preset, cell=cell))
        self._recorder.happen(CellProgressed(cell=cell, progress=progress))

    async def _judge(
        self,
        cell: CellKey,
        run: str,
        attempt: int,
        spec: CellSpec,
        preset: Preset,
        records: list[RequestRecord],
        health: WorkerHealth,
        span: tuple[float, float],
        began: float,
    ) -> bool:
        measured = [r for r in records if r.purpose == "cell"]
        if self._dropped is not None:
            self._end(cell, run, "skipped", self._dropped, records, began)
            return False
        failed = sum(1 for r in measured if not r.valid)
        if not measured or failed == len(measured):
            why = "no request came back" if not measured else f"all {failed} requests failed"
            self._end(cell, run, "failed", why, records, began)
            return False
        if attempt == 1 and failed / len(measured) > self._sweep.limits.error_share:
            self._end(cell, run, "failed", f"{failed} of {len(measured)} requests failed", records, began)
            self._recorder.happen(CellReset(cell=cell, reason="too many failures; measured once more"))
            return False
        window = steady_window(measured, spec) or span
        figures = await asyncio.to_thread(  # long enough to be felt by those who watch
            measure_cell,
            records,
            spec,
            health=health,
            server=self._watch.server_window(*window, *span),
            gpus=self._watch.gpu_window(*window, *span),
            speculative=preset.speculative,
            chain=preset.speculative and preset.budget is None,
            goodput_limits=self._goodput(),
        )
        client = msgspec.structs.replace(figures.client, engine_lag_p99_s=self._lag.lag_s(0.99))
        figures = msgspec.structs.replace(figures, client=client)
        if (batch := self._watch.graph_missed(*span)) is not None:
            figures = msgspec.structs.replace(figures, marks=(*figures.marks, graph_missed(batch)))
        requests_s = max((r.t for r in records), default=span[1]) - min((r.t_send for r in records), default=span[0])
        self._end(cell, run, "measured", "", records, began, figures, requests_s)
        return True

    def _give_up(
        self, cell: CellKey, run: str, attempt: int, records: list[RequestRecord], began: float
    ) -> Literal[False]:
        """Ends a cell whose server is not the proven one; it gets no figures, and is measured once more."""
        why = self._lost or ""
        self._end(cell, run, "failed", why, records, began)
        self._recorder.happen(PresetLost(preset=cell.preset, reason=why))
        if attempt == 1:
            self._recorder.happen(CellReset(cell=cell, reason="its server went away; measured once more"))
        return False

    def _goodput(self) -> GoodputLimits | None:
        limits = self._sweep.limits
        if limits.goodput_ttft is None and limits.goodput_tpot is None and limits.goodput_e2e is None:
            return None
        return GoodputLimits(ttft_s=limits.goodput_ttft, tpot_s=limits.goodput_tpot, e2e_s=limits.goodput_e2e)

    def _end(
        self,
        cell: CellKey,
        run: str,
        outcome: Literal["measured", "failed", "skipped", "not-in-effect"],
        reason: str,
        records: list[RequestRecord],
        began: float,
        figures: CellFigures | None = None,
        requests_s: float | None = None,
    ) -> None:
        took = time.perf_counter() - began
        self._recorder.happen(
            CellEnded(
                cell=cell,
                run=run,
                outcome=outcome,
                figures=figures,
                reason=reason,
                failures=failures_of(records),
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
