"""What `spectop check` looks at, and how it tells it: the server's side from `reconfig`, GPUs and the sandbox here."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from evals.coding import PROMPT_TOKENS
from evals.errors import EvalError
from evals.problems import load_problem_set
from evals.sandbox import probe_level
from loadgen.client import LocalGenerator
from loadgen.spec import Target
from reconfig.managers import manager_from
from reconfig.preconditions import Check, check_all
from reconfig.vocabularies import vocabulary_from
from sessions.sweep import Sweep
from telemetry.choose import TelemetryConfig, gpu_source
from tui.words import plain_text

SIGNS = {"good": "ok     ", "warning": "warning", "wrong": "WRONG  "}


def all_checks(sweep: Sweep, sessions_dir: Path) -> list[Check]:
    """Returns every check of a sweep, in the order in which they are shown."""
    checks = [_key(sweep)] if sweep.server.api_key_env else []
    checks += asyncio.run(_server_checks(sweep, sessions_dir))
    checks.append(_gpus(sweep))
    if sweep.evals.coding is not None:
        checks += [_problems(sweep.evals.coding), _sandbox(sweep)]
    return checks


def checks_words(checks: list[Check]) -> str:
    """Returns the checks as lines, each with its cure below it where there is one."""
    width = max(len(found.name) for found in checks)
    lines = []
    for found in checks:
        lines.append(f"{SIGNS[found.state]}  {found.name:<{width}}  {plain_text(found.what)}")
        if found.cure and found.state != "good":
            lines.append(f"{'':7}  {'':{width}}  -> {plain_text(found.cure)}")
    wrong = sum(1 for found in checks if found.state == "wrong")
    warnings = sum(1 for found in checks if found.state == "warning")
    lines.append(f"{len(checks)} checks: {wrong} wrong, {warnings} warnings")
    return "\n".join(lines) + "\n"


async def _server_checks(sweep: Sweep, sessions_dir: Path) -> list[Check]:
    key = os.environ.get(sweep.server.api_key_env) if sweep.server.api_key_env else None
    target = Target(
        base_url=sweep.server.base_url.rstrip("/"),
        model=sweep.server.model or "",
        dialect=sweep.server.dialect or "sglang",
        api_key=key,
    )
    generator = LocalGenerator(target, time.perf_counter_ns())
    try:
        with tempfile.TemporaryDirectory() as state:
            return await check_all(
                target=target,
                manager=manager_from(sweep.server.manager, state_dir=Path(state)),
                presets=sweep.expanded(),
                vocabulary=vocabulary_from(sweep.flags),
                generator=generator,
                folder=sessions_dir,
                lengths=_lengths(sweep),
            )
    finally:
        await generator.close()


def _lengths(sweep: Sweep) -> dict[str, int]:
    matrix, evals = sweep.matrix, sweep.evals
    cells = {f"cells of context {c}, which will be skipped": c + matrix.max_tokens for c in matrix.contexts}
    asked = {"answers of the coding eval": PROMPT_TOKENS + evals.max_tokens} if evals.coding is not None else {}
    return cells | asked


def _key(sweep: Sweep) -> Check:
    name = sweep.server.api_key_env or ""
    if os.environ.get(name):
        return Check("api key", "good", f"the environment has {name}")
    return Check(
        "api key", "wrong", f"the environment has no variable {name}", f"export {name}, or correct api_key_env"
    )


def _gpus(sweep: Sweep) -> Check:
    asked = sweep.telemetry
    choice = gpu_source(
        TelemetryConfig(
            base_url=sweep.server.base_url,
            source=asked.gpus,
            dcgm_url=asked.dcgm_url,
            gpus=None if asked.devices is None else tuple(map(str, asked.devices)),
        )
    )
    try:
        sample = choice.source.read(0.0)
    finally:
        choice.source.close()
    if sample.problem is not None:
        return Check(
            "gpus", "warning", sample.problem, "energy, memory and throttling stay unknown; see docs/telemetry.md"
        )
    ours = f", {sample.ours_from}" if sample.ours_from else ""
    return Check("gpus", "good", f"{len(sample.gpus)} GPUs from {sample.source}{ours}")


def _problems(name: str) -> Check:
    try:
        found = load_problem_set(name)
    except EvalError as error:
        return Check("coding eval", "wrong", str(error), "correct [evals] coding")
    return Check("coding eval", "good", f"{len(found.problems)} problems of {found.name}")


def _sandbox(sweep: Sweep) -> Check:
    level = probe_level()
    if level.safe:
        return Check(
            "sandbox", "good" if level.name == "bwrap" else "warning", level.words, "; ".join(level.why_not_higher)
        )
    reasons = "; ".join(level.why_not_higher)
    if sweep.evals.unsafe_exec:
        return Check("sandbox", "warning", f"none works, and unsafe_exec is set: {reasons}", "install bubblewrap")
    return Check("sandbox", "wrong", f"none works, so the eval would be refused: {reasons}", "install bubblewrap")
