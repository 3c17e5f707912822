"""Everything that happens in a session, as typed events: the log's lines, and what terminals are sent.

The log is the truth: `sessions/state.py` turns events into the state that every view looks at, and nothing is
shown that did not come through an event. A new kind of event needs no new schema version (readers skip kinds they
do not know, and say so); a changed meaning does.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from evals.verdicts import EvalSummary, Judgement, LosslessSummary, Suspicion
from loadgen.figures import CellFigures, Mark
from loadgen.spec import CellProgress
from reconfig.presets import Preset, Proof, ProofStep
from telemetry.samples import GpuSample, ServerSample

SCHEMA_VERSION = 1
"""Version of the session folder's files; a newer one is refused with a clear message."""

UNSTAMPED = -1.0
"""The time of an event that the recorder has not taken yet."""

LEFT = "left for another step"
"""Why a cell ended that was left for something more urgent; it is measured again, which is told in its place."""

Phase = Literal[
    "idle",
    "reconfiguring",
    "probing",
    "checking",
    "warming",
    "evaluating",
    "measuring",
    "paused",
    "finished",
    "failed",
    "stopped",
]
Level = Literal["info", "good", "warning", "error"]


class CellKey(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cell stands: one preset at one matrix point, one repetition (counted from 1)."""

    preset: str
    context: int
    concurrency: int
    temperature: float = 0.0
    repetition: int = 1

    @property
    def text(self) -> str:
        """The key as text, unique in a session: `b8t4-w2048/4096x32/t0/r1`."""
        return f"{self.preset}/{self.context}x{self.concurrency}/t{self.temperature:g}/r{self.repetition}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened.

    Attributes:
        t: seconds since the session's start, monotonic; stamped by the recorder.
        at: the same moment in UTC, ISO 8601; for people, never for arithmetic.
    """

    t: float = UNSTAMPED
    at: str = ""


class SessionStarted(Event, frozen=True, kw_only=True, tag=True):
    """The engine took the session up: what is planned, against what.

    Attributes:
        simulated: the target is the simulated server; the word SIMULATED is shown everywhere.
        cells: every planned cell in order.
        coding: problem set of the eval, or `None`; `lossless_prompts`: 0 for no check.
        load_s_expected: seconds a restart is expected to take, from earlier loads on this machine.
    """

    label: str
    session: str
    base_url: str
    model: str
    presets: tuple[Preset, ...]
    cells: tuple[CellKey, ...]
    reference: str | None = None
    repeats: int = 1
    max_tokens: int = 512
    requests_per_cell: dict[str, int] = msgspec.field(default_factory=dict)
    cell_s_expected: float | None = None
    coding: str | None = None
    lossless_prompts: int = 0
    simulated: bool = False
    restarts: bool = True
    load_s_expected: float | None = None
    engine_pid: int | None = None


class SessionResumed(Event, frozen=True, kw_only=True, tag=True):
    """An engine took an ended or broken session up again."""

    engine_pid: int | None = None
    differences: tuple[str, ...] = ()


class PhaseChanged(Event, frozen=True, kw_only=True, tag=True):
    """The engine's state machine moved."""

    phase: Phase
    preset: str | None = None
    cell: CellKey | None = None
    words: str = ""


class ProofStepChanged(Event, frozen=True, kw_only=True, tag=True):
    """One step of putting a preset in effect began, moved on or ended."""

    preset: str
    step: ProofStep


class PresetProved(Event, frozen=True, kw_only=True, tag=True):
    """Putting a preset in effect ended: `proof.in_effect` tells how."""

    proof: Proof


class PresetLost(Event, frozen=True, kw_only=True, tag=True):
    """The server is not the proven one any more: somebody stopped or restarted it. The preset is proven again."""

    preset: str
    reason: str


class PresetSkipped(Event, frozen=True, kw_only=True, tag=True):
    """A preset will not be tried (any more), with the reason."""

    preset: str
    reason: str


class PresetAdded(Event, frozen=True, kw_only=True, tag=True):
    """The operator added a preset while the session ran; its cells are planned after the others."""

    preset: Preset
    cells: tuple[CellKey, ...]


class PresetsReordered(Event, frozen=True, kw_only=True, tag=True):
    """The operator changed the order of the presets still to come (all names, in the new order)."""

    order: tuple[str, ...]


class CellStarted(Event, frozen=True, kw_only=True, tag=True):
    """A cell's measuring began; `run` is the key its requests carry (`key`, or `key#2` for a second attempt)."""

    cell: CellKey
    run: str
    attempt: int = 1


class CellProgressed(Event, frozen=True, kw_only=True, tag=True):
    """A running cell's live counts and rates."""

    cell: CellKey
    progress: CellProgress


class CellEnded(Event, frozen=True, kw_only=True, tag=True):
    """A cell is over. Figures are there only when `outcome` is "measured"."""

    cell: CellKey
    run: str
    outcome: Literal["measured", "failed", "skipped", "not-in-effect"]
    figures: CellFigures | None = None
    reason: str = ""
    failures: tuple[tuple[str, str], ...] = ()
    took_s: float | None = None
    overhead_s: float | None = None


class CellMarked(Event, frozen=True, kw_only=True, tag=True):
    """A measured cell got one more mark, from what was measured after it."""

    cell: CellKey
    mark: Mark


class CellReset(Event, frozen=True, kw_only=True, tag=True):
    """A cell is to be measured (again): the operator asked, or its failures were above the limit."""

    cell: CellKey
    reason: str


class AnswerJudged(Event, frozen=True, kw_only=True, tag=True):
    """One answer of the coding eval has its verdict."""

    judgement: Judgement


class EvalEnded(Event, frozen=True, kw_only=True, tag=True):
    """A problem set is through under one preset."""

    summary: EvalSummary


class LosslessEnded(Event, frozen=True, kw_only=True, tag=True):
    """The lossless check is through under one preset."""

    summary: LosslessSummary


class SuspicionRaised(Event, frozen=True, kw_only=True, tag=True):
    """A pattern that smells of the harness or the server and not of the model."""

    suspicion: Suspicion


class GpusSampled(Event, frozen=True, kw_only=True, tag=True):
    """The GPUs were read; kept in `gpus.jsonl`, not in `events.jsonl`."""

    sample: GpuSample


class IdlePowerMeasured(Event, frozen=True, kw_only=True, tag=True):
    """The server's GPUs' mean power before the sweep, watts by GPU: what energy figures start from."""

    power_w: tuple[float | None, ...]


class ServerSampled(Event, frozen=True, kw_only=True, tag=True):
    """The server's gauges were read; kept in `server.jsonl`, not in `events.jsonl`."""

    sample: ServerSample


class ServerLogged(Event, frozen=True, kw_only=True, tag=True):
    """Lines of the server's log, batched; `left_out` lines of a flood were dropped."""

    lines: tuple[str, ...]
    left_out: int = 0


class CommandReceived(Event, frozen=True, kw_only=True, tag=True):
    """A command came through the control socket."""

    command: str
    argument: str = ""


class NoteAdded(Event, frozen=True, kw_only=True, tag=True):
    """The operator's note."""

    text: str


class Said(Event, frozen=True, kw_only=True, tag=True):
    """The engine has something to say that is not an event of its own: warnings, errors, news."""

    level: Level
    words: str


class SessionEnded(Event, frozen=True, kw_only=True, tag=True):
    """The session is over: "finished" (all done), "failed" (gave up), "stopped" (the operator's wish)."""

    status: Literal["finished", "failed", "stopped"]
    words: str = ""


AnyEvent = (
    SessionStarted
    | SessionResumed
    | PhaseChanged
    | ProofStepChanged
    | PresetProved
    | PresetLost
    | PresetSkipped
    | PresetAdded
    | PresetsReordered
    | CellStarted
    | CellProgressed
    | CellEnded
    | CellMarked
    | CellReset
    | AnswerJudged
    | EvalEnded
    | LosslessEnded
    | SuspicionRaised
    | GpusSampled
    | IdlePowerMeasured
    | ServerSampled
    | ServerLogged
    | CommandReceived
    | NoteAdded
    | Said
    | SessionEnded
)
