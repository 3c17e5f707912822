"""What a preset is: one server configuration, its name, and the settings it asks for.

The only place that names presets and expands grids.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One server configuration.

    Attributes:
        name: unique in the session, made from what differs (`b8t4-w2048`) unless given.
        algorithm: "NONE" (no speculation), "DFLASH", "DDTREE", "NGRAM", ...; upper case.
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
        return self.algorithm != "NONE"


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
        took_s: seconds from the first step to the last.
    """

    preset: str
    in_effect: bool
    steps: tuple[ProofStep, ...] = ()
    settings: tuple[SettingFound, ...] = ()
    instance: dict[str, str] = msgspec.field(default_factory=dict)
    generations: tuple[str, ...] = ()
    failure: str | None = None
    log_tail: tuple[str, ...] = ()
    took_s: float | None = None
    load_s: float | None = None
