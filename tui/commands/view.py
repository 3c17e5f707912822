"""`spectop view`: a saved (or running) session in the live screens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def view(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    play: Annotated[bool, Parameter(negative="", help="Play it from its start instead of showing its end.")] = False,
    speed: Annotated[float, Parameter(help="Seconds of the session a second: 1, 10, 100.")] = 1.0,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Open a session in the screens, fed from its log: paused at any moment, by cell, at 1x, 10x or 100x."""
    import sys

    from sessions.folder import find, printable
    from sessions.folder import sessions_dir as directory
    from sessions.logread import check_readable
    from tui.plain import has_screen

    folder = find(directory(sessions_dir), session)
    check_readable(folder)
    if not has_screen(headless=False):
        from sessions.review import open_session
        from sessions.show import print_session

        sys.stderr.write("spectop view: this is no terminal that can show the screens; the tables instead\n")
        print_session(open_session(folder), sys.stdout)
        return 0

    from sessions.replay import ReplaySource
    from tui.app import run_app

    source = ReplaySource(folder, speed=speed, start="start" if play else "end")
    run_app(source, folder, title=f"spectop {printable(folder.name)}", read_only=True)
    return 0
