"""`spectop demo`: the main job against the simulated server, so that a newcomer sees it within minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def demo(
    *,
    headless: Annotated[bool, Parameter(negative="", help="No screen: one line an event, then the tables.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
    sim_fault: Annotated[
        list[str] | None, Parameter(negative="", help="A fault of the simulated server, NAME or NAME=VALUE.")
    ] = None,
    sim_speed: Annotated[float, Parameter(help="How much faster than real the simulated server is.")] = 1.0,
    sim_load_seconds: Annotated[float, Parameter(help="How long the simulated model loads, in seconds.")] = 3.0,
    sim_seed: Annotated[int, Parameter(help="Makes the simulated server reproducible.")] = 0,
) -> int:
    """Watch a short sweep on the simulated server (SIMULATED: nothing real is measured).

    Two presets, with and without the draft window, two contexts, three concurrencies, the coding eval, one restart for
    each preset.
    """
    from sessions.folder import sessions_dir as directory
    from tui.demo_sweep import demo_sweep
    from tui.session_run import new_session, run_session

    sweep = demo_sweep(faults=tuple(sim_fault or ()), speed=sim_speed, load_seconds=sim_load_seconds, seed=sim_seed)
    return run_session(new_session(sweep, directory(sessions_dir)), headless=headless)
