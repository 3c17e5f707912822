"""What a preset is: one server configuration, its name, and the settings it asks for.

The only place that names presets and expands grids.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from reconfig.redaction import is_secret

NO_WINDOW: Literal["none"] = "none"


class PresetError(ValueError):
    """Raised by `expand` for entries that contradict themselves or collide; the words name the entry and the cure."""


AS_IS = "AS_IS"
"""The algorithm of a server that shows no settings and is measured as it stands."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One server configuration.

    Attributes:
        name: unique in the session, made from what differs (`b8t4-w2048`) unless given.
        algorithm: "NONE" (no speculation), "DFLASH", "DDTREE", "NGRAM", ...; upper case; `AS_IS` of `bench` alone.
        budget: nodes of the verified tree; `topk`: candidates a position.
        window: draft window in tokens; "none" asks for no window; `None` asks nothing about it.
        block_size: draft tokens a step.
        flags: further server arguments, added as they are.
        env: environment variables of the server.
    """

    name: str
    algorithm: str
    budget: int | None = None
    topk: int | None = None
    window: int | Literal["none"] | None = None
    block_size: int | None = None
    flags: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    notes: str = ""

    @property
    def speculative(self) -> bool:
        """Whether the preset asks for speculation at all."""
        return self.algorithm not in ("NONE", AS_IS)


class SettingFound(msgspec.Struct, frozen=True):
    """One setting that was asked for, what was found on the running server, and from where."""

    setting: str
    asked: str
    found: str | None
    source: str
    ok: bool


class ProofStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of putting a preset in effect, as the screen shows it and the session keeps it.

    Attributes:
        name: stable id: "stop", "start", "old-gone", "port", "health", "generate", "settings", "model", "memory".
        words: what the operator reads.
        state: waiting, running, done or failed.
        detail: the latest news of this step ("58 % of shards", "HTTP 503").
        share: progress 0 to 1 where known.
    """

    name: str
    words: str
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    detail: str = ""
    share: float | None = None
    started_t: float | None = None
    ended_t: float | None = None


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What proves that a preset is in effect (or what proves that it is not).

    Attributes:
        in_effect: every asked setting was found.
        instance: facts that identify the running instance (pid, invocation, start time).
        settings: asked and found, one by one.
        generations: texts' beginnings of the two real generations.
        failure: why it is not in effect, in words.
        cause: the kind of failure ("oom", "port", "arguments", "crash loop", "exited", "setting", "model", ...).
        warnings: reasons to look twice although the preset is in effect.
        model: the name that the server itself gives its model.
        took_s: seconds from the first step to the last; `load_s`: seconds from the start to the open port.
    """

    preset: str
    in_effect: bool
    steps: tuple[ProofStep, ...] = ()
    settings: tuple[SettingFound, ...] = ()
    instance: dict[str, str] = msgspec.field(default_factory=dict)
    generations: tuple[str, ...] = ()
    failure: str | None = None
    cause: str | None = None
    warnings: tuple[str, ...] = ()
    model: str | None = None
    log_tail: tuple[str, ...] = ()
    took_s: float | None = None
    load_s: float | None = None


class PresetEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[presets]]` table of a sweep file: a single preset, or a grid where a value is a list.

    Attributes:
        budget_topk: pairs of both, where the grid of the two is not wanted.
        name: the preset's name; for a grid, what its names begin with.
    """

    algorithm: str | list[str]
    budget: int | list[int] | None = None
    topk: int | list[int] | None = None
    budget_topk: list[tuple[int, int]] | None = None
    window: int | Literal["none"] | list[int | Literal["none"]] | None = None
    block_size: int | list[int] | None = None
    name: str | None = None
    flags: list[str] = []
    env: dict[str, str] = {}
    notes: str = ""


def expand(entries: Sequence[PresetEntry]) -> list[Preset]:
    """Expands the sweep file's entries to presets with unique names, in their order.

    Args:
        entries: the `[[presets]]` tables.

    Raises:
        PresetError: impossible values, contradictions or equal presets, all of them in one message.
    """
    problems: list[str] = []
    found: list[tuple[int, Preset]] = []
    for number, entry in enumerate(entries, 1):
        wrong = _problems(entry)
        problems.extend(f"presets[{number}]: {words}" for words in wrong)
        if not wrong:
            found.extend((number, preset) for preset in _grid(entry))
    named = _told_apart(found)
    for name, count in Counter(preset.name for _, preset in named).items():
        if count > 1:
            numbers = ", ".join(f"presets[{number}]" for number, preset in named if preset.name == name)
            problems.append(
                f'{count} presets are called "{name}" ({numbers}): remove one, or give each entry a name = "..."'
            )
    if problems:
        raise PresetError("\n".join(problems))
    return [preset for _, preset in named]


def name_of(preset: Preset) -> str:
    """The name made from what a preset asks for: `none`, `b8t4-w2048`, `dflash-k8-wnone`."""
    if not preset.speculative:
        return "none"
    parts = []
    tree = (f"b{preset.budget}" if preset.budget is not None else "") + (
        f"t{preset.topk}" if preset.topk is not None else ""
    )
    if preset.algorithm != "DDTREE" or not tree:
        parts.append(_slug(preset.algorithm))
    if tree:
        parts.append(tree)
    if preset.block_size is not None:
        parts.append(f"k{preset.block_size}")
    if preset.window is not None:
        parts.append(f"w{preset.window}")
    return "-".join(parts)


def _grid(entry: PresetEntry) -> list[Preset]:
    pairs: list[tuple[int | None, int | None]] = (
        list(entry.budget_topk)
        if entry.budget_topk is not None
        else list(itertools.product(_values(entry.budget), _values(entry.topk)))
    )
    presets: list[Preset] = []
    for algorithm, (budget, topk), block_size, window in itertools.product(
        _values(entry.algorithm), pairs, _values(entry.block_size), _values(entry.window)
    ):
        speculative = str(algorithm).upper() != "NONE"
        preset = Preset(
            name="",
            algorithm=str(algorithm).upper(),
            budget=budget if speculative else None,
            topk=topk if speculative else None,
            window=window if speculative else None,
            block_size=block_size if speculative else None,
            flags=tuple(entry.flags),
            env=dict(entry.env),
            notes=entry.notes,
        )
        if not any(msgspec.structs.replace(other, name="") == preset for other in presets):
            presets.append(preset)
    if entry.name is not None and len(presets) == 1:
        return [msgspec.structs.replace(presets[0], name=entry.name)]
    prefix = f"{entry.name}-" if entry.name is not None else ""
    return [msgspec.structs.replace(preset, name=prefix + name_of(preset)) for preset in presets]


def _told_apart(found: list[tuple[int, Preset]]) -> list[tuple[int, Preset]]:
    """Adds flags and environment to names that would otherwise be equal, where these differ."""
    counts = Counter(preset.name for _, preset in found)
    named = []
    for number, preset in found:
        extra = _extra(preset)
        if counts[preset.name] > 1 and extra:
            named.append((number, msgspec.structs.replace(preset, name=f"{preset.name}-{extra}")))
        else:
            named.append((number, preset))
    return named


def _extra(preset: Preset) -> str:
    words = [*preset.flags, *(f"{key}={value}" for key, value in sorted(preset.env.items()))]
    return "-".join(filter(None, (_slug(word) for word in words)))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _values(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _problems(entry: PresetEntry) -> list[str]:
    problems = []
    algorithms = [str(algorithm).upper() for algorithm in _values(entry.algorithm)]
    if not algorithms or not all(re.fullmatch(r"[A-Z0-9_]+", algorithm) for algorithm in algorithms):
        problems.append(
            f'algorithm = {entry.algorithm!r}: give a name ("DDTREE", "DFLASH", "NGRAM", "NONE") or a list of names'
        )
    if entry.budget_topk is not None and (entry.budget is not None or entry.topk is not None):
        problems.append("budget_topk already says both: remove budget and topk")
    for key, values in (
        ("budget", _values(entry.budget)),
        ("topk", _values(entry.topk)),
        ("block_size", _values(entry.block_size)),
        ("window", [None if value == NO_WINDOW else value for value in _values(entry.window)]),
        (
            "budget_topk",
            [None] if entry.budget_topk is None else [number for pair in entry.budget_topk for number in pair],
        ),
    ):
        if any(value is not None and value < 1 for value in values):
            problems.append(f"{key}: every number must be 1 or more")
        if values == []:
            problems.append(f"{key} = []: an empty list asks for no preset at all")
    if algorithms == ["NONE"]:
        asked = [
            key for key in ("budget", "topk", "budget_topk", "window", "block_size") if getattr(entry, key) is not None
        ]
        if asked:
            problems.append(f'algorithm = "NONE" speculates not at all: remove {", ".join(asked)}')
    if any(character in word for word in (*entry.flags, *entry.env, *entry.env.values()) for character in "\n\r\0"):
        problems.append("flags, env: no line breaks or null characters, a server's start line can't carry them")
    joined = [word for word in entry.flags if re.match(r"--?[\w-]+\s", word)]
    if joined:
        problems.append(f"flags: {joined[0]!r} is one argument with a space in it: write {joined[0].split()!r}")
    keys = [name for name in entry.env if is_secret(name)]
    keys += [flag for word in entry.flags if word.startswith("--") and is_secret(flag := word.partition("=")[0])]
    if keys:
        problems.append(
            f"{', '.join(keys)}: a session keeps its presets; give keys to the server by its own environment"
        )
    if entry.name is not None and not entry.name.strip():
        problems.append('name = "": leave it out, or give one')
    return problems
