"""`spectop sessions`: the list of sessions, newest first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def sessions(
    *,
    json: Annotated[bool, Parameter(negative="", help="Machine-readable.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """List all sessions, newest first, with how far each came."""
    import sys

    import msgspec

    from sessions.folder import sessions_dir as directory
    from sessions.review import list_sessions
    from sessions.show import print_list

    folder = directory(sessions_dir)
    listed = list_sessions(folder)
    if json:
        tree = {"schema": 1, "sessions": [msgspec.to_builtins(s, enc_hook=str) for s in listed]}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(tree), indent=1).decode() + "\n")
    else:
        print_list(listed, folder, sys.stdout)
    return 0
