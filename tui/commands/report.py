"""`spectop report`: a session for somebody who was not there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def report(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="FILE.html (pictures) or FILE.md (tables).")],
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Write a session's report: one self-contained HTML file that needs no network, or Markdown."""
    import sys

    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.report import write_report
    from sessions.review import open_session

    write_report(open_session(find(directory(sessions_dir), session)), output)
    sys.stdout.write(f"{output}\n")
    return 0
