"""What a running server must show for a preset to be in effect.

The counterpart of `flags.arguments`: the same words, from the side of `/server_info`, the log and the start line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from reconfig.flags import (
    ENVIRONMENT,
    AlgorithmWords,
    Vocabulary,
    algorithm_words,
    arguments,
    say,
    settings,
    spelling_of,
)
from reconfig.presets import NO_WINDOW, Preset


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that the running server must show.

    Attributes:
        setting: its name; `asked`: its value in words.
        keys: where to look, with the value that each must show.
        pattern: what a key's name looks like where none of `keys` is there.
        window_log: the value of `draft_window_size` in the start-up log, which alone proves it.
        argument: the words that must be in the launch command, where no key shows the setting.
    """

    setting: str
    asked: str
    keys: tuple[tuple[str, str], ...] = ()
    pattern: str | None = None
    window_log: str | None = None
    argument: tuple[str, ...] = ()


def expectations(preset: Preset, vocabulary: Vocabulary) -> list[Expected]:
    """What a running server must show for a preset to be in effect.

    Raises:
        CannotExpress: as `arguments` does.
    """
    arguments(preset, vocabulary)
    if not preset.speculative:
        expected = [Expected(setting="algorithm", asked="NONE", keys=(("speculative_algorithm", "none"),))]
    else:
        words = algorithm_words(preset, vocabulary)
        shows = words.shows.format(algorithm=preset.algorithm)
        expected = [Expected(setting="algorithm", asked=preset.algorithm, keys=(("speculative_algorithm", shows),))]
        if words.also_shows is not None:
            expected.append(Expected(setting="tree", asked="on", keys=((words.also_shows, "true"),)))
        expected.extend(_expected(preset, words, setting, value, vocabulary) for setting, value in settings(preset))
    return [*expected, *_further(preset)]


def _expected(
    preset: Preset, words: AlgorithmWords, setting: str, value: int | str, vocabulary: Vocabulary
) -> Expected:
    spelling = spelling_of(preset, words, setting, value, vocabulary)
    flags: list[str] = []
    if value != NO_WINDOW:
        say(spelling.words, value, flags, {})
    keys = [(key.name, "none" if value == NO_WINDOW else str(int(value) + key.plus)) for key in spelling.keys]
    if setting == "block size" and words.tree_width_plus is not None and preset.budget is not None:
        keys.append(("speculative_num_draft_tokens", str(preset.budget + words.tree_width_plus)))
    return Expected(
        setting=setting,
        asked=str(value),
        keys=tuple(keys),
        pattern=_PATTERNS[setting],
        window_log=("None" if value == NO_WINDOW else str(value)) if setting == "window" else None,
        argument=tuple(flags),
    )


_PATTERNS = {
    "budget": r"^speculative_(?!.*ngram).*(ddtree|tree).*budget|^speculative_.*tree_budget",
    "topk": r"^speculative_.*(ddtree|tree|dflash).*topk",
    "block size": r"^speculative_.*block_size$",
    "window": r"^speculative_.*window(_size)?$",
}


def _further(preset: Preset) -> list[Expected]:
    """Expectations for the flags and variables that a preset adds as they are."""
    expected = []
    for name, values in _split_flags(preset.flags):
        key = name.lstrip("-").replace("-", "_")
        asked = " ".join(values)
        simple = len(values) == 1 and re.fullmatch(r"[\w.+-]+", asked) and asked.lower() != "auto"
        keys = ((key, "true"),) if not values else ((key, asked),) if simple else ()
        expected.append(Expected(setting=name, asked=asked or "on", keys=keys, argument=(name, *values)))
    expected.extend(
        Expected(setting=f"environment {name}", asked=value, keys=((ENVIRONMENT + name, value),))
        for name, value in sorted(preset.env.items())
    )
    return expected


def _split_flags(flags: Sequence[str]) -> list[tuple[str, list[str]]]:
    groups: list[tuple[str, list[str]]] = []
    for word in flags:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            groups.append((name, [value] if equals else []))
        elif groups:
            groups[-1][1].append(word)
        else:
            groups.append((word, []))
    return groups
