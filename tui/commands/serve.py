"""`spectop serve`: the same screens in a browser, read-only, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def serve(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    port: Annotated[int, Parameter(help="Port on the loopback address.")] = 8000,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Serve a session's screens to browsers on this machine; nothing can be commanded from them.

    There is no password, so it listens on 127.0.0.1 alone: reach it from elsewhere through an SSH tunnel. Every tab is
    one more watcher of the running engine (or a replay of a saved session).
    """
    import shlex
    import sys

    from textual_serve.server import Server

    from sessions.folder import find
    from sessions.folder import sessions_dir as directory

    folder = find(directory(sessions_dir), session)
    command = shlex.join([sys.executable, "-m", "tui.served", str(folder)])
    sys.stdout.write(
        f"http://127.0.0.1:{port} shows {folder.name}, read-only; from elsewhere: ssh -L {port}:127.0.0.1:{port} HOST\n"
    )
    sys.stdout.flush()
    Server(command, host="127.0.0.1", port=port, title=f"spectop {folder.name}").serve()
    return 0
