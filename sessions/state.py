"""The one state that every view looks at; `sessions/reduce.py` makes it from events. There is no second path."""

from __future__ import annotations

from typing import Literal

import msgspec

from evals.verdicts import EvalSummary, Judgement, LosslessSummary, Suspicion
from loadgen.figures import CellFigures
from loadgen.spec import CellProgress
from reconfig.presets import Preset, Proof, ProofStep
from sessions.events import CellKey, Level, Phase
from telemetry.samples import GpuSample, ServerSample

NEWS_KEPT = 200
LOG_KEPT = 200
HISTORY_KEPT = 240
GPU_HISTORY_KEPT = 120

CellStatus = Literal["waiting", "running", "measured", "failed", "skipped", "not-in-effect"]
Pending = Literal["", "pause", "stop-after-cell"]
PresetStatus = Literal["waiting", "switching", "in-effect", "done", "not-in-effect", "skipped"]


class News(msgspec.Struct, frozen=True):
    """One line of the event tail."""

    t: float
    at: str
    level: Level
    words: str


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Live rates at one moment: seconds, tok/s, acceptance length; whether the cell was in its steady part."""

    t: float
    tok_s: float | None
    acceptance_length: float | None
    steady: bool = True


class GpuPoint(msgspec.Struct, frozen=True, array_like=True):
    """All GPUs' utilisation (0 to 1), power (W) and temperature (C) at one moment."""

    t: float
    utilisation: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]


class CellState(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. Figures are those of the last measured attempt."""

    key: CellKey
    status: CellStatus = "waiting"
    run: str = ""
    attempt: int = 0
    progress: CellProgress | None = None
    figures: CellFigures | None = None
    reason: str = ""
    failures: tuple[tuple[str, str], ...] = ()
    started_t: float | None = None
    ended_t: float | None = None


class PresetState(msgspec.Struct, frozen=True, kw_only=True):
    """One preset: whether it is in effect, by what proof, and what its evals said.

    Attributes:
        proof: of the last switch; where that was broken off, what proved the preset before it.
        proved: the last proof that it was in effect; its cells were measured under it.
        broken_off_at: when its last switch was broken off, in UTC ("" where that is not known); `None` when it was not.
    """

    preset: Preset
    status: PresetStatus = "waiting"
    steps: tuple[ProofStep, ...] = ()
    proof: Proof | None = None
    reason: str = ""
    evals: tuple[EvalSummary, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    lossless: LosslessSummary | None = None
    switching_since_t: float | None = None
    proved: Proof | None = None
    broken_off_at: str | None = None


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a view needs.

    Attributes:
        t: of the newest event, seconds since the session's start; `at` the same in UTC.
        phase_since_t: when the present phase began.
        current_preset, current_cell: what is running now.
        history: live rates of the running cell and those before it, oldest first.
        gpu_history: GPU readings, oldest first.
    """

    label: str = ""
    session: str = ""
    base_url: str = ""
    model: str = ""
    simulated: bool = False
    restarts: bool = True
    reference: str | None = None
    repeats: int = 1
    max_tokens: int = 0
    coding: str | None = None
    lossless_prompts: int = 0
    load_s_expected: float | None = None
    cell_s_expected: float | None = None
    engine_pid: int | None = None
    t: float = 0.0
    at: str = ""
    started_at: str = ""
    phase: Phase = "idle"
    phase_words: str = ""
    phase_since_t: float = 0.0
    paused: bool = False
    pending: Pending = ""
    status: Literal["running", "finished", "failed", "stopped"] = "running"
    end_words: str = ""
    current_preset: str | None = None
    current_cell: str | None = None
    presets: dict[str, PresetState] = msgspec.field(default_factory=dict)
    cells: dict[str, CellState] = msgspec.field(default_factory=dict)
    suspicions: tuple[Suspicion, ...] = ()
    gpus: GpuSample | None = None
    gpu_history: tuple[GpuPoint, ...] = ()
    idle_power_w: tuple[float | None, ...] = ()
    server: ServerSample | None = None
    history: tuple[Point, ...] = ()
    news: tuple[News, ...] = ()
    log: tuple[str, ...] = ()
    notes: tuple[News, ...] = ()

    @property
    def done_cells(self) -> int:
        """Cells that will not run (again): measured, failed, skipped or not in effect."""
        return sum(1 for c in self.cells.values() if c.status not in ("waiting", "running"))

    @property
    def contexts(self) -> tuple[int, ...]:
        """The matrix's context lengths, ascending."""
        return tuple(sorted({c.key.context for c in self.cells.values()}))

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """The matrix's concurrencies, ascending."""
        return tuple(sorted({c.key.concurrency for c in self.cells.values()}))

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The matrix's temperatures, ascending."""
        return tuple(sorted({c.key.temperature for c in self.cells.values()}))
