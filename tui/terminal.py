"""The terminal around the screens: its environment before they start, and its loss while they run.

A lost terminal must leave no process behind: a hang-up ends the screens, and where the hang-up signal is ignored
(nohup, some wrappers) the loss is found by asking the terminal, because Textual's reader would spin on it for ever.
"""

from __future__ import annotations

import os
import sys
import termios
import threading
from collections.abc import MutableMapping

CHECK_S = 5.0
"""Seconds between two looks whether the terminal is still there."""
GRACE_S = 3.0
"""Seconds a process whose terminal is gone has for an orderly end."""

_OVER_SSH = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""No slower rate of Textual's own: states are paced by `Pace`, and a key just after a frame would wait for it."""
_ALWAYS = {"TEXTUAL_ANIMATIONS": "none"}


def prepare_environment(env: MutableMapping[str, str]) -> None:
    """Makes Textual quiet on the wire; what the operator has set stays. To be called before Textual is imported."""
    remote = any(env.get(name) for name in ("SSH_CONNECTION", "SSH_TTY"))
    for name, value in (_OVER_SSH if remote else _ALWAYS).items():
        env.setdefault(name, value)


def terminal_is_gone() -> bool:
    """Tells whether the terminal that the screens are drawn on has vanished."""
    stream = sys.__stdin__
    if stream is None:
        return True
    try:
        termios.tcgetattr(stream.fileno())
    except (termios.error, OSError, ValueError):
        return True
    return False


def end_soon(status: int, grace_s: float = GRACE_S) -> None:
    """Ends this process after a grace, whatever still hangs on the vanished terminal by then."""
    timer = threading.Timer(grace_s, os._exit, (status,))
    timer.daemon = True
    timer.start()


def terminal_size() -> tuple[int, int] | None:
    """Returns the terminal's size as (columns, rows), or `None` where it cannot be told."""
    for stream in (sys.__stdout__, sys.__stdin__):
        try:
            if stream is not None:
                columns, rows = os.get_terminal_size(stream.fileno())
                return columns, rows
        except (OSError, ValueError):
            continue
    return None
