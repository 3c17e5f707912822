"""Copies what is on a screen: to the terminal's clipboard where it listens, and always to a file that is named.

The terminal is asked with one OSC 52 sequence and does not answer, so the file is what can be relied on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from sessions.errors import SpectopError


def captures_dir(env: Mapping[str, str]) -> Path:
    """Returns the folder for copies and pictures; made when something is written."""
    state = env.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(env.get("SPECTOP_CAPTURES_DIR") or Path(state) / "spectop" / "captures")


def write_capture(text: str, suffix: str, *, now: datetime, env: Mapping[str, str] | None = None) -> Path:
    """Writes text to a new file, UTF-8 whatever the locale, and returns its path.

    Raises:
        SpectopError: it cannot be written.
    """
    folder = captures_dir(env if env is not None else os.environ)
    name = f"{now:%Y%m%dT%H%M%S}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for attempt in range(1000):
            path = folder / f"{name}{f'-{attempt}' if attempt else ''}.{suffix}"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise SpectopError(f"{folder}: {error.strerror or error}; nothing was written") from error
    raise SpectopError(f"{folder}: no free name for {name}.{suffix}")
