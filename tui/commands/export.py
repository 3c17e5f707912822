"""`spectop export`: a session's tables for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def export(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The directory to write into.")],
    format: Annotated[Literal["parquet", "csv", "json"], Parameter(help="Of the tables.")] = "parquet",
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Write cells, requests, GPU and server samples and verdicts as files, and all of it as everything.json."""
    import sys

    from sessions.export import export as exported
    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.review import open_session

    found = exported(open_session(find(directory(sessions_dir), session)), output, format)
    for path in found.files:
        sys.stdout.write(f"{path}\n")
    for words in found.skipped:
        sys.stderr.write(f"spectop export: {words}\n")
    return 0
