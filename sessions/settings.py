"""What a preset asks for and was proven with, fit to be shown: whatever looks like a key is masked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from reconfig.presets import AS_IS, Preset, Proof
from reconfig.redaction import HIDDEN, Redactor, is_secret, redactor_for
from sessions.folder import printable

_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)


def settings_of(preset: Preset) -> dict[str, object]:
    """Returns what a preset asks for, without its name and notes; keys among flags and environment are masked."""
    settings: dict[str, object] = {"algorithm": preset.algorithm}
    for key in ("budget", "topk", "window", "block_size"):
        settings[key] = getattr(preset, key)
    settings["flags"] = _shown_flags(preset)
    settings["env"] = _shown_env(preset)
    return settings


def settings_words(preset: Preset) -> str:
    """Returns what a preset asks for in one line, keys masked."""
    numbers = (
        ("budget", preset.budget),
        ("topk", preset.topk),
        ("window", preset.window),
        ("block", preset.block_size),
    )
    algorithm = "not shown by the server" if preset.algorithm == AS_IS else preset.algorithm
    parts = [algorithm, *(f"{word} {value}" for word, value in numbers if value is not None)]
    parts += [*_shown_flags(preset), *(f"{name}={value}" for name, value in _shown_env(preset).items())]
    return printable(" ".join(parts))


def shown_proof(preset: Preset, proof: Proof) -> Proof:
    """Returns a preset's proof with keys masked where they were asked for and found."""
    redactor = redactor_for(None, preset.env)
    settings = []
    for s in proof.settings:
        clean = _hide if is_secret(s.setting) else redactor.clean
        found = None if s.found is None else clean(s.found)
        settings.append(msgspec.structs.replace(s, asked=clean(s.asked), found=found))
    return msgspec.structs.replace(proof, settings=tuple(settings))


def _hide(_: str) -> str:
    return HIDDEN


def _shown_env(preset: Preset) -> dict[str, str]:
    redactor = redactor_for(None, preset.env)
    return {k: HIDDEN if _SECRET.search(k) else redactor.clean(value) for k, value in preset.env.items()}


def _shown_flags(preset: Preset) -> list[str]:
    return list(_without_keys(preset.flags, redactor_for(None, preset.env)))


def _without_keys(flags: Sequence[str], redactor: Redactor) -> Iterator[str]:
    """Yields flags; the value of one that is named like a key may be a word of its own, or follow a `=`."""
    key_comes = False
    for word in flags:
        name, equals, _ = word.partition("=")
        named = word.startswith("-") and is_secret(name)
        if named:
            yield f"{name}={HIDDEN}" if equals else name
        else:
            yield HIDDEN if key_comes and not word.startswith("--") else redactor.clean(word)
        key_comes = named and not equals
