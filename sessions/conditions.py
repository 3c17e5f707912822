"""Under what conditions two sessions were measured, and in what these differ: said before any figure is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from sessions.folder import printable
from sessions.review import Session
from sessions.settings import settings_of
from sessions.state import PresetState

_NOT_A_CONDITION = (
    *("label", "notify", "presets", "leave", "telemetry", "matrix.contexts", "matrix.concurrency"),
    *("server.base_url", "server.model", "matrix.max_tokens", "matrix.repeats"),  # said from the session itself
)
"""Parts of a sweep file that say nothing of how a shared cell was measured."""


class Difference(msgspec.Struct, frozen=True):
    """A condition under which A and B were not measured alike."""

    what: str
    a: str
    b: str


def differing_conditions(a: Session, b: Session, pairs: list[tuple[str, str]]) -> Iterator[Difference]:
    """Yields what was not alike, the gravest first: model, server, machine, versions, the sweep's settings, flags."""
    ours, theirs = _facts(a), _facts(b)
    for what in dict.fromkeys([*ours, *theirs]):
        one, two = ours.get(what, "not set"), theirs.get(what, "not set")
        if one != two:
            yield Difference(what, printable(one), printable(two))
    for preset_a, preset_b in pairs:
        one_p, two_p = a.state.presets[preset_a], b.state.presets[preset_b]
        for key, (x, y) in _differing(_preset_facts(one_p), _preset_facts(two_p)).items():
            where = preset_a if preset_a == preset_b else f"{preset_a} / {preset_b}"
            yield Difference(f"{where}: {key}", printable(x), printable(y))


def _facts(session: Session) -> dict[str, str]:
    state, info = session.state, session.info
    facts = {
        "model": state.model,
        "simulated": str(state.simulated).lower(),
        "base_url": state.base_url,
        "max_tokens": str(state.max_tokens),
        "repeats": str(state.repeats),
        "GPUs": ", ".join(f"{n} x {name}" for name, n in Counter(session.gpus).items()) or "unknown",
        "driver": session.driver or "unknown",
    }
    if info is not None:
        facts["host"] = info.host
        facts["kernel"] = info.kernel
        facts["spectop"] = info.version
        facts |= {k: v for k, v in _flattened(_decoded(info.sweep)).items() if not k.startswith(_NOT_A_CONDITION)}
    return facts


def _decoded(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def _flattened(tree: Any, path: str = "") -> dict[str, str]:
    if isinstance(tree, dict):
        found: dict[str, str] = {}
        for key, value in tree.items():
            found |= _flattened(value, f"{path}.{key}" if path else str(key))
        return found
    return {path: msgspec.json.encode(tree).decode()} if tree is not None else {}


def _preset_facts(preset: PresetState) -> dict[str, str]:
    facts = {k: str(v) for k, v in settings_of(preset.preset).items() if v not in (None, [], {})}
    if preset.proof is not None:
        if version := preset.proof.instance.get("server version"):
            facts["server version"] = version
        if preset.proof.model:
            facts["model by the server"] = preset.proof.model
    return facts


def _differing(one: dict[str, str], two: dict[str, str]) -> dict[str, tuple[str, str]]:
    keys = dict.fromkeys([*one, *two])
    return {k: (one.get(k, "not set"), two.get(k, "not set")) for k in keys if one.get(k) != two.get(k)}
