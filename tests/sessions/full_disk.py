"""A sweep whose disk fills up, for a namespace of its own: `unshare --user --map-root-user --mount python -m ... ROOT`.

Mounts a small disk on ROOT, runs a sweep with its session there, fills the disk whenever the sweep reaches one of the
given moments, waits until the sweep says that it pauses, and makes room again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sessions.client import EngineClient
from sessions.logread import state_of
from sessions.state import SessionState
from tests.sessions.engines import DDTREE, PLAIN, Run, sweep_on_simserver
from tests.sessions.soundness import check_end, check_folder, measured, must

SIZE = 8 << 20
BLOCK = 4096


def fill(ballast: Path) -> None:
    """Writes until nothing more fits."""
    with ballast.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * BLOCK)
            except OSError:
                return


def says(state: SessionState, words: str) -> bool:
    """Whether the newest news hold some words."""
    return any(words in news.words for news in state.news[-8:])


async def fill_when(run: Run, client: EngineClient, ballast: Path, moment: Callable[[SessionState], bool]) -> None:
    """Fills the disk at a moment, waits for the pause, makes room, waits until the sweep goes on."""
    state = await run.until(client, moment)
    known = measured(state)
    fill(ballast)
    state = await run.until(client, lambda s: s.paused)
    must(state.status == "running" and says(state, "pauses until there is room"), f"no message: {state.news[-8:]}")
    must("the disk is full" in state.phase_words, f"it says {state.phase_words!r}")
    check_folder(run.folder, {name: known[name] for name in known if name in measured(state_of(run.folder))})
    await asyncio.to_thread(ballast.unlink)
    state = await run.until(client, lambda s: not s.paused)
    must(known.keys() <= measured(state).keys(), "a finished cell is lost")
    must(any("there is room on the disk again" in news.words for news in state.news), "nothing says that it goes on")


async def resume_on_a_full_disk(run: Run, ballast: Path) -> None:
    """A session without a byte left is taken up, waits, and ends when there is room."""
    for table in run.folder.glob("*.parquet"):
        table.unlink()
    fill(ballast)
    run.start(resume=True)
    client = await run.client()
    await run.until(client, lambda s: s.paused)
    await asyncio.to_thread(ballast.unlink)
    state = await run.until(client, lambda _: False)
    await client.close()
    must(await run.wait() == 0, (run.folder / "engine.log").read_text())
    check_folder(run.folder, measured(state))
    check_end(run.folder, state_of(run.folder))


async def sweep_on(root: Path) -> None:
    """Runs it all; raises what does not hold."""
    sweep = sweep_on_simserver(PLAIN, DDTREE, concurrency=(1, 2, 3), requests_per_slot=8, speed=4.0, repeats=2)
    run = Run(sweep, root)
    ballast = root / "ballast"
    try:
        run.start()
        client = await run.client()
        await fill_when(run, client, ballast, lambda s: s.phase == "measuring" and s.done_cells >= 1)
        await fill_when(run, client, ballast, lambda s: s.phase == "reconfiguring" and s.done_cells >= 6)
        await fill_when(run, client, ballast, lambda s: s.phase == "measuring" and s.done_cells >= 8)
        state = await run.until(client, lambda _: False)
        await client.close()
        must(await run.wait() == 0, (run.folder / "engine.log").read_text())
        check_folder(run.folder, measured(state))
        check_end(run.folder, state_of(run.folder))
        await resume_on_a_full_disk(run, ballast)
    finally:
        run.end()


def main(root: Path) -> None:
    """Mounts the disk and runs the sweep on it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(root)], check=True)
    asyncio.run(sweep_on(root))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
