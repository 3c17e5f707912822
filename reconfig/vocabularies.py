"""The vocabularies that are known by name, and a sweep file's own words on top of one.

Data about servers that exist: mainline SGLang with either spelling of the draft window, the open and closed pull
requests that bring a tree to DFlash, and the fork that had it first.
"""

from __future__ import annotations

import msgspec

from reconfig.flags import (
    ANY_ALGORITHM,
    ENVIRONMENT,
    AlgorithmWords,
    FlagsTable,
    Key,
    Spelling,
    Vocabulary,
)
from reconfig.presets import PresetError

NUM_DRAFT_TOKENS = "speculative_num_draft_tokens"
_WINDOW_KEYS = (Key("speculative_draft_window_size"), Key("speculative_dflash_draft_window_size"))

WINDOW = Spelling(words=("--speculative-draft-window-size", "{value}"), keys=_WINDOW_KEYS)
EARLY_WINDOW = Spelling(words=("--speculative-dflash-draft-window-size", "{value}"), keys=_WINDOW_KEYS)
BLOCK = Spelling(
    words=("--speculative-num-draft-tokens", "{value}"),
    keys=(Key("speculative_dflash_block_size"), Key(NUM_DRAFT_TOKENS)),
)
DRAFT_TOKENS = Spelling(words=("--speculative-num-draft-tokens", "{value}"), keys=(Key(NUM_DRAFT_TOKENS),))
DFLASH_BLOCK = Spelling(
    words=("--speculative-dflash-block-size", "{value}"), keys=(Key("speculative_dflash_block_size"),)
)
BY_NAME = ("--speculative-algorithm", "{value}")
CHAIN = AlgorithmWords(switch=BY_NAME, block_size=BLOCK, window=WINDOW)
EAGLE = AlgorithmWords(
    switch=BY_NAME,
    budget=DRAFT_TOKENS,
    topk=Spelling(words=("--speculative-eagle-topk", "{value}"), keys=(Key("speculative_eagle_topk"),)),
)
OTHERS = AlgorithmWords(switch=BY_NAME, block_size=DRAFT_TOKENS)
MAINLINE = {"DFLASH": CHAIN, "EAGLE": EAGLE, "EAGLE3": EAGLE, "NEXTN": EAGLE, ANY_ALGORITHM: OTHERS}

TREE_BUDGET = Spelling(
    words=("--speculative-ddtree-budget", "{value}"),
    keys=(Key("speculative_ddtree_budget"), Key(NUM_DRAFT_TOKENS, plus=1)),
)

VOCABULARIES: dict[str, Vocabulary] = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary(
            name="mainline",
            says="SGLang 0.5.23: chains (DFLASH and the others), no tree on top of DFlash",
            algorithms=MAINLINE,
        ),
        Vocabulary(
            name="mainline-early-window",
            says="SGLang from April to May 2026: the draft window is --speculative-dflash-draft-window-size",
            algorithms={**MAINLINE, "DFLASH": msgspec.structs.replace(CHAIN, window=EARLY_WINDOW)},
        ),
        Vocabulary(
            name="ddtree",
            says="DDTREE with --speculative-ddtree-budget and --speculative-ddtree-topk",
            algorithms={
                **MAINLINE,
                "DDTREE": AlgorithmWords(
                    switch=BY_NAME,
                    budget=TREE_BUDGET,
                    topk=Spelling(
                        words=("--speculative-ddtree-topk", "{value}"),
                        keys=(Key("speculative_ddtree_topk"), Key("speculative_ddtree_max_topk")),
                    ),
                    block_size=BLOCK,
                    window=WINDOW,
                    tree_width_plus=1,
                ),
            },
        ),
        Vocabulary(
            name="ddtree-29907",
            says="sgl-project/sglang#29907: DDTREE, budget as a flag, topk as an environment variable",
            algorithms={
                **MAINLINE,
                "DDTREE": AlgorithmWords(
                    switch=BY_NAME,
                    budget=TREE_BUDGET,
                    topk=Spelling(
                        words=("env:SGLANG_DDTREE_MAX_TOPK={value}", "env:SGLANG_EXPOSE_OWN_ENV_VARS=1"),
                        keys=(
                            Key("speculative_ddtree_topk"),
                            Key("speculative_ddtree_max_topk"),
                            Key("env:SGLANG_DDTREE_MAX_TOPK"),
                        ),
                    ),
                    block_size=BLOCK,
                    window=WINDOW,
                    tree_width_plus=1,
                ),
            },
        ),
        Vocabulary(
            name="ddtree-27509",
            says="sgl-project/sglang#27509 (closed): DDTREE, the tree's nodes as draft tokens; no words for topk",
            algorithms={
                **MAINLINE,
                "DDTREE": AlgorithmWords(switch=BY_NAME, budget=DRAFT_TOKENS, window=EARLY_WINDOW),
            },
        ),
        Vocabulary(
            name="dflash-tree-31069",
            says="sgl-project/sglang#31069: DFLASH with --speculative-dflash-tree-verify; topk 4, 8 or 16",
            algorithms={
                **MAINLINE,
                "DDTREE": AlgorithmWords(
                    switch=("--speculative-algorithm", "DFLASH", "--speculative-dflash-tree-verify"),
                    shows="DFLASH",
                    also_shows="speculative_dflash_tree_verify",
                    budget=DRAFT_TOKENS,
                    topk=Spelling(
                        words=("--speculative-eagle-topk", "{value}"),
                        keys=(Key("speculative_eagle_topk"),),
                        allowed=(4, 8, 16),
                    ),
                    block_size=DFLASH_BLOCK,
                    window=WINDOW,
                ),
            },
        ),
        Vocabulary(
            name="dflash-tree-width-36196",
            says="sgl-project/sglang#36196: DFLASH with --speculative-dflash-tree-width; greedy only",
            algorithms={
                **MAINLINE,
                "DDTREE": AlgorithmWords(
                    switch=("--speculative-algorithm", "DFLASH"),
                    shows="DFLASH",
                    budget=Spelling(
                        words=("env:SGLANG_DFLASH_MAX_NUM_NODES={value}", "env:SGLANG_EXPOSE_OWN_ENV_VARS=1"),
                        keys=(Key("env:SGLANG_DFLASH_MAX_NUM_NODES"), Key(NUM_DRAFT_TOKENS)),
                    ),
                    topk=Spelling(
                        words=("--speculative-dflash-tree-width", "{value}"),
                        keys=(Key("speculative_dflash_tree_width"),),
                    ),
                    block_size=DFLASH_BLOCK,
                    window=WINDOW,
                ),
            },
        ),
        Vocabulary(
            name="fork-ddtree",
            says="DB-Guo/sglang-ddtree-dev: DFLASH with --speculative-dflash-enable-ddtree; topk equals the budget",
            algorithms={
                **MAINLINE,
                "DFLASH": msgspec.structs.replace(CHAIN, window=EARLY_WINDOW),
                "DDTREE": AlgorithmWords(
                    switch=("--speculative-algorithm", "DFLASH", "--speculative-dflash-enable-ddtree"),
                    shows="DFLASH",
                    also_shows="speculative_dflash_enable_ddtree",
                    budget=Spelling(
                        words=("--speculative-num-draft-tokens", "{value+1}"), keys=(Key(NUM_DRAFT_TOKENS, plus=1),)
                    ),
                    topk=Spelling(same_as="budget", keys=(Key(NUM_DRAFT_TOKENS, plus=1),)),
                    window=EARLY_WINDOW,
                ),
            },
        ),
    )
}


def vocabulary_from(table: FlagsTable) -> Vocabulary:
    """The vocabulary of a sweep file: a known one, changed by the file's own words.

    Raises:
        PresetError: the named vocabulary is not known, or a spelling has no place for the value.
    """
    known = VOCABULARIES.get(table.vocabulary)
    if known is None:
        raise PresetError(
            f'[flags] vocabulary = "{table.vocabulary}" is not known; known are: {", ".join(VOCABULARIES)}'
        )
    own = {
        setting: words
        for setting in ("budget", "topk", "block_size", "window")
        if (words := getattr(table, setting)) is not None
    }
    if not own and table.switch is None:
        return known
    changes: dict[str, Spelling] = {}
    for setting, words in own.items():
        if not any("{value" in word for word in words):
            raise PresetError(f'[flags] {setting} = {words!r}: one of the words must hold "{{value}}"')
        changes[setting] = Spelling(words=tuple(words), keys=_keys(words, table.keys.get(setting)))
    named = table.algorithm.upper()
    algorithms = dict(known.algorithms)
    if named != ANY_ALGORITHM:
        base = algorithms.get(named) or AlgorithmWords(switch=BY_NAME)
        algorithms[named] = _changed(base, changes, table.switch)
    else:
        if {"budget", "topk"} & set(changes) and "DDTREE" not in algorithms:
            algorithms["DDTREE"] = AlgorithmWords(switch=BY_NAME, block_size=BLOCK, window=WINDOW, tree_width_plus=1)
        for name, words in algorithms.items():
            algorithms[name] = _changed(words, _fitting(words, changes, name), table.switch)
    return Vocabulary(name=f"{known.name} with own words", says=known.says, algorithms=algorithms)


def _changed(base: AlgorithmWords, changes: dict[str, Spelling], switch: list[str] | None) -> AlgorithmWords:
    changed: AlgorithmWords = msgspec.structs.replace(base, **changes)
    return changed if switch is None else msgspec.structs.replace(changed, switch=tuple(switch))


def _fitting(words: AlgorithmWords, changes: dict[str, Spelling], name: str) -> dict[str, Spelling]:
    """The changes that concern an algorithm: those it already had words for; a tree takes all of them."""
    return {
        setting: spelling
        for setting, spelling in changes.items()
        if name == "DDTREE" or (getattr(words, setting) is not None and setting in {"block_size", "window"})
    }


def _keys(words: list[str], named: str | None) -> tuple[Key, ...]:
    plus = 1 if any("{value+1}" in word for word in words) else 0
    if named is not None:
        return (Key(named, plus=plus),)
    keys = []
    for word in words:
        if word.startswith(ENVIRONMENT):
            keys.append(Key(word.partition("=")[0], plus=plus))
        elif word.startswith("--"):
            keys.append(Key(word.partition("=")[0].lstrip("-").replace("-", "_"), plus=plus))
    return tuple(keys)
