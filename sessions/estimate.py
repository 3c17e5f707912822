"""How long it will still take: a running session's rest, and a planned sweep before it is begun.

Built on what was seen: cells of this session, loads remembered on this machine, cells of earlier sessions of the same
model. What nobody has seen yet is a guess, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
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
from sessions.review import open_session
from sessions.state import CellState, SessionState
from sessions.sweep import Sweep

SESSIONS_LOOKED_AT = 10
GUESSED_STREAM_TOK_S = 60.0
GUESSED_SCALING = 0.7
"""Throughput at c streams is guessed as that of one stream times c to this power."""
CELL_OVERHEAD_S = 1.0
EVAL_ANSWER_TOKENS = 600

_Where = tuple[int, int]


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


class Seen(msgspec.Struct, frozen=True):
    """What was seen of cells: seconds, or tok/s, by (context, concurrency)."""

    values: Mapping[_Where, float]

    @classmethod
    def of(cls, found: Iterable[tuple[_Where, float]]) -> Seen:
        """Collects values; several for one place become their median."""
        grouped: dict[_Where, list[float]] = {}
        for where, value in found:
            grouped.setdefault(where, []).append(value)
        return cls({where: median(values) for where, values in grouped.items()})

    def at(self, context: int, concurrency: int) -> float | None:
        """Returns the value at a place; else the median of its concurrency, else of everything; `None` of nothing."""
        if (exact := self.values.get((context, concurrency))) is not None:
            return exact
        near = [v for (_, c), v in self.values.items() if c == concurrency] or list(self.values.values())
        return median(near) if near else None


def remaining_s(state: SessionState) -> float | None:
    """Returns the seconds a session will still take, or `None` when it has ended or nothing is known yet.

    Cells by those measured so far at the same place (or near it), restarts by those of this session or remembered
    ones. Evals are not counted.
    """
    if state.status != "running" or not state.cells:
        return None
    seen = Seen.of(_cell_seconds(state))
    left = [c for c in state.cells.values() if c.status in ("waiting", "running")]
    total = 0.0
    for cell in left:
        whole = seen.at(cell.key.context, cell.key.concurrency) or state.cell_s_expected
        if (seconds := _of_cell(cell, whole, state.t)) is None:
            return None
        total += seconds
    if state.restarts:
        proofs = [p.proof for p in state.presets.values() if p.proof is not None]
        loads = [p.took_s for p in proofs if p.in_effect and p.took_s is not None]
        load = median(loads) if loads else state.load_s_expected
        for name in dict.fromkeys(c.key.preset for c in left):
            preset = state.presets.get(name)
            if preset is None or preset.status == "in-effect":
                continue
            if load is None:
                return None
            since = preset.switching_since_t if preset.status == "switching" else None
            total += load if since is None else max(0.0, load - (state.t - since))
    return total


def _cell_seconds(state: SessionState) -> Iterable[tuple[_Where, float]]:
    for cell in state.cells.values():
        if cell.status == "measured" and cell.started_t is not None and cell.ended_t is not None:
            yield (cell.key.context, cell.key.concurrency), cell.ended_t - cell.started_t


def _of_cell(cell: CellState, whole: float | None, now: float) -> float | None:
    if cell.status != "running" or cell.started_t is None:
        return whole
    gone = now - cell.started_t
    share = cell.progress.share_done if cell.progress is not None else 0.0
    if share > 0.1:  # by then the cell itself knows best
        return gone / share * (1 - share)
    return None if whole is None else max(0.0, whole - gone)


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


def _earlier_speeds(sessions_dir: Path, model: str | None) -> Iterable[tuple[_Where, float]]:
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
