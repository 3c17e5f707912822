"""`spectop ctl`: command a running session from a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Wish = Literal[
    "pause", "resume", "skip", "repeat", "apply", "stop", "stop-after-cell", "note", "skip-preset", "reorder", "status"
]


def ctl(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")],
    wish: Annotated[Wish, Parameter(help="What to do.")],
    argument: Annotated[str, Parameter(help="A preset (apply, skip-preset), a cell, the text of a note.")] = "",
    *,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Command a running session; prints the engine's reply and returns 0 when it obeys, 1 when not."""
    import asyncio
    import sys

    from sessions.commands import Command, Reply
    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.launch import connect

    folder = find(directory(sessions_dir), session)
    if wish in ("note", "apply", "skip-preset", "reorder") and not argument.strip():
        sys.stderr.write(f"spectop ctl {session} {wish}: what? It takes one more word (or a quoted text)\n")
        return 2
    if wish == "status":
        from sessions.logread import state_of

        state = state_of(folder)
        measured = sum(1 for c in state.cells.values() if c.status == "measured")
        where = " ".join(filter(None, (state.phase, state.current_preset, state.current_cell)))
        sys.stdout.write(f"{state.status}: {where}; {measured} of {len(state.cells)} cells measured\n")
        return 0 if state.status in ("running", "finished") else 1

    async def ask() -> Reply:
        client = await connect(folder)
        try:
            return await client.command(Command(name=wish, argument=argument))
        finally:
            await client.close()

    reply = asyncio.run(ask())
    (sys.stdout if reply.ok else sys.stderr).write(f"{reply.words}\n")
    return 0 if reply.ok else 1
