"""Watching a session without a screen: one line an event, then the tables. For logs, pipes and terminals that can't.

The choice between this and the screens is made in `has_screen`, and only there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from sessions.client import ANSWER_LIMIT_S, EngineClient
from sessions.commands import Command
from sessions.folder import sessions_dir
from sessions.state import News, SessionState
from tui.words import plain_text

EXIT_FAILED = 1
EXIT_UNPREPARED = 3
EXIT_INTERRUPTED = 130


def has_screen(headless: bool) -> bool:
    """Whether the full screen can be used: a terminal on both sides that can place its cursor, and nobody said no."""
    return (
        not headless and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    )


async def watch_plainly(client: EngineClient, out: TextIO, *, stops: bool) -> tuple[SessionState, bool]:
    """Prints a line for each thing that happens, until the session ends.

    SIGHUP leaves the engine running: the connection dropped, the sweep goes on.

    Args:
        client: the engine.
        out: where lines go.
        stops: Ctrl-C (or SIGTERM) stops the session and waits for its orderly end, and a second one leaves as soon as
            the engine has been told; without it (who only attached) the first one leaves, and the sweep goes on.

    Returns:
        The last state, and whether the operator interrupted it.

    Raises:
        sessions.errors.EngineLost: the engine went away.
    """
    interrupted = asyncio.Event()
    asking: set[asyncio.Task[object]] = set()
    loop = asyncio.get_running_loop()

    leaving = asyncio.ensure_future(asyncio.Event().wait())

    def stop() -> None:
        if not stops or interrupted.is_set():
            leaving.cancel()
            return
        interrupted.set()
        out.write("stopping; everything measured so far is kept\n")
        out.flush()
        asking.add(asyncio.ensure_future(client.command(Command(name="stop"))))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    printed = _Printed(out)
    following = asyncio.ensure_future(_follow(client, printed))
    try:
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        following.cancel()
        leaving.cancel()
        await asyncio.gather(following, leaving, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        if asking:
            await asyncio.wait(asking, timeout=ANSWER_LIMIT_S)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
    return client.state, interrupted.is_set()


async def _follow(client: EngineClient, printed: _Printed) -> None:
    async for state in client.states():
        printed.show(state)


class _Printed:
    """Remembers what was printed, so that each line of news is printed once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: News | None = None

    def show(self, state: SessionState) -> None:
        news = state.news
        if self._last is not None and self._last in news:
            news = news[len(news) - 1 - news[::-1].index(self._last) + 1 :]
        for line in news:
            sign = {"info": " ", "good": "+", "warning": "!", "error": "x"}[line.level]
            simulated = " SIMULATED" if state.simulated else ""
            self._out.write(f"{line.t:9.1f} s {sign}{simulated} {plain_text(line.words)}\n")
        if news:
            self._last = news[-1]
            self._out.flush()


def exit_status(state: SessionState, interrupted: bool = False) -> int:
    """Returns the exit status that a session's end means.

    0 only when every cell has figures; 3 when no preset could be put in effect at all; 130 when interrupted.
    """
    if interrupted:
        return EXIT_INTERRUPTED
    cells = state.cells.values()
    if cells and all(c.status == "measured" for c in cells) and state.status == "finished":
        return 0
    tried = [p for p in state.presets.values() if p.status not in ("waiting", "skipped")]
    if tried and all(p.status == "not-in-effect" for p in tried):
        return EXIT_UNPREPARED
    return EXIT_FAILED


def name_of(folder: Path) -> str:
    """Returns what a command must be given to find a session: its name, or its folder where it is kept elsewhere."""
    return folder.name if folder.parent.resolve() == sessions_dir().resolve() else str(folder)


def name_folder(folder: Path, out: TextIO) -> None:
    """Tells where the session is kept, and how to see it again."""
    out.write(f"session {folder}\n  spectop show {name_of(folder)}\n  spectop view {name_of(folder)}\n")
