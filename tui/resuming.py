"""`spectop run --resume`: finishes what is missing of a session, and only that."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from msgspec.structs import replace

from sessions.errors import SessionError
from sessions.folder import find, read_info
from sessions.log import lock_holder
from sessions.sweep import load_sweep, sweep_from_json
from tui.session_run import run_session


def resume_session(name: str, sweep: Path | None, sessions_dir: Path, *, headless: bool, confirmed: bool) -> int:
    """Resumes a session and shows it to its end.

    Args:
        name: of the session.
        sweep: the sweep file, to be compared with the one the session was begun with.
        sessions_dir: where sessions are.
        headless: no screen.
        confirmed: go on although the sweep file has changed; the session keeps the plan it was begun with.

    Raises:
        SessionError: it runs already, or the sweep file has changed and that was not confirmed.
    """
    folder = find(sessions_dir, name)
    if (pid := lock_holder(folder)) is not None:
        raise SessionError(f"session {folder.name} is running (engine pid {pid}); spectop attach {folder.name}")
    info = read_info(folder)
    path = sweep or (Path(info.sweep_path) if info.sweep_path else None)
    if path is not None and path.exists():
        now, text = load_sweep(path)
        begun = sweep_from_json(bytes(info.sweep))
        if replace(now, label=begun.label) != begun:
            difference = _difference(info.sweep_text or "", text, str(path))
            if not confirmed:
                raise SessionError(
                    f"{path} has changed since the session began:\n{difference}\n"
                    "The session goes on with the plan it was begun with; confirm that with --yes."
                )
            sys.stdout.write(f"{path} has changed; going on with the plan the session was begun with:\n{difference}\n")
    return run_session(folder, headless=headless, resume=True)


def _difference(before: str, now: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), f"{name} (as begun)", f"{name} (now)", lineterm="", n=1
    )
    return "\n".join(lines)
