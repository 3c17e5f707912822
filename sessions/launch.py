"""Starting an engine in a process of its own, and finding the one that runs a session.

The engine is its own session leader: it outlives the terminal, the connection and the process that started it. What
it says outside the log (a crash) goes to `engine.log` in the session's folder.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from sessions.client import EngineClient
from sessions.errors import EngineLost, SpectopError
from sessions.folder import control_of
from sessions.log import lock_holder

ENGINE_LOG = "engine.log"
START_LIMIT_S = 60.0


def start_engine(folder: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
    """Starts the engine of a session and returns at once.

    Args:
        folder: the session's folder, with its `session.json`.
        resume: go on with what is missing.
    """
    arguments = [sys.executable, "-m", "sessions.engine", str(folder)]
    with (folder / ENGINE_LOG).open("ab") as log:
        return subprocess.Popen(
            arguments + (["--resume"] if resume else []),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


async def connect(folder: Path, engine: subprocess.Popen[bytes] | None = None) -> EngineClient:
    """Connects to the engine of a session, waiting while it starts.

    Args:
        folder: the session's folder.
        engine: the process just started; `None` for a session that should be running already.

    Raises:
        EngineLost: no engine runs, or it ended while starting; the words hold its last lines.
    """
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        path = control_of(folder)
        if path is not None and path.exists() and lock_holder(folder) is not None:
            client = EngineClient(path, folder=folder)
            try:
                await client.connect()
            except EngineLost:
                await client.close()
            else:
                return client
        if engine is None:
            raise EngineLost(f"no engine runs session {folder.name}; open it with `spectop view {folder.name}`")
        if (status := engine.poll()) is not None:
            raise SpectopError(f"the engine ended with status {status} while starting:\n{last_words(folder)}")
        if time.monotonic() > deadline:
            raise EngineLost(f"the engine did not answer within {START_LIMIT_S:.0f} s; see {folder / ENGINE_LOG}")
        await asyncio.sleep(0.05)


def last_words(folder: Path, lines: int = 12) -> str:
    """Returns the last lines of what an engine said outside the log."""
    try:
        text = (folder / ENGINE_LOG).read_text(errors="replace")
    except OSError:
        return "(it said nothing)"
    return "\n".join(text.strip().splitlines()[-lines:]) or "(it said nothing)"
