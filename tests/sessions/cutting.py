"""A sweep run over ssh whose connection is cut again and again: with a terminal and without, from either side."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from sessions.folder import folders
from sessions.log import lock_holder
from sessions.logread import state_of
from sessions.state import SessionState
from sessions.sweep import Sweep
from tests.sessions.engines import DDTREE, sweep_on_simserver
from tests.sessions.soundness import check_end, check_folder, must
from tests.sessions.terminals import SPECTOP, Sshd, Terminal, wait_for

CELLS_KEPT_BACK = 3
LABEL = "cut-off"


def sweep_to_be_cut(cuts: int, speed: float = 1.0) -> Sweep:
    """Twelve cells of about a second, and more where there are many cuts."""
    repeats = max(3, cuts // 2)
    sweep = sweep_on_simserver(
        DDTREE, contexts=(60, 90), concurrency=(1, 2), requests_per_slot=5, repeats=repeats, speed=speed, max_tokens=64
    )
    return replace(sweep, label=LABEL)


def sweep_file(sweep: Sweep, path: Path) -> Path:
    """Writes a sweep as the file that an operator would have written."""
    manager, matrix = sweep.server.manager, sweep.matrix
    path.write_text(
        f"label = {json.dumps(sweep.label)}\nleave = {json.dumps(sweep.leave)}\n"
        f"[server]\nbase_url = {json.dumps(sweep.server.base_url)}\nmodel = {json.dumps(sweep.server.model)}\n"
        f'dialect = "sglang"\n[server.manager]\nkind = "process"\ncommand = {json.dumps(manager.command)}\n'
        f'env = {{ SGL_FORCE_SHUTDOWN = "1" }}\n[flags]\nvocabulary = "ddtree"\n'
        f'[[presets]]\nalgorithm = "DDTREE"\nbudget_topk = [[8, 4]]\nwindow = [2048]\n'
        f"[matrix]\ncontexts = {list(matrix.contexts)}\nconcurrency = {list(matrix.concurrency)}\n"
        f"max_tokens = {matrix.max_tokens}\nrequests_per_slot = {matrix.requests_per_slot}\n"
        f'repeats = {matrix.repeats}\nwarmup = {matrix.warmup}\n[telemetry]\ngpus = "simulated"\n'
    )
    return path


def outcome(state: SessionState) -> dict[str, tuple[object, ...]]:
    """What must not depend on who watched: each cell's outcome, attempts, requests and tokens."""
    return {
        name: (cell.status, cell.attempt, cell.figures.requests, cell.figures.output_tokens)
        for name, cell in state.cells.items()
        if cell.figures is not None
    }


def run_and_cut(
    server: Sshd, place: Path, cuts: int, env: dict[str, str], seed: int = 0, say: Callable[[str], object] = print
) -> SessionState:
    """Runs a sweep through ssh, cuts the connection so many times, comes back each time, and waits for the end.

    Args:
        server: the sshd to come through.
        place: a folder for the sweep file and the sessions.
        cuts: how many.
        env: environment of what is run over there.
        seed: of the moments.
        say: is told of each cut.

    Returns:
        The session's last state.
    """
    moments, sessions = random.Random(seed), place / "sessions"
    sweep = sweep_to_be_cut(cuts)
    there = ["env", *(f"{name}={value}" for name, value in env.items()), SPECTOP]
    where = ["--sessions-dir", str(sessions)]
    paused = False
    for number in range(cuts):
        pty = number % 2 == 0
        words = ["attach", "last"] if number else ["run", str(sweep_file(sweep, place / "sweep.toml"))]
        terminal = Terminal([*server.client("-tt" if pty else "-T"), *there, *words, *where], pty=pty)
        try:
            terminal.shows(LABEL)
            [folder] = folders(sessions)
            wait_for(lambda folder=folder: state_of(folder).phase != "idle", "the sweep has begun")
            time.sleep(moments.uniform(0.0, 0.5))
            must(terminal.process.poll() is None, f"the terminal ended by itself: {terminal.output[-500:]!r}")
            must(lock_holder(folder) is not None, "the engine is gone")
            if number % 4 < 2:
                server.cut()
                terminal.process.wait(timeout=20)
        finally:
            terminal.kill()
        state = state_of(folder)
        say(f"cut {number + 1}: {words[0]}, {'terminal' if pty else 'no terminal'}, {state.done_cells} cells done")
        if not paused and state.done_cells >= len(state.cells) - CELLS_KEPT_BACK:
            _ctl(server, there, where, "pause")
            paused = True
    if paused:
        _ctl(server, there, where, "resume")
    wait_for(lambda: lock_holder(folder) is None, "the engine ends with its sweep", 120.0)
    state = state_of(folder)
    check_folder(folder, {})
    check_end(folder, state)
    return state


def _ctl(server: Sshd, there: list[str], where: list[str], wish: str) -> None:
    terminal = Terminal([*server.client("-T"), *there, "ctl", "last", wish, *where], pty=False)
    status = terminal.process.wait(timeout=60)
    said = terminal.output
    terminal.kill()
    must(status == 0, f"ctl {wish}: status {status}: {said!r}")
