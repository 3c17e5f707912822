"""Which speculation a command line means: one chain, four ways to ask for a tree, and what the server then shows."""

from __future__ import annotations

from typing import Any

from simserver.acceptance import Verification
from simserver.faults import Faults
from simserver.profiles import Profile
from simserver.settings import StartError

_ALGORITHMS = (
    "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "DDTREE",
)  # fmt: skip
TREE_SWITCHES: dict[str, Any] = {
    "speculative_dflash_enable_ddtree": False,
    "speculative_dflash_tree_verify": False,
    "speculative_dflash_tree_width": None,
}
_TREE_DEFAULT_BUDGET, _TREE_DEFAULT_TOPK = 16, 4


def resolve_speculation(
    args: dict[str, Any],
    options: dict[str, Any],
    profile: Profile,
    environment: dict[str, str],
    faults: Faults,
    notes: list[str],
) -> int | None:
    """Puts the resolved speculative settings into `args`; returns the draft window in effect."""
    name = args["speculative_algorithm"]
    if name is None:
        return None
    algorithm = str(name).upper()
    if algorithm in ("NONE", ""):
        args["speculative_algorithm"] = None
        return None
    if algorithm not in _ALGORITHMS:
        raise StartError(f"Unknown speculative algorithm name: {name}")
    args["speculative_algorithm"] = algorithm
    if algorithm in ("DFLASH", "DDTREE"):
        args["speculative_draft_model_path"] = args["speculative_draft_model_path"] or f"{args['model_path']}-DFlash"
        window = args["speculative_draft_window_size"]
        if window is not None and (not isinstance(window, int) or window <= 0):
            raise StartError(f"--speculative-draft-window-size must be positive, got {window}.")
        asked, block = options["speculative_num_draft_tokens"], options["speculative_dflash_block_size"]
        tree = algorithm == "DDTREE" or any(args.get(key) for key in TREE_SWITCHES)
        if not tree and asked is not None and block is not None and asked != block:
            raise StartError(
                "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ."
            )
        _resolve_tree(args, options, profile, environment, notes) if tree else _resolve_chain(args, options, profile)
        if window is not None and window < (args["speculative_num_draft_tokens"] or 0):
            raise StartError(
                f"--speculative-draft-window-size ({window}) must be >= --speculative-num-draft-tokens "
                f"({args['speculative_num_draft_tokens']})."
            )
    elif algorithm == "NGRAM":
        args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or 12
        args["speculative_num_steps"], args["speculative_eagle_topk"] = 0, 10
        args["disable_overlap_schedule"] = True
    else:
        steps = args["speculative_num_steps"] or 3
        args["speculative_num_steps"] = steps
        args["speculative_eagle_topk"] = args["speculative_eagle_topk"] or 1
        args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or steps + 1
    if "ignore-window" in faults:
        args["speculative_draft_window_size"] = None
    effective: int | None = args["speculative_draft_window_size"]
    return effective


def _resolve_chain(args: dict[str, Any], options: dict[str, Any], profile: Profile) -> None:
    args["speculative_num_draft_tokens"] = (
        options["speculative_num_draft_tokens"] or options["speculative_dflash_block_size"] or profile.block_size
    )
    args["speculative_num_steps"], args["speculative_eagle_topk"] = 1, 1


def _resolve_tree(
    args: dict[str, Any],
    options: dict[str, Any],
    profile: Profile,
    environment: dict[str, str],
    notes: list[str],
) -> None:
    args["disable_overlap_schedule"] = True
    args["speculative_num_steps"] = 1
    asked, block = options["speculative_num_draft_tokens"], options["speculative_dflash_block_size"]
    if args["speculative_algorithm"] == "DDTREE":
        if args["page_size"] != 1:
            raise StartError("DDTREE currently supports only page_size == 1")
        if args["speculative_use_rejection_sampling"]:
            raise StartError("DDTREE does not support --speculative-use-rejection-sampling")
        budget = args["speculative_ddtree_budget"]
        if budget is None:
            # An earlier build had no budget of its own: the draft tokens were the tree's nodes.
            budget = asked or _TREE_DEFAULT_BUDGET
            args["speculative_num_draft_tokens"] = asked or budget + 1
        else:
            block = asked or block
            args["speculative_num_draft_tokens"] = int(budget) + 1
        topk = args["speculative_ddtree_topk"] or environment.get("SGLANG_DDTREE_MAX_TOPK") or _TREE_DEFAULT_TOPK
        if int(budget) < 1 or int(topk) < 1:
            raise StartError(f"DDTREE needs a budget and a topk of at least 1, got {budget} and {topk}")
        args["speculative_ddtree_budget"], args["speculative_ddtree_topk"] = int(budget), int(topk)
        args["speculative_eagle_topk"] = 1
        notes.append("Overlap scheduler is disabled when using DDTREE speculative decoding.")
    else:
        notes.append("Overlap scheduler is disabled when using DFLASH speculative decoding with tree verification.")
        args["speculative_eagle_topk"] = options["speculative_eagle_topk"] or 1
        args["speculative_num_draft_tokens"] = asked or profile.block_size
    args["speculative_dflash_block_size"] = block or profile.block_size


def verification_of(
    args: dict[str, Any], options: dict[str, Any], profile: Profile, environment: dict[str, str]
) -> tuple[Verification, str | None]:
    """Returns what a verify step looks at, and the quality by name where it is not the content's own."""
    algorithm = args["speculative_algorithm"]
    if algorithm is None:
        return Verification("none"), None
    draft_tokens = int(args["speculative_num_draft_tokens"])
    if algorithm == "NGRAM":
        return Verification("chain", draft_tokens - 1), "ngram"
    if algorithm not in ("DFLASH", "DDTREE"):
        return Verification("chain", draft_tokens - 1), "eagle"
    depth = (args["speculative_dflash_block_size"] or draft_tokens) - 1
    if algorithm == "DDTREE":
        return Verification("tree", depth, args["speculative_ddtree_budget"], args["speculative_ddtree_topk"]), None
    if args.get("speculative_dflash_enable_ddtree"):
        budget = draft_tokens - 1
        return Verification("tree", profile.block_size - 1, budget, min(budget, profile.vocabulary)), None
    if args.get("speculative_dflash_tree_verify"):
        return Verification("tree", depth, draft_tokens, max(4, int(args["speculative_eagle_topk"]))), None
    if (args.get("speculative_dflash_tree_width") or 1) > 1:
        nodes = int(environment.get("SGLANG_DFLASH_MAX_NUM_NODES", 0)) or draft_tokens
        return Verification("tree", depth, nodes, int(args["speculative_dflash_tree_width"])), None
    return Verification("chain", draft_tokens - 1), None
