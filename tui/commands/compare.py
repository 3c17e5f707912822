"""`spectop compare`: two sessions or presets, cell by cell, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def compare(
    a: Annotated[str, Parameter(help="The base: SESSION or SESSION:PRESET.")],
    b: Annotated[str, Parameter(help="What is held against it: SESSION or SESSION:PRESET.")],
    *,
    json: Annotated[bool, Parameter(negative="", help="Machine-readable.")] = False,
    fail_worse: Annotated[
        str | None, Parameter(help="Exit with 1 when B's tok/s is worse by this much in a cell or over all, as 5%.")
    ] = None,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Compare B with A: differing conditions first, then better, worse or the same within noise for each cell."""
    import sys

    import msgspec

    from sessions.compare import compare as compared
    from sessions.compare import open_side, share_of, worst_loss
    from sessions.folder import sessions_dir as directory
    from sessions.verdict_tables import print_comparison

    limit = None if fail_worse is None else share_of(fail_worse)
    where = directory(sessions_dir)
    found = compared(open_side(where, a), open_side(where, b))
    if json:
        tree = {"schema": 1, **msgspec.to_builtins(found)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(tree), indent=1).decode() + "\n")
    else:
        print_comparison(found, sys.stdout)
    if limit is None:
        return 0
    if not found.counts:
        sys.stderr.write("spectop compare: no cell counts on both sides, so --fail-worse can't be answered\n")
        return 1
    return 1 if worst_loss(found) >= limit else 0
