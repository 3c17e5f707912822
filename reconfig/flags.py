"""How a server spells a setting: vocabularies as data, the arguments of a preset, and what must then be seen.

The only place that turns a preset into server arguments. A vocabulary says, for each algorithm, which arguments (or
environment variables) carry a setting, and which keys of `/server_info` show it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconfig.presets import AS_IS, NO_WINDOW, Preset

ANY_ALGORITHM = "*"
ENVIRONMENT = "env:"


class CannotExpress(ValueError):
    """Raised when a vocabulary has no words for a preset's setting; nothing was restarted.

    Attributes:
        preset, setting, vocabulary: which one, what of it, and under which vocabulary.
    """

    def __init__(self, preset: str, setting: str, vocabulary: str, why: str) -> None:
        super().__init__(f'preset "{preset}": {setting} cannot be expressed in the vocabulary "{vocabulary}": {why}')
        self.preset = preset
        self.setting = setting
        self.vocabulary = vocabulary


class Key(msgspec.Struct, frozen=True):
    """A key of `/server_info` that shows a setting; `plus` is what the server adds to the number that was asked.

    A name that begins with "env:" is looked up in the environment that the server shows of itself.
    """

    name: str
    plus: int = 0


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """How one setting is written and shown.

    Attributes:
        words: arguments with `{value}` or `{value+1}` in them; "env:NAME=..." goes to the environment instead.
        keys: where the running server shows it, best first.
        allowed: the only values that the server takes; empty for any.
        same_as: the setting whose value this one must have, where the server has no knob of its own for it.
    """

    words: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    allowed: tuple[int, ...] = ()
    same_as: str | None = None


class AlgorithmWords(msgspec.Struct, frozen=True, kw_only=True):
    """How one algorithm is switched on, and how its settings are spelled; `None` where it has no such setting.

    Attributes:
        switch: the arguments that switch it on.
        shows: the value of `speculative_algorithm` on a running server; "{algorithm}" is the preset's own.
        also_shows: a further key that must be true.
        tree_width_plus: what `speculative_num_draft_tokens` shows in tree mode: the budget plus this.
    """

    switch: tuple[str, ...]
    shows: str = "{algorithm}"
    also_shows: str | None = None
    budget: Spelling | None = None
    topk: Spelling | None = None
    block_size: Spelling | None = None
    window: Spelling | None = None
    tree_width_plus: int | None = None


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """A server's words for every algorithm it knows; "*" stands for those not named."""

    name: str
    says: str
    algorithms: dict[str, AlgorithmWords]


class FlagsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[flags]` table of a sweep file: a known vocabulary, with own spellings on top.

    Attributes:
        vocabulary: one of `VOCABULARIES`.
        algorithm: the algorithm that the own spellings are for; "*" for all.
        switch, budget, topk, block_size, window: own words, such as `["--tree-budget", "{value}"]`.
        keys: where `/server_info` shows a setting (`{budget = "speculative_tree_budget"}`); made from the argument's
            name when left out.
    """

    vocabulary: str = "mainline"
    algorithm: str = ANY_ALGORITHM
    switch: list[str] | None = None
    budget: list[str] | None = None
    topk: list[str] | None = None
    block_size: list[str] | None = None
    window: list[str] | None = None
    keys: dict[str, str] = {}


def arguments(preset: Preset, vocabulary: Vocabulary) -> tuple[list[str], dict[str, str]]:
    """The server arguments and environment variables that ask for a preset.

    Raises:
        CannotExpress: the vocabulary has no words for one of the preset's settings.
    """
    flags: list[str] = []
    env: dict[str, str] = {}
    if preset.algorithm == AS_IS:
        raise CannotExpress(preset.name, AS_IS, vocabulary.name, "it is what bench calls a server that shows nothing")
    if preset.speculative:
        words = algorithm_words(preset, vocabulary)
        say(words.switch, preset.algorithm, flags, env)
        for setting, value in settings(preset):
            spelling = spelling_of(preset, words, setting, value, vocabulary)
            if value != NO_WINDOW:
                say(spelling.words, value, flags, env)
    else:
        for setting, value in settings(preset):
            raise CannotExpress(preset.name, f"{setting} {value}", vocabulary.name, "it asks for no speculation")
    return [*flags, *preset.flags], {**env, **preset.env}


def left_out(preset: Preset, vocabulary: Vocabulary) -> list[str]:
    """The arguments (or environment variables) that a server must not have to be as a preset asks.

    Everything about speculation for a preset without it; those of the window for one that asks for none.
    """
    if not preset.speculative:
        every = vocabulary.algorithms.values()
        words = [word for a in every for word in (*a.switch, *(w for s in _spellings(a) for w in s.words))]
    elif preset.window == NO_WINDOW:
        window = algorithm_words(preset, vocabulary).window
        words = list(window.words) if window is not None else []
    else:
        words = []
    names = [w.removeprefix(ENVIRONMENT).partition("=")[0] for w in words if w.startswith(("-", ENVIRONMENT))]
    return [name for name in dict.fromkeys(names) if name not in (*preset.flags, *preset.env)]


def _spellings(words: AlgorithmWords) -> list[Spelling]:
    return [s for s in (words.budget, words.topk, words.block_size, words.window) if s is not None]


def settings(preset: Preset) -> list[tuple[str, int | str]]:
    """The speculative settings that a preset asks for, by name."""
    asked: list[tuple[str, int | str | None]] = [
        ("block size", preset.block_size),
        ("budget", preset.budget),
        ("topk", preset.topk),
        ("window", preset.window),
    ]
    return [(name, value) for name, value in asked if value is not None]


def algorithm_words(preset: Preset, vocabulary: Vocabulary) -> AlgorithmWords:
    """The words for a preset's algorithm.

    Raises:
        CannotExpress: the vocabulary does not know the algorithm.
    """
    words = vocabulary.algorithms.get(preset.algorithm)
    if words is None and not (preset.algorithm == "DDTREE" and "DDTREE" not in vocabulary.algorithms):
        words = vocabulary.algorithms.get(ANY_ALGORITHM)
    if words is None:
        known = ", ".join(name for name in vocabulary.algorithms if name != ANY_ALGORITHM) or "none by name"
        raise CannotExpress(
            preset.name, f"algorithm {preset.algorithm}", vocabulary.name, f"it has no words for it (it knows {known})"
        )
    return words


def spelling_of(
    preset: Preset, words: AlgorithmWords, setting: str, value: int | str, vocabulary: Vocabulary
) -> Spelling:
    """How a setting of a preset is spelled.

    Raises:
        CannotExpress: not at all, or not with this value.
    """
    spelling: Spelling | None = getattr(words, setting.replace(" ", "_"))
    asked = f"{setting} {value}"
    if spelling is None:
        raise CannotExpress(
            preset.name,
            asked,
            vocabulary.name,
            f"{preset.algorithm} has no such setting there; see [flags] for own words",
        )
    if spelling.allowed and value not in spelling.allowed:
        allowed = ", ".join(map(str, spelling.allowed))
        raise CannotExpress(preset.name, asked, vocabulary.name, f"it takes only {allowed}")
    if spelling.same_as is not None:
        other = dict(settings(preset)).get(spelling.same_as)
        if other != value:
            raise CannotExpress(
                preset.name,
                asked,
                vocabulary.name,
                f"it has no knob for it: it always equals the {spelling.same_as} ({other})",
            )
    return spelling


def say(words: Sequence[str], value: int | str, flags: list[str], env: dict[str, str]) -> None:
    """Puts words with a value in them among the arguments, or into the environment."""
    for word in words:
        said = word.replace("{value}", str(value)).replace("{algorithm}", str(value))
        if "{value+1}" in said:
            said = said.replace("{value+1}", str(int(value) + 1))
        if said.startswith(ENVIRONMENT):
            name, _, text = said.removeprefix(ENVIRONMENT).partition("=")
            env[name] = text
        else:
            flags.append(said)
