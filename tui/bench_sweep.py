"""The sweep of `spectop bench`: one preset, the server as it stands; and the results file of the old harness."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Literal

import msgspec

from evals.coding import answer_tokens
from loadgen.spec import Arrival, ClosedLoop, Constant, DialectName, Poisson, Target, Workload
from loadgen.target import detect_target
from reconfig.durations import seconds
from reconfig.flags import FlagsTable
from reconfig.interrogate import Interrogated, interrogate
from reconfig.presets import Preset, PresetEntry
from sessions.errors import ServerUnprepared, SweepFileError
from sessions.folder import write_atomically
from sessions.sweep import EvalsTable, LoadTable, MatrixTable, Seconds, ServerTable, Sweep

LOSSLESS_PROMPTS = 16


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `spectop bench`, as given."""

    base_url: str
    model: str | None
    label: str
    contexts: list[int]
    concurrency: list[int]
    max_tokens: int
    temperature: float
    requests: int | None
    duration: str | None
    warmup: int | None
    rate: float | None
    arrival: Literal["closed", "poisson", "constant"]
    repeats: int
    workload: Literal["coding", "prose", "math", "chat", "mixed"]
    ignore_eos: bool
    coding: bool
    lossless: bool
    unsafe_exec: bool
    dialect: DialectName | None
    api_key_env: str | None
    workers: int


def bench_sweep(options: BenchOptions) -> Sweep:
    """Returns the sweep that a command line asks for; asks the server once what it is.

    Raises:
        SweepFileError: options that contradict each other.
        loadgen.errors.TargetError: the server cannot be measured.
    """
    faults = _contradictions(options)
    if faults:
        raise SweepFileError("spectop bench", faults)
    key = os.environ.get(options.api_key_env) if options.api_key_env else None
    target, found = asyncio.run(_asked(options, key))
    if (false := _false_label(options.label, found.preset)) and found.settings:
        raise ServerUnprepared(f"{false}: correct --label, or restart the server")
    running = found.preset
    return Sweep(
        label=options.label,
        server=ServerTable(
            base_url=target.base_url, model=target.model, dialect=target.dialect, api_key_env=options.api_key_env
        ),
        flags=FlagsTable(vocabulary=found.vocabulary),
        presets=(
            PresetEntry(
                algorithm=running.algorithm,
                budget=running.budget,
                topk=running.topk,
                window=running.window,
                block_size=running.block_size,
                name=options.label,
            ),
        ),
        matrix=MatrixTable(
            contexts=tuple(options.contexts),
            concurrency=tuple(options.concurrency),
            temperatures=(options.temperature,),
            max_tokens=options.max_tokens,
            repeats=options.repeats,
            requests=options.requests,
            duration=None if options.duration is None else Seconds(seconds(options.duration)),
            warmup=options.warmup,
        ),
        load=LoadTable(
            workers=options.workers,
            arrival=_arrival(options),
            workload=Workload(kind=options.workload),
            ignore_eos=options.ignore_eos,
        ),
        evals=EvalsTable(
            coding="core-5" if options.coding else None,
            lossless_prompts=LOSSLESS_PROMPTS if options.lossless else 0,
            unsafe_exec=options.unsafe_exec,
            max_tokens=answer_tokens(target.max_model_len),
        ),
        as_it_stands=True,
    )


async def _asked(options: BenchOptions, key: str | None) -> tuple[Target, Interrogated]:
    target = await detect_target(options.base_url, options.model, key, options.dialect)
    return target, await interrogate(target)


def write_out(folder: Path, out: Path) -> None:
    """Writes a session's results as JSON, in the shape of `show --json`."""
    from sessions.logread import state_of
    from sessions.show import session_json

    results = session_json(state_of(folder), folder)
    write_atomically(out, msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def _false_label(label: str, running: Preset) -> str:
    """Returns in words what a label such as "budget=8 topk=4 window=2048" claims and the server does not run with."""
    claims = dict(re.findall(r"\b(budget|topk|window)=(\d+|none)\b", label))
    runs = {name: getattr(running, name) for name in claims}
    wrong = [name for name, claim in claims.items() if claim != str("none" if runs[name] is None else runs[name])]
    if not wrong:
        return ""
    claimed = ", ".join(f"{name} {claims[name]}" for name in wrong)
    return f"the label says {claimed}; the server runs {', '.join(f'{name} {runs[name]}' for name in wrong)}"


def _contradictions(options: BenchOptions) -> list[str]:
    faults = []
    if options.arrival != "closed" and options.rate is None:
        faults.append(f"--arrival {options.arrival} needs --rate, the request starts a second")
    if options.arrival == "closed" and options.rate is not None:
        faults.append("--rate needs --arrival poisson or constant")
    if options.requests is not None and options.duration is not None:
        faults.append("--requests and --duration: give one of them")
    if options.duration is not None:
        try:
            seconds(options.duration)
        except ValueError as error:
            faults.append(f"--duration: {error}")
    for name, values in (("--contexts", options.contexts), ("--concurrency", options.concurrency)):
        if not values or min(values) < 1:
            faults.append(f"{name} takes whole numbers from 1, found {values}")
        if len(set(values)) != len(values):
            faults.append(f"{name}: a value stands twice: {values}")
    for name, value in (("--max-tokens", options.max_tokens), ("--repeats", options.repeats)):
        if value < 1:
            faults.append(f"{name} takes a whole number from 1, found {value}")
    if options.api_key_env is not None and options.api_key_env not in os.environ:
        faults.append(f"--api-key-env: the environment has no variable {options.api_key_env}")
    return faults


def _arrival(options: BenchOptions) -> Arrival:
    if options.arrival == "poisson" and options.rate is not None:
        return Poisson(options.rate)
    if options.arrival == "constant" and options.rate is not None:
        return Constant(options.rate)
    return ClosedLoop()
