"""The command line: SGLang's flags with SGLang's defaults, a few more for trees, and `--sim-*` for the simulation.

Every key that the real server shows in `/server_info` is accepted as a flag; `resolve` says what is in effect.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simserver.acceptance import Verification
from simserver.faults import Faults, UnknownFaultError
from simserver.profiles import PROFILES, Profile

_ALGORITHMS = (
    "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "DDTREE",
)  # fmt: skip
_ALIASES: dict[str, tuple[str, ...]] = {
    "model_path": ("--model",),
    "tp_size": ("--tensor-parallel-size", "--tp"),
    "pp_size": ("--pipeline-parallel-size", "--pp"),
    "dp_size": ("--data-parallel-size", "--dp"),
    "ep_size": ("--expert-parallel-size", "--ep"),
    "speculative_draft_model_path": ("--speculative-draft-model",),
    "speculative_draft_window_size": ("--speculative-dflash-draft-window-size",),
}
_TREE_SWITCHES: dict[str, Any] = {
    "speculative_dflash_enable_ddtree": False,
    "speculative_dflash_tree_verify": False,
    "speculative_dflash_tree_width": None,
}
_TREE_DEFAULT_BUDGET, _TREE_DEFAULT_TOPK = 16, 4


class StartError(Exception):
    """The server refuses to start with these flags, as the real one does with a ValueError."""


@dataclass(frozen=True)
class SimSettings:
    """The simulation's own settings.

    Attributes:
        speed: simulated seconds a real second.
        load_seconds, warmup_seconds: real seconds from start to bound port, and from there to ready.
        drain_poll_seconds: real seconds between looks at the remaining requests after SIGTERM.
        eval_pass_rate: probability that a known coding problem is answered rightly.
        history: finished requests that the truth keeps.
    """

    seed: int
    speed: float
    load_seconds: float
    warmup_seconds: float
    drain_poll_seconds: float
    eval_pass_rate: float
    history: int


@dataclass(frozen=True)
class Settings:
    """Everything the server runs on, resolved.

    Attributes:
        args: SGLang's resolved arguments in its own order, as `/server_info` shows them.
        launch_command: the arguments as typed.
        topk_in_effect, window_in_effect: what the simulation does, faults included.
    """

    args: dict[str, Any]
    launch_command: str
    profile: Profile
    verification: Verification
    chain_quality: str | None
    window: int | None
    sim: SimSettings
    faults: Faults
    environment: dict[str, str]
    notes: tuple[str, ...]

    @property
    def speculative(self) -> bool:
        """Whether anything is drafted at all."""
        return self.verification.kind != "none"

    @property
    def draft_tokens(self) -> int:
        """The draft tokens a step that the server shows, 0 without speculation."""
        return int(self.args["speculative_num_draft_tokens"] or 0)


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _defaults() -> dict[str, Any]:
    text = (Path(__file__).parent / "server_args.json").read_text("utf-8")
    known: dict[str, Any] = json.loads(text)
    return known


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser; unknown flags end with status 2, as argparse does in the real server."""
    parser = argparse.ArgumentParser(
        prog="launch_server.py",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="A simulated SGLang server with DFlash and DDTree.",
    )
    for key, default in {**_defaults(), **_TREE_SWITCHES}.items():
        if key.startswith("_"):
            continue
        names = ("--" + key.replace("_", "-"), *_ALIASES.get(key, ()))
        if isinstance(default, bool):
            parser.add_argument(*names, dest=key, action="store_true", help=argparse.SUPPRESS)
        elif isinstance(default, list | dict):
            parser.add_argument(*names, dest=key, nargs="*", default=default, help=argparse.SUPPRESS)
        else:
            kind: Any = str if isinstance(default, str) or "path" in key or "name" in key else _value
            parser.add_argument(*names, dest=key, type=kind, default=default, help=argparse.SUPPRESS)
    sim = parser.add_argument_group("simulation")
    sim.add_argument("--sim-profile", choices=sorted(PROFILES), default="kimi-k26", help="model and machine")
    sim.add_argument("--sim-seed", type=int, default=0, help="makes text, acceptance and faults reproducible")
    sim.add_argument("--sim-speed", type=_positive, default=1.0, help="simulated seconds a real second")
    sim.add_argument("--sim-load-seconds", type=_seconds, default=3.0, help="real seconds until the port is bound")
    sim.add_argument("--sim-warmup-seconds", type=_seconds, default=None, help="real seconds from there to ready")
    sim.add_argument(
        "--sim-drain-poll-seconds", type=_seconds, default=None, help="real seconds between looks while draining"
    )
    sim.add_argument("--sim-eval-pass-rate", type=_share, default=1.0, help="share of coding problems solved")
    sim.add_argument("--sim-history", type=int, default=5000, help="finished requests that /sim/truth keeps")
    sim.add_argument("--sim-fault", action="append", default=[], metavar="NAME[=VALUE]", help="see docs/simserver.md")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, found {text!r}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds of at least 0, found {text!r}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, found {text!r}")
    return value


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Settings:
    """Parses and resolves a command line.

    Args:
        argv: arguments without the program's name.
        environment: variables of the process, the real ones by default.

    Raises:
        SystemExit: unknown or malformed flags (status 2).
        StartError: the flags do not go together.
    """
    parser = build_parser()
    options = vars(parser.parse_args(list(argv)))
    simulated = {key: options.pop(key) for key in list(options) if key.startswith("sim_")}
    faults = Faults()
    for spec in simulated["sim_fault"]:
        try:
            faults.set(spec)
        except UnknownFaultError as error:
            parser.error(f"argument --sim-fault: {error}")
    known = _defaults()
    args = {key: options.get(key, default) for key, default in known.items()}
    for key, default in _TREE_SWITCHES.items():
        if options[key] != default:
            args[key] = options[key]
    return _resolve(args, options, list(argv), simulated, faults, dict(environment or os.environ))


def _resolve(
    args: dict[str, Any],
    options: dict[str, Any],
    argv: list[str],
    simulated: dict[str, Any],
    faults: Faults,
    environment: dict[str, str],
) -> Settings:
    profile = PROFILES[simulated["sim_profile"]]
    speed = simulated["sim_speed"]
    own_environment = {key: value for key, value in environment.items() if key.startswith(("SGLANG_", "SGL_"))}
    if args["model_path"] is None:
        raise StartError("the following arguments are required: --model-path/--model")
    notes: list[str] = []
    window = _resolve_speculation(args, options, profile, own_environment, faults, notes)
    verification, chain = _verification(args, options, profile, own_environment)
    if verification.kind == "tree" and faults.number("ignore-topk") is not None:
        topk = max(1, int(faults.number("ignore-topk") or 1))
        verification = Verification("tree", verification.depth, verification.budget, topk)
        for key in ("speculative_ddtree_topk", "speculative_dflash_tree_width"):
            if args.get(key) is not None:
                args[key] = topk
        own_environment.pop("SGLANG_DDTREE_MAX_TOPK", None)
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = faults.word("wrong-model-name") or args["served_model_name"] or args["model_path"]
    args["context_length"] = args["context_length"] or profile.context_length
    args["random_seed"] = (
        args["random_seed"] if args["random_seed"] is not None else random.SystemRandom().getrandbits(30)
    )
    args["mem_fraction_static"] = args["mem_fraction_static"] or 0.88
    if args["max_running_requests"] is None and verification.kind != "none":
        args["max_running_requests"] = 48
        notes.append(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    quick = min(1.0, 1.0 / speed)
    warmup, poll = simulated["sim_warmup_seconds"], simulated["sim_drain_poll_seconds"]
    sim = SimSettings(
        seed=simulated["sim_seed"],
        speed=speed,
        load_seconds=simulated["sim_load_seconds"],
        warmup_seconds=0.8 * quick if warmup is None else warmup,
        drain_poll_seconds=5.0 * quick if poll is None else poll,
        eval_pass_rate=simulated["sim_eval_pass_rate"],
        history=simulated["sim_history"],
    )
    return Settings(
        args=args,
        launch_command=" ".join(argv),
        profile=profile,
        verification=verification,
        chain_quality=chain,
        window=window,
        sim=sim,
        faults=faults,
        environment=own_environment,
        notes=tuple(notes),
    )


def _resolve_speculation(
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
        tree = algorithm == "DDTREE" or any(args.get(key) for key in _TREE_SWITCHES)
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
        args["speculative_eagle_topk"] = options["speculative_eagle_topk"] or 1
        args["speculative_num_draft_tokens"] = asked or profile.block_size
    args["speculative_dflash_block_size"] = block or profile.block_size


def _verification(
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
