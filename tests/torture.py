"""Random `kill -9` of the engine in sweeps on the simulated server: `python -m tests.torture [KILLS] [SEED]`.

Each engine is killed at a random moment while it starts, switches and proves, measures, or writes its tables. After
each kill the session opens as it is and is resumed, until all kills are spent; then it runs to its end. What must hold
is in `tests/sessions/soundness.py`; besides, every finished cell that a terminal was told of is in the log, and when a
session is over nothing of it runs any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from reconfig.processes import LocalProcesses, ProcessSeen
from reconfig.waiting import wait_until
from sessions.errors import SpectopError
from sessions.logread import state_of
from sessions.state import CellState, SessionState
from sessions.sweep import EvalsTable, Sweep
from tests.sessions.engines import DDTREE, PLAIN, Run, sweep_on_simserver
from tests.sessions.soundness import check_end, check_folder, measured, must


@dataclass(frozen=True)
class Aim:
    """Where a kill is aimed at.

    Attributes:
        share: of all kills.
        within_s: it comes within so many seconds,
        after: counted from when the engine tells such a state; from the engine's start where this is `None`.
    """

    share: float
    within_s: float
    after: Callable[[SessionState], bool] | None


AIMS = (
    Aim(0.15, 1.0, None),
    Aim(0.20, 2.0, lambda state: state.phase == "reconfiguring"),
    Aim(0.10, 0.5, lambda state: state.phase in ("checking", "evaluating")),
    Aim(0.45, 1.0, lambda state: state.phase in ("warming", "measuring")),
    Aim(0.10, 0.3, lambda state: all(cell.status == "measured" for cell in state.cells.values())),
)
LIFE_LIMIT_S = 60.0


@dataclass
class Tortured:
    """What a run came to.

    Attributes:
        kills: by the phase that the engine was in.
        sessions: sessions begun, each run to its end.
        cells: finished cells, all sessions together.
        again: cells that were begun more than once, because a kill hit them.
    """

    kills: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    cells: int = 0
    again: int = 0

    def words(self) -> str:
        """The result as a sentence."""
        phases = ", ".join(f"{count} {phase}" for phase, count in self.kills.most_common())
        return (
            f"{self.kills.total()} kills ({phases}) in {self.sessions} sessions: all {self.cells} cells measured, none "
            f"lost, changed, doubled or measured unproven; {self.again} hit in the middle and measured anew"
        )


def small_sweep() -> Sweep:
    """Two presets with a lossless check and twelve tiny cells each."""
    return sweep_on_simserver(
        PLAIN,
        DDTREE,
        contexts=(60, 90, 120),
        concurrency=(1, 2),
        max_tokens=24,
        requests_per_slot=2,
        repeats=2,
        speed=40.0,
        load_seconds=0.1,
        evals=EvalsTable(lossless_prompts=8),
    )


async def torture(kills: int, sessions: Path, seed: int, say: Callable[[str], object] = lambda _: None) -> Tortured:
    """Kills so many engines, one at a time.

    Args:
        kills: how many.
        sessions: folder for the sessions.
        seed: of the moments.
        say: is told of each kill.

    Raises:
        Unsound: something was lost, doubled, changed or measured unproven; or an engine hung.
    """
    moments, result = random.Random(seed), Tortured()
    while result.kills.total() < kills:
        run = Run(small_sweep(), sessions)
        result.sessions += 1
        try:
            await _one_session(run, kills, moments, result, say)
        finally:
            run.end()
    return result


async def _one_session(
    run: Run, kills: int, moments: random.Random, result: Tortured, say: Callable[[str], object]
) -> None:
    known: dict[str, CellState] = {}
    resume = False
    while True:
        aim = None
        if result.kills.total() < kills:
            aim = moments.choices(AIMS, [aim.share for aim in AIMS])[0]
        seen = await _life(run, resume, aim, moments)
        resume = True
        killed = run.engine is not None and run.engine.returncode == -9
        known = check_folder(run.folder, known | measured(seen))
        if not killed:
            break
        state = state_of(run.folder)
        phase = (state.phase if state.status == "running" else "ended") if seen.cells else "starting"
        result.kills[phase] += 1
        say(f"kill {result.kills.total()}: {phase}, {len(known)} of {len(state.cells)} cells finished")
    state = state_of(run.folder)
    check_end(run.folder, state)
    result.cells += len(state.cells)
    result.again += sum(cell.attempt > 1 for cell in state.cells.values())
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if _is_of(run, p.info["cmdline"] or [])]
    must(not left, f"{run.folder.name} is over, and its processes {left} run")


async def _life(run: Run, resume: bool, aim: Aim | None, moments: random.Random) -> SessionState:
    """Starts an engine, watches it as a terminal would, kills it as aimed; returns the last state it told."""
    run.start(resume=resume)
    assert run.engine is not None
    seen, there = [SessionState()], asyncio.Event()
    if aim is not None and aim.after is None:
        there.set()
    watching = asyncio.create_task(_watch(run, seen, aim, there))
    aimed = asyncio.create_task(there.wait())
    ended = asyncio.create_task(asyncio.to_thread(run.engine.wait))
    try:
        await asyncio.wait({ended, aimed}, timeout=LIFE_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        hangs = not ended.done() and not aimed.done()
        if aim is not None and not hangs:
            await asyncio.wait({ended}, timeout=moments.uniform(0.0, aim.within_s))
        workers = [] if ended.done() else _workers(run.engine.pid)
        if not ended.done():
            run.engine.kill()
        await ended
        await _are_gone(workers)
        must(not hangs, f"{run.folder.name}: the engine hangs; it said {[news.words for news in seen[0].news[-5:]]}")
        await watching
    finally:
        watching.cancel()
        aimed.cancel()
    return seen[0]


def _workers(engine: int) -> list[ProcessSeen]:
    """The engine's load processes, which must end with it; the server is to outlive it."""
    table = LocalProcesses()
    children = [child for child in table.family(engine) if child.pid != engine]
    return [child for child in children if "loadgen.worker" in table.command(child.pid)]


async def _are_gone(processes: list[ProcessSeen]) -> None:
    gone = await wait_until(lambda: not any(map(LocalProcesses().alive, processes)), limit_s=20.0, every_s=0.05)
    must(gone, f"outlived their engine: {processes}")


async def _watch(run: Run, seen: list[SessionState], aim: Aim | None, there: asyncio.Event) -> None:
    with contextlib.suppress(SpectopError):
        client = await run.client()
        try:
            async for state in client.states():
                seen[0] = state
                if aim is not None and aim.after is not None and aim.after(state):
                    there.set()
        finally:
            await client.close()


def _is_of(run: Run, command: list[str]) -> bool:
    port = run.sweep.server.base_url.rsplit(":", 1)[1]
    return str(run.folder) in command or ("simserver" in command and port in command)


def main() -> int:
    """Kills as many engines as the command line says, 100 by default."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    began = time.monotonic()
    sys.stdout.write(f"seed {seed}\n")

    def say(words: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {words}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        result = asyncio.run(torture(kills, Path(folder), seed, say))
    sys.stdout.write(f"{result.words()}; {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
