"""Scripted sessions for tests and pictures: events that a real engine would send, and a source that plays them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from evals.verdicts import EvalSummary, Extraction, Judgement, LosslessDifference, LosslessSummary, Verdict
from loadgen.figures import (
    CellFigures,
    ClientFigures,
    Interval,
    Mark,
    MarkKind,
    Percentiles,
    RequestCounts,
)
from loadgen.spec import CellProgress
from reconfig.presets import Preset, Proof, ProofStep, SettingFound
from sessions import events as ev
from sessions.commands import Command, Reply
from sessions.errors import EngineLost
from sessions.events import AnyEvent, CellKey
from sessions.reduce import reduce_all
from sessions.state import SessionState
from telemetry.samples import GpuReading, GpuSample, ServerSample

CONTEXTS = (60, 1024, 4096, 8192)
CONCURRENCIES = (1, 8, 32, 64)
PRESETS = (
    Preset(name="none", algorithm="NONE"),
    Preset(name="b4t4-w2048", algorithm="DDTREE", budget=4, topk=4, window=2048),
    Preset(name="b8t4-w2048", algorithm="DDTREE", budget=8, topk=4, window=2048),
    Preset(name="b16t4-w2048", algorithm="DDTREE", budget=16, topk=4, window=2048),
    Preset(name="b12t6-w2048", algorithm="DDTREE", budget=12, topk=6, window=2048),
    Preset(name="b8t4-w0", algorithm="DDTREE", budget=8, topk=4, window="none"),
)
STEPS = (
    ("start", "drop-in written, restart asked"),
    ("old-gone", "old process 41207 gone"),
    ("port", "weights loaded, port open"),
    ("health", "server says it is healthy"),
    ("generate", "real generation, twice"),
    ("settings", "settings read back"),
)


def at(t: float) -> str:
    """Returns the UTC moment of a session's second."""
    s = int(t) + 11 * 3600 + 58 * 60 + 45
    return f"2026-03-01T{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}Z"


def key(preset: str, context: int, concurrency: int, repetition: int = 1) -> CellKey:
    return CellKey(preset=preset, context=context, concurrency=concurrency, repetition=repetition)


def started(presets: Iterable[Preset] = PRESETS, *, repeats: int = 1, **changes: object) -> ev.SessionStarted:
    presets = tuple(presets)
    cells = tuple(
        key(p.name, c, n, r) for p in presets for c in CONTEXTS for n in CONCURRENCIES for r in range(1, repeats + 1)
    )
    fields: dict[str, object] = {
        "t": 0.0,
        "at": at(0),
        "label": "kimi-k26-rtx6000",
        "session": "20260301T115845-kimi-k26-rtx6000",
        "base_url": "http://127.0.0.1:30000",
        "model": "kimi-k2.6",
        "presets": presets,
        "cells": cells,
        "reference": "none",
        "repeats": repeats,
        "coding": "core-5",
        "simulated": True,
        "load_s_expected": 352.0,
        "engine_pid": 4711,
    }
    return ev.SessionStarted(**{**fields, **changes})  # type: ignore[arg-type]


def proof(preset: str, t: float, *, ok: bool = True, took: float = 355.0) -> list[AnyEvent]:
    """The events of one switch, from `t - took` to `t`."""
    begin = t - took
    out: list[AnyEvent] = [ev.PhaseChanged(t=begin, at=at(begin), phase="reconfiguring", preset=preset)]
    shares = (0.0, 0.002, 0.02, 0.96, 0.965, 0.98, 1.0)
    steps = []
    for i, (name, words) in enumerate(STEPS):
        failed = not ok and name == "settings"
        steps.append(
            ProofStep(
                name=name,
                words=words,
                state="failed" if failed else "done",
                detail="window: asked 2048, found none" if failed else "",
                started_t=begin + shares[i] * took,
                ended_t=begin + shares[i + 1] * took,
            )
        )
        out.append(ev.ProofStepChanged(t=begin + shares[i + 1] * took, at=at(t), preset=preset, step=steps[-1]))
    of = next((p for p in PRESETS if p.name == preset), PRESETS[-1])
    asked = [("budget", of.budget), ("topk", of.topk)] if of.budget else [("algorithm", of.algorithm)]
    settings = [SettingFound(name, str(value), str(value), "server_info", True) for name, value in asked]
    if isinstance(of.window, int):
        settings += [
            SettingFound("window", str(of.window), str(of.window) if ok else "None", "log line", ok),
            SettingFound("compact cache", "True", "True" if ok else "False", "log line", ok),
        ]
    done = Proof(
        preset=preset,
        in_effect=ok,
        steps=tuple(steps),
        settings=tuple(settings),
        instance={"pid": "41911", "start": at(begin)},
        generations=("def is_prime(n):", "The answer is") if ok else ("def is_prime(n):",),
        failure=None if ok else "window: asked 2048, found none (draft_window_size=None, compact_cache=False)",
        log_tail=() if ok else ("draft_window_size=None, compact_cache=False", "server is ready"),
        took_s=took,
        load_s=took * 0.94,
    )
    out.append(ev.PresetProved(t=t, at=at(t), proof=done))
    return out


def figures(
    context: int, concurrency: int, lift: float = 1.0, *, marks: tuple[Mark, ...] = (), begin: float = 0.0
) -> CellFigures:
    """Plausible figures of a cell; `lift` scales the speed."""
    single = 170.2 - 15.0 * (context / 4096) ** 0.5 - context / 800
    rate = single * concurrency**0.6 * lift
    half = max(0.9, rate * 0.011)
    ttft = 0.055 + context / 21000 + concurrency * 0.004
    steps = 300 * concurrency
    accept = 4.31 * lift**0.5 - context / 16000
    return CellFigures(
        prompt_tokens_mean=float(context),
        throughput_tok_s=rate,
        throughput_ci95=Interval(rate - half, rate + half),
        whole_run_throughput_tok_s=rate * 0.91,
        decode_tok_s=Percentiles(rate / concurrency, rate / concurrency * 0.9, rate / concurrency * 0.7, 128, False),
        decode_ci95=Interval(rate / concurrency * 0.98, rate / concurrency * 1.02),
        ttft_s=Percentiles(ttft, ttft * 1.4, ttft * 2.1, 128, concurrency < 32),
        ttft_ci95=Interval(ttft * 0.97, ttft * 1.03),
        tpot_s=Percentiles(concurrency / rate, concurrency / rate * 1.1, concurrency / rate * 1.3, 128, False),
        e2e_s=Percentiles(3.1, 3.6, 4.4, 128, True),
        chunk_gap_s=Percentiles(0.021, 0.027, 0.055, 9000, False),
        acceptance_length=accept,
        acceptance_ci95=Interval(accept - 0.04, accept + 0.04),
        acceptance_source="per-request",
        accepted_histogram=tuple(int(steps * s) for s in (0.09, 0.13, 0.16, 0.17, 0.15, 0.12, 0.1, 0.08)),
        survival=(1.0, 0.91, 0.78, 0.62, 0.45, 0.3, 0.18, 0.08),
        effective_concurrency=concurrency * 0.98,
        server_running_mean=concurrency * 0.97,
        output_tokens=512 * 4 * concurrency,
        ramp_s=0.6,
        steady_s=9.3,
        tail_s=3.1,
        steady_start_t=begin + 0.6,
        steady_end_t=begin + 9.9,
        requests=RequestCounts(4 * concurrency, {}),
        energy_j_per_tok=1.9 / concurrency**0.4,
        gpu_memory_peak_bytes=(94_600_000_000,) * 8,
        gpu_power_mean_w=3280.0,
        gpu_utilisation_mean=0.96,
        client=ClientFigures(0.0011, 0.22, concurrency, 0.0004),
        marks=marks,
    )


QUEUED = Mark(MarkKind.QUEUED, "the server had up to 12 requests waiting in the steady window", 12.0, 0.0)
FEW = Mark(MarkKind.FEW_SAMPLES, "16 requests: p99 is the maximum", 16.0, 100.0)


def measured(cell: CellKey, t: float, lift: float = 1.0, marks: tuple[Mark, ...] = ()) -> list[AnyEvent]:
    took = 14.0
    return [
        ev.PhaseChanged(t=t - took, at=at(t - took), phase="measuring", preset=cell.preset, cell=cell),
        ev.CellStarted(t=t - took, at=at(t - took), cell=cell, run=cell.text),
        ev.CellEnded(
            t=t,
            at=at(t),
            cell=cell,
            run=cell.text,
            outcome="measured",
            figures=figures(cell.context, cell.concurrency, lift, marks=marks, begin=t - took),
            took_s=took,
        ),
    ]


def coding(preset: str, t: float, failing: tuple[str, ...] = ()) -> list[AnyEvent]:
    out: list[AnyEvent] = [ev.PhaseChanged(t=t - 5, at=at(t - 5), phase="evaluating", preset=preset)]
    tasks = ("is_palindrome", "fib", "merge_sorted", "word_count", "gcd")
    for task in tasks:
        bad = task in failing
        code = f"def {task}(n):\n    return n == n\n"
        out.append(
            ev.AnswerJudged(
                t=t - 1,
                at=at(t - 1),
                judgement=Judgement(
                    t=t - 1,
                    preset=preset,
                    problem_set="core-5",
                    task_id=task,
                    verdict=Verdict.FAIL if bad else Verdict.PASS,
                    extraction=Extraction(
                        code=code,
                        channel="content",
                        origin="content, block 2 of 2",
                        why="the last code block after the reasoning ended",
                    ),
                    detail="AssertionError: gcd(12, 18) == 6, got 12" if bad else "",
                    output="Traceback (most recent call last):\nAssertionError" if bad else "",
                    sandbox="bubblewrap",
                    run_s=0.11,
                    finish_reason="stop",
                    tok_s=185.5,
                ),
            )
        )
    passed = len(tasks) - len(failing)
    out.append(
        ev.EvalEnded(
            t=t,
            at=at(t),
            summary=EvalSummary(
                preset=preset,
                problem_set="core-5",
                problems=5,
                samples=1,
                judged=5,
                passed=passed,
                pass_at_1=passed / 5,
                pass_at_1_ci95=(0.36, 0.98),
                verdicts={"pass": passed, "fail": len(failing)},
                sandbox="bubblewrap",
            ),
        )
    )
    return out


def lossless(preset: str, t: float, *, diverged: bool = False) -> ev.LosslessEnded:
    differences = (
        LosslessDifference(
            prompt=3,
            identical=False,
            first_difference=11,
            reference_text="def add(a, b):\n    return a + b\n",
            text="def add(a, b):\n    return a - b\n",
        ),
    )
    same = 9 if diverged else 15
    return ev.LosslessEnded(
        t=t,
        at=at(t),
        summary=LosslessSummary(
            preset=preset,
            reference="none",
            prompts=16,
            compared=16,
            identical=same,
            identical_share=same / 16,
            median_first_difference=11.0,
            diverged=diverged,
            differences=differences,
        ),
    )


def gpus(t: float, *, lost: int | None = None, hot: int | None = 2, load: float = 0.97) -> ev.GpusSampled:
    readings = []
    for i in range(8):
        if i == lost:
            readings.append(GpuReading(index=i, state="lost", note="GPU is lost (NVML error 15)", xid=79))
            continue
        readings.append(
            GpuReading(
                index=i,
                name="NVIDIA RTX PRO 6000 Blackwell",
                memory_used_bytes=int((88.1 + i * 0.05) * 2**30),
                memory_total_bytes=int(95.6 * 2**30),
                memory_kind="v2",
                utilisation=max(0.0, load - (i * 7 % 5) / 100 - (t * 3 + i) % 7 / 60),
                power_w=405 + (i * 13) % 17,
                power_limit_w=600,
                temperature_c=84 if i == hot else 69 + i % 4,
                throttle=("sw_thermal_slowdown",) if i == hot else (),
            )
        )
    return ev.GpusSampled(
        t=t, at=at(t), sample=GpuSample(t=t, source="simulated", gpus=tuple(readings), ours=tuple(range(8)))
    )


def server(t: float, waiting: int = 0) -> ev.ServerSampled:
    return ev.ServerSampled(
        t=t,
        at=at(t),
        sample=ServerSample(t=t, source="sglang", running=32, waiting=waiting, token_usage=0.41),
    )


def progressed(cell: CellKey, t: float, done: float = 0.61, tok_s: float = 1642.0) -> ev.CellProgressed:
    return ev.CellProgressed(
        t=t,
        at=at(t),
        cell=cell,
        progress=CellProgress(
            cell=cell.text,
            phase="steady",
            t=t,
            started=120,
            finished=int(128 * done),
            failed=0,
            running=32,
            total=128,
            share_done=done,
            tokens=40_000,
            tok_s=tok_s,
            acceptance_length=4.31 + (t % 5) / 25,
        ),
    )


def decode_log(t: float, lines: int = 4) -> ev.ServerLogged:
    return ev.ServerLogged(
        t=t,
        at=at(t),
        lines=tuple(
            f"[{at(t + i)[:-1].replace('T', ' ')} TP0] Decode batch, #running-req: 32, #token: 130{i}44, "
            f"accept len: 4.{30 + i}, gen throughput (token/s): {1640 + i * 3}.17, #queue-req: 0"
            for i in range(lines)
        ),
    )


def mid_sweep(*, repeats: int = 1, simulated: bool = True) -> list[AnyEvent]:
    """A sweep in its third preset: two done, the window not in effect under the last, a cell running."""
    out: list[AnyEvent] = [started(repeats=repeats, simulated=simulated)]
    t = 30.0
    for name, lift in (("none", 0.52), ("b4t4-w2048", 0.9)):
        t += 360
        out += proof(name, t)
        out += coding(name, t + 20)
        t += 20
        for c in CONTEXTS:
            for n in CONCURRENCIES:
                for r in range(1, repeats + 1):
                    t += 15
                    marks = (QUEUED,) if n == 64 and c == 1024 else ()
                    out += measured(key(name, c, n, r), t, lift * (1 + (r - 2) * 0.004), marks)
    out.append(ev.PresetSkipped(t=t, at=at(t), preset="b8t4-w0", reason="asked by the operator"))
    t += 360
    out += proof("b8t4-w2048", t)
    out += coding("b8t4-w2048", t + 20, failing=("gcd",))
    t += 20
    for c in CONTEXTS[:2]:
        for n in CONCURRENCIES:
            for r in range(1, repeats + 1):
                t += 15
                marks = (QUEUED, FEW) if (c, n) == (1024, 64) else (FEW,) if n == 1 else ()
                out += measured(key("b8t4-w2048", c, n, r), t, 1 + (r - 2) * 0.004, marks)
    for n in CONCURRENCIES[:2]:
        for r in range(1, repeats + 1):
            t += 15
            out += measured(key("b8t4-w2048", 4096, n, r), t)
    running = key("b8t4-w2048", 4096, 32)
    t += 1
    out.append(ev.PhaseChanged(t=t, at=at(t), phase="measuring", preset=running.preset, cell=running))
    out.append(ev.CellStarted(t=t, at=at(t), cell=running, run=running.text))
    for i in range(64):
        out.append(gpus(t + i, load=0.55 + min(i, 12) / 30))
    for i in range(250):
        speed = min(1.0, i / 40) * (1 - 0.12 * (i % 50 < 6))
        out.append(progressed(running, t + i * 0.25, i / 400, 1642 * speed + 40 * (i % 3) + 1))
    out.append(server(t + 63))
    out.append(decode_log(t + 59))
    return out


def switching() -> list[AnyEvent]:
    """A sweep whose third preset is being put in effect: weights are loading."""
    full = mid_sweep()
    until = next(i for i, e in enumerate(full) if isinstance(e, ev.PhaseChanged) and e.preset == "b8t4-w2048")
    out = full[: until + 1]
    begin = out[-1].t
    states: tuple[tuple[str, float | None, float | None], ...] = (
        ("done", 0.0, 0.2),
        ("done", 0.2, 4.8),
        ("running", 4.8, None),
        ("waiting", None, None),
        ("waiting", None, None),
        ("waiting", None, None),
    )
    for (name, words), (state, start, end) in zip(STEPS, states, strict=True):
        step = ProofStep(
            name=name,
            words="loading weights" if name == "port" else words,
            state=state,  # type: ignore[arg-type]
            detail="last time 5:52" if state == "running" else "",
            share=0.58 if state == "running" else None,
            started_t=None if start is None else begin + start,
            ended_t=None if end is None else begin + end,
        )
        out.append(ev.ProofStepChanged(t=begin + 192, at=at(begin + 192), preset="b8t4-w2048", step=step))
    out.append(
        ev.ServerLogged(
            t=begin + 192,
            at=at(begin + 192),
            lines=("Loading safetensors checkpoint shards:  58% Completed | 71/122",),
        )
    )
    out.append(gpus(begin + 192, load=0.1, hot=None))
    return out


def not_in_effect() -> list[AnyEvent]:
    """A sweep whose third preset was refused: the window was not found."""
    full = mid_sweep()
    until = next(i for i, e in enumerate(full) if isinstance(e, ev.PhaseChanged) and e.preset == "b8t4-w2048")
    t = full[until].t + 355
    out = full[:until] + proof("b8t4-w2048", t, ok=False)
    for c in CONTEXTS:
        for n in CONCURRENCIES:
            cell = key("b8t4-w2048", c, n)
            out.append(
                ev.CellEnded(
                    t=t,
                    at=at(t),
                    cell=cell,
                    run=cell.text,
                    outcome="not-in-effect",
                    reason="window: asked 2048, found none",
                )
            )
    out.append(ev.Said(t=t + 1, at=at(t + 1), level="info", words="next preset in 30 s (p pauses, 1-9 chooses)"))
    out.append(gpus(t + 1, load=0.1, hot=None))
    return out


def finished() -> list[AnyEvent]:
    """A small sweep that ended well."""
    presets = PRESETS[:3]
    out: list[AnyEvent] = [started(presets)]
    t = 10.0
    for preset, lift in zip(presets, (0.52, 0.9, 1.0), strict=True):
        t += 360
        out += proof(preset.name, t)
        out += coding(preset.name, t + 20, failing=("gcd",) if preset.name == "b4t4-w2048" else ())
        out.append(lossless(preset.name, t + 25, diverged=preset.name == "b4t4-w2048"))
        t += 25
        for c in CONTEXTS:
            for n in CONCURRENCIES:
                t += 15
                out += measured(key(preset.name, c, n), t, lift)
    out.append(gpus(t, load=0.02, hot=None))
    out.append(ev.SessionEnded(t=t + 1, at=at(t + 1), status="finished", words="48 of 48 cells measured"))
    return out


class Scripted:
    """A source that shows given states, then waits; keeps the commands it was sent."""

    def __init__(self, *states: SessionState, live: bool = True, lost: str = "", ends: bool = False) -> None:
        self.live = live
        self.commands: list[Command] = []
        self.replies: list[Reply] = []
        self.closed = False
        self._lost = lost
        self._ends = ends
        self._queue: asyncio.Queue[SessionState | Exception] = asyncio.Queue()
        for state in states:
            self._queue.put_nowait(state)
        if lost:
            self._queue.put_nowait(EngineLost(lost))

    @classmethod
    def of(cls, events: Iterable[AnyEvent], **options: object) -> Scripted:
        """A source of the state that some events make."""
        return cls(reduce_all(events), **options)  # type: ignore[arg-type]

    def send(self, state: SessionState) -> None:
        """Gives the screen another state."""
        self._queue.put_nowait(state)

    def lose(self, words: str) -> None:
        """Lets the engine be gone."""
        self._queue.put_nowait(EngineLost(words))

    async def states(self) -> AsyncIterator[SessionState]:
        while True:
            if self._ends and self._queue.empty():
                return
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            yield item

    async def command(self, command: Command) -> Reply:
        self.commands.append(command)
        return self.replies.pop(0) if self.replies else Reply(True, f"{command.name} will be done")

    async def close(self) -> None:
        self.closed = True
