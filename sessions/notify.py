"""Tells the operator's own program when a sweep ends, stops, or a preset fails, whatever that program does.

The program is an argument list; it gets one JSON object on its standard input. One that hangs is ended after its
time limit, one that fails is mentioned, and the sweep never waits for either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from sessions.events import AnyEvent, PresetProved, SessionEnded
from sessions.state import SessionState

MOST_AT_ONCE = 4
"""Programs running at the same time; further notices are dropped and said so."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is told, as JSON.

    Attributes:
        event: what happened.
        words: the same in a sentence.
        cells_measured, cells: how far the sweep came.
    """

    event: Literal["finished", "failed", "stopped", "preset-failed"]
    words: str
    label: str
    session: str
    folder: str
    at: str
    preset: str | None = None
    cells_measured: int = 0
    cells: int = 0
    simulated: bool = False


def notice_of(event: AnyEvent, state: SessionState, folder: str) -> Notice | None:
    """Returns what is told of an event, or `None` for the many that nobody is woken for.

    Args:
        event: what happened.
        state: the session after it.
        folder: the session's folder.
    """
    what: Literal["finished", "failed", "stopped", "preset-failed"]
    preset: str | None = None
    if isinstance(event, SessionEnded):
        what, words = event.status, f"{state.label} {event.status}: {event.words}".rstrip(": ")
    elif isinstance(event, PresetProved) and not event.proof.in_effect:
        what, preset = "preset-failed", event.proof.preset
        words = f"{state.label}: {preset} could not be put in effect: {event.proof.failure or 'not in effect'}"
    else:
        return None
    return Notice(
        event=what,
        words=words,
        label=state.label,
        session=state.session,
        folder=folder,
        at=event.at,
        preset=preset,
        cells_measured=sum(1 for c in state.cells.values() if c.status == "measured"),
        cells=len(state.cells),
        simulated=state.simulated,
    )


class Notifier:
    """Runs the operator's program for each notice, beside everything else. For one event loop.

    Args:
        command: the program and its arguments; nothing is ever run when it is empty.
        timeout_s: seconds after which the program is ended.
        trouble: told in words when the program fails, hangs or cannot be started.
    """

    def __init__(self, command: Sequence[str], timeout_s: float, trouble: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._trouble = trouble
        self._running: set[asyncio.Task[None]] = set()

    def tell(self, notice: Notice) -> None:
        """Starts the program for a notice and returns at once."""
        if not self._command:
            return
        if len(self._running) >= MOST_AT_ONCE:
            self._trouble(f"the notifier is too slow: not told of {notice.words!r}")
            return
        task = asyncio.create_task(self._run(notice))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Waits for the programs still running; none runs longer than its time limit."""
        if self._running:
            await asyncio.gather(*self._running)

    async def _run(self, notice: Notice) -> None:
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._trouble(f"the notifier {name} cannot be started: {error}")
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await process.communicate(msgspec.json.encode(notice) + b"\n")
            if process.returncode:
                self._trouble(f"the notifier {name} ended with status {process.returncode}")
        except TimeoutError:
            self._trouble(f"the notifier {name} did not end within {self._timeout_s:g} s and was ended")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def terminal_notice(words: str) -> str:
    """Returns what makes an attached terminal ring and show a notification: bell and OSC 9, safe for any text."""
    plain = "".join(c for c in words if c.isprintable())[:200]
    return f"\a\x1b]9;{plain}\x07"
