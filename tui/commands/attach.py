"""`spectop attach`: come back to a running session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def attach(
    session: Annotated[str, Parameter(help="A folder, a name, a unique beginning, or last.")] = "last",
    *,
    headless: Annotated[bool, Parameter(negative="", help="No screen: one line an event.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Come back to a running session; any number of terminals may watch one."""
    import asyncio

    from sessions.folder import find
    from sessions.folder import sessions_dir as directory
    from sessions.launch import connect
    from tui.plain import has_screen
    from tui.session_run import watch_headless, watch_on_screen

    folder = find(directory(sessions_dir), session)

    async def path() -> Path:
        client = await connect(folder)
        await client.close()
        return client.path

    if has_screen(headless):
        return watch_on_screen(folder, asyncio.run(path()))
    return asyncio.run(watch_headless(folder))
