"""`spectop check`: every precondition of a sweep in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def check(
    sweep: Annotated[Path, Parameter(help="The sweep file.")],
    *,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Check every precondition of a sweep before hours are spent; nothing is restarted.

    Exit status 0 when nothing is wrong (warnings are allowed), 1 otherwise, 2 for a faulty sweep file.
    """
    import sys

    from sessions.folder import sessions_dir as directory
    from sessions.sweep import load_sweep
    from tui.checked import all_checks, checks_words

    asked, _ = load_sweep(sweep)
    checks = all_checks(asked, directory(sessions_dir))
    sys.stdout.write(checks_words(checks))
    return 1 if any(found.state == "wrong" for found in checks) else 0
