"""How long a planned sweep will take, before it is begun.

Built on what was seen: loads remembered on this machine, cells of earlier sessions of the same model. What nobody has
seen yet is a guess, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from evals.errors import ProblemSetError
from evals.problems import load_problem_set
from reconfig.loads import LoadMemory
from reconfig.managers.config import ManualConfig
from reconfig.presets import Preset
from sessions.errors import SessionError
from sessions.events import CellKey
from sessions.folder import folders
from sessions.plan import plan_cells, reference_first
from sessions.remaining import Seen, Where
from sessions.review import open_session
from sessions.sweep import Sweep

SESSIONS_LOOKED_AT = 10
GUESSED_STREAM_TOK_S = 60.0
GUESSED_SCALING = 0.7
"""Throughput at c streams is guessed as that of one stream times c to this power."""
CELL_OVERHEAD_S = 1.0
EVAL_ANSWER_TOKENS = 600


class Step(msgspec.Struct, frozen=True):
    """One step of a plan: what, seconds, and where the seconds come from ("remembered", "earlier cells", "a guess")."""

    words: str
    seconds: float | None
    source: str


class PlanEstimate(msgspec.Struct, frozen=True):
    """A planned sweep, in order.

    Attributes:
        total_s: seconds of all steps whose length can be said.
        unknown: number of steps whose length cannot be said (restarts never seen on this machine, above all).
        guessed_s: how much of `total_s` is a guess.
    """

    steps: tuple[Step, ...]
    total_s: float
    unknown: int
    guessed_s: float


def plan_estimate(sweep: Sweep, sessions_dir: Path, *, memory: LoadMemory | None = None) -> PlanEstimate:
    """Returns a sweep's plan in order, with the time each step will take.

    Args:
        sweep: what is asked.
        sessions_dir: where earlier sessions of the same model are looked for.
        memory: loads remembered on this machine; the user's own by default.
    """
    presets = reference_first(sweep.expanded(), sweep.reference_name())
    matrix = sweep.matrix
    cells = plan_cells(presets, matrix.contexts, matrix.concurrency, matrix.temperatures, matrix.repeats)
    speed = Seen.of(_earlier_speeds(sessions_dir, sweep.server.model))
    restarts = not isinstance(sweep.server.manager, ManualConfig) and not sweep.as_it_stands
    host = urlsplit(sweep.server.base_url).hostname or ""
    load = (memory or LoadMemory()).expected_s(sweep.server.model or "", host)
    problems = _problems(sweep.evals.coding)
    steps: list[Step] = []
    for preset in presets:
        if restarts:
            steps.append(Step(f"put {preset.name} in effect", load, "remembered" if load is not None else "never seen"))
        steps += _evals(sweep, preset, speed, problems)
        steps += [_cell(sweep, c, speed) for c in cells if c.preset == preset.name]
    return PlanEstimate(
        steps=tuple(steps),
        total_s=sum(s.seconds for s in steps if s.seconds is not None),
        unknown=sum(1 for s in steps if s.seconds is None),
        guessed_s=sum(s.seconds for s in steps if s.seconds is not None and s.source == "a guess"),
    )


def _earlier_speeds(sessions_dir: Path, model: str | None) -> Iterable[tuple[Where, float]]:
    """Yields whole-run throughput of measured cells of earlier sessions of a model, newest sessions first."""
    try:
        known = folders(sessions_dir)[-SESSIONS_LOOKED_AT:]
    except SessionError:
        return
    for folder in reversed(known):
        try:
            state = open_session(folder).state
        except SessionError:
            continue  # a session that cannot be read teaches nothing
        if model is not None and state.model != model:
            continue
        for cell in state.cells.values():
            if cell.figures is not None and (tok_s := cell.figures.whole_run_throughput_tok_s):
                yield (cell.key.context, cell.key.concurrency), tok_s


def _speed(seen: Seen, context: int, concurrency: int) -> tuple[float, str]:
    tok_s = seen.at(context, concurrency)
    if tok_s is not None:
        return tok_s, "earlier cells"
    return GUESSED_STREAM_TOK_S * concurrency**GUESSED_SCALING, "a guess"


def _cell(sweep: Sweep, key: CellKey, seen: Seen) -> Step:
    from sessions.engine.measuring import requests_of  # late: a terminal that only asks for the rest needs no engine

    words = f"measure {key.context} x {key.concurrency}, temperature {key.temperature:g}, repetition {key.repetition}"
    tok_s, source = _speed(seen, key.context, key.concurrency)
    one = sweep.matrix.max_tokens / (tok_s / key.concurrency)
    if sweep.matrix.duration is not None:
        return Step(words, float(sweep.matrix.duration) + one + CELL_OVERHEAD_S, source)
    warmup = sweep.matrix.warmup if sweep.matrix.warmup is not None else min(key.concurrency, 8)
    requests = requests_of(sweep, key.concurrency) + warmup
    return Step(words, requests * sweep.matrix.max_tokens / tok_s + CELL_OVERHEAD_S, source)


def _problems(name: str | None) -> int | None:
    """Returns how many problems a set has, or `None` where it cannot be read; the eval itself says why."""
    try:
        return 0 if name is None else len(load_problem_set(name).problems)
    except ProblemSetError:
        return None


def _evals(sweep: Sweep, preset: Preset, seen: Seen, problems: int | None) -> Iterable[Step]:
    from sessions.engine.checking import LOSSLESS_MAX_TOKENS

    evals = sweep.evals
    tok_s, source = _speed(seen, min(sweep.matrix.contexts), evals.concurrency)
    if evals.coding is not None:
        words = f"coding eval {evals.coding} under {preset.name}"
        if problems is None:
            yield Step(words, None, "the problem set cannot be read")
        else:
            answers = problems * evals.samples
            yield Step(words, answers * min(evals.max_tokens, EVAL_ANSWER_TOKENS) / tok_s, source)
    if evals.lossless_prompts:
        words = f"lossless check of {preset.name}"
        yield Step(words, evals.lossless_prompts * LOSSLESS_MAX_TOKENS / tok_s, source)
