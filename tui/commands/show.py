"""`spectop show`: a session's tables, or all of it as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def show(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    json: Annotated[bool, Parameter(negative="", help="Machine-readable, with every figure.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Print a session's presets, cells and evals; nothing of it is changed."""
    import sys

    import msgspec

    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.review import open_session
    from sessions.show import print_session, session_json

    opened = open_session(find(directory(sessions_dir), session))
    if json:
        tree = session_json(opened.state, opened.folder, info=opened.info, skipped=opened.skipped, live=opened.live)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(tree), indent=1).decode() + "\n")
    else:
        print_session(opened, sys.stdout)
    return 0
