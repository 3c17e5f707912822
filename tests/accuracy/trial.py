"""Runs one scenario and holds every figure against the server's own account of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from loadgen.figures import CellFigures, MarkKind, ServerWindow
from loadgen.measure import measure_cell
from loadgen.phases import steady_window
from loadgen.pool import WorkerPool
from loadgen.records import Outcome, RequestRecord
from loadgen.spec import CellSpec, Stop, WorkerHealth
from loadgen.target import detect_target
from loadgen.workload_calibration import calibrate_target
from telemetry.samples import ServerSample
from telemetry.server import ServerGauges
from telemetry.windows import server_window
from tests.accuracy.scenarios import Scenario
from tests.simserver.support import Sim, launch, running

THROUGHPUT_SHARE = 0.02
TRIES = 3
STOOD_STILL_S = 0.1
GAUGES_EVERY_S = 0.05
KILL_AFTER = 24  # requests over, of a cell whose server is killed
ALWAYS_ALLOWED = frozenset({MarkKind.FEW_SAMPLES, MarkKind.CLIENT_BOUND})
_OUTCOMES = {"ok": Outcome.OK, "error": Outcome.STREAM_ERROR, "truncated": Outcome.TRUNCATED, "cut": Outcome.TRUNCATED}


@dataclass(frozen=True)
class Verdict:
    """What came of a scenario.

    Attributes:
        true_tok_s: tokens of answers that came through, as the server sent them in the steady window, a second.
        wrong: everything that was not as it should be, in words.
        ttft_off_s: median of the differences of first-token times, request by request.
        late_p99_s: how late the simulated server was against its own schedule.
    """

    scenario: Scenario
    figures: CellFigures
    true_tok_s: float | None
    true_tokens: int
    true_failed: dict[str, int]
    true_acceptance: float | None
    ttft_off_s: float | None
    late_p99_s: float | None
    wrong: tuple[str, ...]

    @property
    def off(self) -> float | None:
        """Relative error of the headline."""
        if self.true_tok_s is None or self.figures.throughput_tok_s is None:
            return None
        return self.figures.throughput_tok_s / self.true_tok_s - 1.0

    @property
    def disturbed(self) -> bool:
        """Whether server or load process had to wait for the machine."""
        late = self.late_p99_s is not None and self.late_p99_s >= STOOD_STILL_S
        return late or any(mark.kind is MarkKind.CLIENT_BOUND for mark in self.figures.marks)


async def run(scenario: Scenario, folder: Path, *, share: float = 1.0) -> Verdict:
    """Runs a scenario; again, twice at most, when it went wrong on a machine that stood still meanwhile.

    Args:
        scenario: which.
        folder: for the server's logs.
        share: of the requests to ask; less than 1 for a quick look.
    """
    for _ in range(TRIES - 1):
        verdict = await run_once(scenario, folder, share=share)
        if not verdict.wrong or not verdict.disturbed:
            return verdict
    return await run_once(scenario, folder, share=share)


async def run_once(scenario: Scenario, folder: Path, *, share: float = 1.0) -> Verdict:
    """Runs a scenario once.

    Args:
        scenario: which.
        folder: for the server's logs.
        share: of the requests to ask; less than 1 for a quick look.
    """
    flags = (*scenario.flags, "--enable-metrics", "--enable-cache-report", "--sim-speed", str(scenario.speed))
    with running(folder, *flags) as sim:
        origin_ns = time.perf_counter_ns()
        target = await detect_target(f"http://127.0.0.1:{sim.port}")
        pool = WorkerPool(1, origin_ns, target)
        await pool.start()
        try:
            spec = CellSpec(
                cell=scenario.name,
                context=scenario.context,
                concurrency=scenario.concurrency,
                max_tokens=scenario.max_tokens,
                temperature=scenario.temperature,
                stop=Stop(
                    requests=None if scenario.duration_s else scenario.asked(share), duration_s=scenario.duration_s
                ),
                arrival=scenario.arrival,
                start_rate_limit=scenario.start_rate_limit,
                workload=scenario.workload,
                warmup_requests=2 * scenario.concurrency,
                seed=7,
            )
            spec = msgspec.structs.replace(spec, calibration=await calibrate_target(spec, target, pool))
            for _ in range(scenario.rounds - 1):
                await pool.run_cell(spec, lambda _: None, lambda _: None)
            return await _measure(scenario, spec, sim, pool, origin_ns, folder)
        finally:
            await pool.close()


async def _measure(
    scenario: Scenario, spec: CellSpec, sim: Sim, pool: WorkerPool, origin_ns: int, folder: Path
) -> Verdict:
    for fault in scenario.faults:
        sim.fault(set=fault)
    records: list[RequestRecord] = []
    before: list[dict[str, Any]] = []
    reborn: list[Sim] = []
    enough = asyncio.Event()

    def take(record: RequestRecord) -> None:
        records.append(record)
        if sum(1 for r in records if r.purpose == "cell") >= KILL_AFTER:
            enough.set()

    async def kill_and_restart() -> None:
        await enough.wait()
        before.extend(sim.truth("chunks=1")["requests"])
        sim.process.kill()
        sim.process.wait()
        flags = (*scenario.flags, "--sim-speed", str(scenario.speed))
        reborn.append(launch(folder, *flags, port=sim.port))

    with _ended(reborn):
        async with _gauges(sim, origin_ns) as samples:
            restart = asyncio.create_task(kill_and_restart()) if scenario.restart else None
            health = await pool.run_cell(spec, take, lambda _: None)
            if restart is not None:
                await restart
        last = reborn[-1] if reborn else sim
        if reborn:
            last.wait_log("The server is fired up")
        report = last.truth("chunks=1")
        return _judge(scenario, spec, records, health, samples, [*before, *report["requests"]], report, origin_ns)


@contextlib.contextmanager
def _ended(servers: list[Sim]) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()


@contextlib.asynccontextmanager
async def _gauges(sim: Sim, origin_ns: int) -> AsyncIterator[list[ServerSample]]:
    """Readings of the server's own gauges while a cell runs."""
    samples: list[ServerSample] = []
    gauges = ServerGauges(f"http://127.0.0.1:{sim.port}")

    async def poll() -> None:
        while True:
            samples.append(await gauges.sample((time.perf_counter_ns() - origin_ns) / 1e9))
            await asyncio.sleep(GAUGES_EVERY_S)

    polling = asyncio.create_task(poll())
    try:
        yield samples
    finally:
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
        await gauges.close()


def _judge(
    scenario: Scenario,
    spec: CellSpec,
    records: list[RequestRecord],
    health: WorkerHealth,
    samples: list[ServerSample],
    told: list[dict[str, Any]],
    report: dict[str, Any],
    origin_ns: int,
) -> Verdict:
    counted = [r for r in records if r.purpose == "cell"]
    truth = {one["rid"]: one for one in told}
    window = steady_window(records, spec)
    server = None
    if window is not None:
        facts = server_window(samples, *window)
        server = msgspec.convert(msgspec.structs.asdict(facts), ServerWindow)
    figures = measure_cell(records, spec, health=health, server=server, speculative=scenario.speculative)
    valid = [r for r in counted if r.valid]
    pairs = [(r, truth[r.rid]) for r in valid if r.rid in truth and truth[r.rid]["outcome"] == "ok"]
    steps = sum(t["verify_steps"] for _, t in pairs)
    true_acceptance = (steps + sum(t["correct_drafts"] for _, t in pairs)) / steps if steps else None
    firsts = [r.ttft - (t["first_token_ns"] - origin_ns) / 1e9 + r.t_send for r, t in pairs if r.ttft is not None]
    true_tok_s = None
    if window is not None:
        sent = sum(
            tokens for _, t in pairs for at, tokens in t["chunks"] if window[0] < (at - origin_ns) / 1e9 <= window[1]
        )
        true_tok_s = sent / (window[1] - window[0])
    true_failed = _true_failures(counted, truth, restarted=scenario.restart)
    verdict = Verdict(
        scenario=scenario,
        figures=figures,
        true_tok_s=true_tok_s,
        true_tokens=sum(t["completion_tokens"] for _, t in pairs),
        true_failed=true_failed,
        true_acceptance=true_acceptance,
        ttft_off_s=median(firsts) if firsts else None,
        late_p99_s=report["lateness"]["p99_s"],
        wrong=(),
    )
    wrong = [*_wrong_counts(scenario, spec, counted, pairs, verdict), *_wrong_figures(scenario, verdict)]
    return Verdict(**{**verdict.__dict__, "wrong": tuple(wrong)})


def _true_failures(
    counted: list[RequestRecord], truth: dict[str, dict[str, Any]], *, restarted: bool
) -> dict[str, int]:
    """Failures by kind as the server tells them; of a killed server's requests, those that never ended well."""
    kinds: Counter[str] = Counter()
    for record in counted:
        told = truth.get(record.rid)
        if told is None or told["outcome"] == "open":
            if restarted:  # never reached a server, or died with it: what it is called, only the client can tell
                kinds[record.outcome.value] += not record.valid
            continue
        outcome = _OUTCOMES[told["outcome"]]
        if outcome is not Outcome.OK:
            kinds[outcome.value] += 1
    return {kind: count for kind, count in sorted(kinds.items()) if count}


def _wrong_counts(
    scenario: Scenario,
    spec: CellSpec,
    counted: list[RequestRecord],
    pairs: list[tuple[RequestRecord, dict[str, Any]]],
    verdict: Verdict,
) -> Iterator[str]:
    figures = verdict.figures
    if spec.stop.requests is not None and len(counted) != spec.stop.requests:
        yield f"{len(counted)} records of {spec.stop.requests} requests"
    for record, told in pairs:
        if not scenario.unmeasured:
            if record.n_out != told["completion_tokens"]:
                yield f"{record.rid}: {record.n_out} tokens of {told['completion_tokens']}"
            if record.prompt_tokens != told["prompt_tokens"]:
                yield f"{record.rid}: {record.prompt_tokens} prompt tokens of {told['prompt_tokens']}"
            if (record.cached_tokens or 0) != told["cached_tokens"]:
                yield f"{record.rid}: {record.cached_tokens} cached tokens of {told['cached_tokens']}"
        if scenario.speculative and (record.verify_steps, record.correct_drafts) != (
            told["verify_steps"],
            told["correct_drafts"],
        ):
            yield f"{record.rid}: {record.verify_steps} verify steps of {told['verify_steps']}"
    if figures.requests.failed != verdict.true_failed:
        yield f"failures {figures.requests.failed}, truly {verdict.true_failed}"
    if not scenario.restart and len(pairs) != figures.requests.valid:
        yield f"{figures.requests.valid} valid requests, truly {len(pairs)}"


def _wrong_figures(scenario: Scenario, verdict: Verdict) -> Iterator[str]:
    figures = verdict.figures
    if scenario.unmeasured:
        if figures.throughput_tok_s is not None or figures.output_tokens is not None:
            yield "a headline without any token count"
    elif verdict.off is None:
        yield "no headline"
    else:
        if abs(verdict.off) > THROUGHPUT_SHARE:
            yield f"headline off by {verdict.off:+.1%}"
        if not scenario.restart and figures.output_tokens != verdict.true_tokens:
            yield f"{figures.output_tokens} output tokens of {verdict.true_tokens}"
    if scenario.speculative and not scenario.restart:
        ours, true = figures.acceptance_length, verdict.true_acceptance
        if ours is None or true is None or abs(ours - true) > 1e-9:
            yield f"acceptance length {ours}, truly {true}"
    found = {mark.kind for mark in figures.marks}
    for missing in sorted(scenario.marks - found):
        yield f"mark {missing} is missing"
    for extra in sorted(found - scenario.marks - scenario.may - ALWAYS_ALLOWED):
        words = next(mark.reason for mark in figures.marks if mark.kind is extra)
        yield f"mark {extra} is wrong ({re.sub(r' +', ' ', words)})"
