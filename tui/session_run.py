"""From a sweep to a watched session: makes the folder, starts the engine, shows it, tells how it ended.

`run`, `demo`, `bench` and `attach` differ in the sweep they build and share everything from here on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from sessions.client import EngineClient
from sessions.errors import EngineLost
from sessions.folder import create, describe_host
from sessions.launch import connect, last_words, start_engine
from sessions.log import lock_holder
from sessions.state import SessionState
from sessions.sweep import Sweep, sweep_to_json
from tui.plain import EXIT_INTERRUPTED, exit_status, has_screen, name_folder, name_of, watch_plainly

ENGINE_ENDS_S = 60.0
"""Seconds that an engine may take after its session's end, for the last tables on disk."""


def new_session(sweep: Sweep, sessions_dir: Path, *, path: Path | None = None, text: str | None = None) -> Path:
    """Makes the folder of a new session and returns it.

    Args:
        sweep: what will be run.
        sessions_dir: where all sessions are.
        path: the sweep file, where there is one; `text`: what stood in it.
        text: see `path`.
    """
    info = describe_host(
        sweep.label, sweep=sweep_to_json(sweep), sweep_path=str(path) if path else None, sweep_text=text
    )
    return create(sessions_dir, sweep.label, info)


def run_session(folder: Path, *, headless: bool, resume: bool = False) -> int:
    """Starts a session's engine, shows it until it ends (or the operator leaves), and returns the exit status."""
    engine = start_engine(folder, resume=resume)
    if has_screen(headless):
        return watch_on_screen(folder, asyncio.run(_ready(folder, engine)))
    return asyncio.run(watch_headless(folder, engine))


def watch_on_screen(folder: Path, path: Path) -> int:
    """Shows a running session on the screen; when the operator leaves, says how to come back."""
    from tui.app import run_app

    client = EngineClient(path, folder=folder)
    state = run_app(client, folder)
    if state is None or state.status == "running":
        if lock_holder(folder) is None:
            return _lost(folder, state)
        sys.stdout.write(f"the sweep goes on; come back with:\n  spectop attach {name_of(folder)}\n")
        return 0
    _tables(state, folder)
    return exit_status(state)


def _lost(folder: Path, state: SessionState | None) -> int:
    """Tells that the engine is gone without an end, and how to go on; returns the exit status."""
    cells = state.cells.values() if state is not None else ()
    kept = sum(1 for c in cells if c.status == "measured")
    sys.stderr.write(
        f"the engine is gone; {kept} of {len(cells)} cells are kept. Its last words:\n{last_words(folder)}\n"
        f"go on with:\n  spectop run --resume {name_of(folder)}\n"
    )
    return 1


async def _ready(folder: Path, engine: subprocess.Popen[bytes]) -> Path:
    client = await connect(folder, engine)
    await client.close()
    return client.path


async def watch_headless(folder: Path, engine: subprocess.Popen[bytes] | None = None) -> int:
    """Prints a session line by line until it ends, then its tables; returns the exit status.

    Args:
        folder: the session's folder.
        engine: its process where it was just started here, `None` where it runs already.
    """
    client = await connect(folder, engine)
    sys.stdout.write(f"session {folder}\n")
    try:
        state, interrupted = await watch_plainly(client, sys.stdout, stops=engine is not None)
    except EngineLost:
        return _lost(folder, client.state)
    finally:
        await client.close()
    if state.status == "running":
        does = "is being stopped; see its end" if interrupted else "goes on; come back"
        sys.stdout.write(f"the sweep {does} with:\n  spectop attach {name_of(folder)}\n")
        return EXIT_INTERRUPTED if interrupted else 0
    _tables(state, folder)
    if engine is not None:  # so that whatever a script does next with the session finds nobody at work in it
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(engine.wait, ENGINE_ENDS_S)
    return exit_status(state, interrupted)


def _tables(state: SessionState, folder: Path) -> None:
    from sessions.show import print_tables

    print_tables(state, sys.stdout)
    name_folder(folder, sys.stdout)
