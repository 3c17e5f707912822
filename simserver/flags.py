"""The command line: SGLang's flags with SGLang's defaults, a few more for trees, and `--sim-*` for the simulation.

Every key that the real server shows in `/server_info` is accepted as a flag; `resolve` says what is in effect.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simserver.acceptance import Verification
from simserver.faults import Faults, UnknownFaultError
from simserver.profiles import PROFILES
from simserver.settings import Settings, SimSettings, StartError
from simserver.speculation import TREE_SWITCHES, resolve_speculation, verification_of

_ALIASES: dict[str, tuple[str, ...]] = {
    "model_path": ("--model",),
    "tp_size": ("--tensor-parallel-size", "--tp"),
    "pp_size": ("--pipeline-parallel-size", "--pp"),
    "dp_size": ("--data-parallel-size", "--dp"),
    "ep_size": ("--expert-parallel-size", "--ep"),
    "cuda_graph_max_bs_decode": ("--cuda-graph-max-bs",),
    "speculative_draft_model_path": ("--speculative-draft-model",),
    "speculative_draft_window_size": ("--speculative-dflash-draft-window-size",),
}


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
    for key, default in {**_defaults(), **TREE_SWITCHES}.items():
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
    for key, default in TREE_SWITCHES.items():
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
    window = resolve_speculation(args, options, profile, own_environment, faults, notes)
    verification, chain = verification_of(args, options, profile, own_environment)
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
