"""`spectop recommend`: which preset to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def recommend(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    by: Annotated[
        Literal["throughput", "per-user"], Parameter(help="All users together, or the speed of one stream.")
    ] = "throughput",
    weight: Annotated[
        tuple[str, ...], Parameter(negative="", help="How much a cell counts, as 4096x32=3; the others count 1.")
    ] = (),
    json: Annotated[bool, Parameter(negative="", help="Machine-readable.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Say which preset is best for each cell, which ones cannot be told apart from it, and one over all."""
    import sys

    import msgspec

    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.recommend import recommend as recommended
    from sessions.recommend import weights_of
    from sessions.review import open_session
    from sessions.verdict_tables import print_recommendation

    opened = open_session(find(directory(sessions_dir), session))
    found = recommended(opened.state, by=by, weights=weights_of(weight))
    if json:
        tree = {"schema": 1, "session": opened.name, **msgspec.to_builtins(found)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(tree), indent=1).decode() + "\n")
    else:
        print_recommendation(found, sys.stdout)
    return 0 if found.overall is not None else 1
