"""The sweep file: what an operator asks for, typed, with defaults, and refused with every fault at once.

Who reads it: `load_sweep` for `run` and `check`; `demo` and `bench` build the same `Sweep` from their own options, so
that every session has one. Units: seconds, tokens, requests.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loadgen.records import Route
from loadgen.spec import ClosedLoop, Constant, DialectName, Poisson, Ramp, Workload
from reconfig.durations import seconds
from reconfig.flags import CannotExpress, FlagsTable, arguments
from reconfig.managers.config import ManagerConfig, ManualConfig
from reconfig.presets import Preset, PresetEntry, PresetError, expand
from reconfig.vocabularies import vocabulary_from
from sessions.errors import SweepFileError
from sessions.toml_lines import key_lines, line_of
from sessions.typed import Path as KeyPath
from sessions.typed import typed

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Rate = Annotated[float, Meta(gt=0.0)]


class Seconds(float):
    """A duration; written as a number of seconds or as "90s", "15m", "1h 30m"."""


class ServerTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[server]`: the target, and who may restart it."""

    base_url: Annotated[str, Meta(pattern=r"^https?://[^\s/]+[^\s]*$")]
    model: str | None = None
    dialect: DialectName | None = None
    api_key_env: str | None = None
    manager: ManagerConfig = ManualConfig()


class ReferenceTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[reference]`: the preset that others are compared with; "none" adds a preset without speculation."""

    name: str = "none"


class MatrixTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[matrix]`: what is measured under every preset, and how much of it.

    Attributes:
        requests: requests of a cell; `requests_per_slot` times the concurrency when not given.
        duration: seconds during which a cell starts requests, instead of a number of them.
        interval: stop a cell once the 95 % interval of its throughput is narrower than this share of it.
        warmup: requests before a cell's measured ones; as many as its concurrency (at most 8) when not given.
    """

    contexts: Annotated[tuple[Count, ...], Meta(min_length=1)] = (60, 1024, 4096, 8192)
    concurrency: Annotated[tuple[Count, ...], Meta(min_length=1)] = (1, 8, 32, 64)
    temperatures: Annotated[tuple[Annotated[float, Meta(ge=0.0)], ...], Meta(min_length=1)] = (0.0,)
    max_tokens: Count = 512
    repeats: Count = 1
    requests: Count | None = None
    requests_per_slot: Count = 4
    duration: Seconds | None = None
    interval: Share | None = None
    warmup: Annotated[int, Meta(ge=0)] | None = None


class LoadTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[load]`: how requests are made and started."""

    workers: Count = 1
    arrival: ClosedLoop | Constant | Poisson | Ramp = ClosedLoop()
    start_rate_limit: Rate | None = None
    workload: Workload = Workload()
    ignore_eos: bool = False
    route: Route = "chat"
    seed: int = 0
    flush_cache: bool = True
    request_timeout: Seconds | None = None
    stall_timeout: Seconds | None = Seconds(120)
    first_token_timeout: Seconds | None = None


class EvalsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[evals]`: whether the text is still right.

    Attributes:
        coding: a problem set's name or file; samples: answers of each problem; pass_at: values of k for pass@k.
        lossless_prompts: greedy texts compared with the reference's, 0 for no check.
        lossless_share, lossless_position: a preset has diverged when fewer texts than this share are identical, and
            the median first difference is within so many tokens.
    """

    coding: str | None = None
    samples: Count = 1
    pass_at: tuple[Count, ...] = ()
    lossless_prompts: Annotated[int, Meta(ge=0)] = 0
    lossless_share: Share = 0.8
    lossless_position: Count = 64
    max_tokens: Count = 2048
    temperature: float = 0.0
    concurrency: Count = 4
    unsafe_exec: bool = False


class TelemetryTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[telemetry]`: where GPU readings come from; "auto" takes NVML for a local server, nothing for a remote one."""

    gpus: Literal["auto", "nvml", "simulated", "dcgm", "none"] = "auto"
    dcgm_url: str | None = None
    devices: tuple[str | int, ...] | None = None
    interval: Seconds = Seconds(1)
    pcie: bool = False


class LimitsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[limits]`: when to give up, and what counts as too much."""

    max_failures: Count = 3
    error_share: Share = 0.01
    goodput_ttft: Seconds | None = None
    goodput_tpot: Seconds | None = None
    goodput_e2e: Seconds | None = None


class NotifyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify]`: a program that is given events as JSON on its standard input."""

    command: tuple[str, ...] = ()
    timeout: Seconds = Seconds(10)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep file.

    Attributes:
        leave: how the server is left at the end: "as-is", "stopped", or a preset's name.
        keep_texts: whether prompts' recipes and answers are kept in the session.
        as_it_stands: measure the running server, whatever its settings: `bench`, which restarts nothing.
    """

    label: str = "sweep"
    server: ServerTable
    flags: FlagsTable = FlagsTable()
    reference: ReferenceTable | None = None
    presets: tuple[PresetEntry, ...] = ()
    matrix: MatrixTable = MatrixTable()
    load: LoadTable = LoadTable()
    evals: EvalsTable = EvalsTable()
    telemetry: TelemetryTable = TelemetryTable()
    limits: LimitsTable = LimitsTable()
    notify: NotifyTable = NotifyTable()
    leave: str = "as-is"
    keep_texts: bool = True
    as_it_stands: bool = False

    def expanded(self) -> list[Preset]:
        """Returns the presets of all entries, the no-speculation reference among them where it is asked for.

        Raises:
            PresetError: entries contradict themselves, or two presets would have one name.
        """
        presets = expand(self.presets)
        if self.reference is not None and self.reference.name == "none" and all(p.speculative for p in presets):
            presets.insert(0, Preset(name="none", algorithm="NONE"))
        return presets

    def reference_name(self) -> str | None:
        """Returns the name of the preset that others are compared with: the one asked for, else the first."""
        if self.reference is not None:
            named = self.reference.name
            presets = self.expanded()
            if named == "none":
                return next((p.name for p in presets if not p.speculative), named)
            return named
        return next((p.name for p in self.expanded()), None)


def load_sweep(path: Path) -> tuple[Sweep, str]:
    """Reads a sweep file.

    Returns:
        The sweep, and the file's text.

    Raises:
        SweepFileError: it cannot be read, or has faults: all of them, each with its line.
    """
    shown = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SweepFileError(shown, [f"cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SweepFileError(shown, [f"is not UTF-8 text (byte {error.start})"]) from error
    return parse_sweep(text, shown), text


def parse_sweep(text: str, shown: str) -> Sweep:
    """Reads a sweep file's text; `shown` names it in errors.

    Raises:
        SweepFileError: all faults, each with its line.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SweepFileError(shown, [f"is not TOML: {error}"]) from error
    faults: list[tuple[KeyPath, str]] = []
    sweep = typed(tree, Sweep, hook=_hook, faults=faults)
    if not faults:
        faults = _impossible(sweep)
    if faults:
        lines = key_lines(text)
        raise SweepFileError(shown, [_in_words(path, words, lines) for path, words in faults])
    assert isinstance(sweep, Sweep)
    return sweep


def sweep_from_json(raw: bytes) -> Sweep:
    """Reads a sweep back from `session.json`."""
    return msgspec.json.decode(raw, type=Sweep, dec_hook=_hook)


def sweep_to_json(sweep: Sweep) -> bytes:
    """Returns a sweep as `session.json` keeps it."""
    return msgspec.json.encode(sweep, enc_hook=float)


def _hook(kind: type, value: Any) -> Any:
    if kind is not Seconds:
        raise NotImplementedError(f"no reading of {kind}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('wanted a duration such as 90, "90s", "15m" or "1h30m"')
    return Seconds(seconds(value))


def _impossible(sweep: Sweep) -> list[tuple[KeyPath, str]]:
    """Returns what is well formed and still cannot be done."""
    faults: list[tuple[KeyPath, str]] = []
    try:
        presets = sweep.expanded()
    except PresetError as error:
        return [(("presets",), line) for line in str(error).splitlines()]
    names = [p.name for p in presets]
    if not presets:
        faults.append((("presets",), "no preset is asked for: add [[presets]] or [reference]"))
    try:
        vocabulary = vocabulary_from(sweep.flags)
    except PresetError as error:
        return [*faults, (("flags",), str(error))]
    for preset in presets:
        try:
            arguments(preset, vocabulary)
        except CannotExpress as error:
            faults.append((("flags", "vocabulary"), str(error)))
    if sweep.reference is not None and sweep.reference.name != "none" and sweep.reference.name not in names:
        faults.append((("reference", "name"), f'no preset is called "{sweep.reference.name}" (there are: {names})'))
    if sweep.leave not in ("as-is", "stopped", *names):
        faults.append((("leave",), f'wanted "as-is", "stopped" or a preset\'s name, found "{sweep.leave}" ({names})'))
    if sweep.telemetry.gpus == "dcgm" and not sweep.telemetry.dcgm_url:
        faults.append((("telemetry", "gpus"), '"dcgm" needs dcgm_url, the address of its exporter'))
    if sweep.load.workload.kind == "jsonl" and not sweep.load.workload.path:
        faults.append((("load", "workload"), 'kind "jsonl" needs path, the file of prompts'))
    if sweep.evals.pass_at and max(sweep.evals.pass_at) > sweep.evals.samples:
        words = f"pass@k needs k answers of each problem; samples is {sweep.evals.samples}"
        faults.append((("evals", "pass_at"), words))
    for key in ("contexts", "concurrency", "temperatures"):
        values = getattr(sweep.matrix, key)
        if len(set(values)) != len(values):
            faults.append((("matrix", key), f"a value stands twice: {values}"))
    return faults


def _in_words(path: KeyPath, words: str, lines: dict[KeyPath, int]) -> str:
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else (f".{part}" if name else part)
    line = line_of(lines, path)
    return (f"line {line}: " if line is not None else "") + (f"{name}: {words}" if name else words)
