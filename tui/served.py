"""One browser tab of `spectop serve`: read-only screens over a running or a saved session (`-m tui.served FOLDER`)."""

from __future__ import annotations

import sys
from pathlib import Path

from sessions.client import EngineClient
from sessions.commands import Source
from sessions.folder import control_of
from sessions.log import lock_holder
from sessions.replay import ReplaySource
from tui.app import run_app


def source_of(folder: Path) -> Source:
    """Returns what feeds the screens of a session: its engine where one runs, else its log."""
    path = control_of(folder)
    if path is not None and lock_holder(folder) is not None:
        return EngineClient(path, folder=folder)
    return ReplaySource(folder)


def main() -> int:
    """Shows the session named on the command line; returns the exit status."""
    folder = Path(sys.argv[1])
    run_app(source_of(folder), folder, read_only=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
