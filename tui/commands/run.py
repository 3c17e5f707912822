"""`spectop run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def run(
    sweep: Annotated[Path | None, Parameter(help="The sweep file.")] = None,
    *,
    headless: Annotated[bool, Parameter(negative="", help="No screen: one line an event, then the tables.")] = False,
    label: Annotated[str | None, Parameter(help="Name of the session instead of the sweep file's.")] = None,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
    resume: Annotated[str | None, Parameter(help="Finish what is missing of this session.")] = None,
    yes: Annotated[bool, Parameter(negative="", help="Resume although the sweep file has changed.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print the plan and how long it will take.")] = False,
) -> int:
    """Run a sweep: switch presets, prove each, measure every cell.

    Args:
        sweep: the sweep file; may be left out with --resume.
        headless: no screen, one line an event, then the tables.
        label: name of the session instead of the sweep file's.
        sessions_dir: where sessions are kept.
        resume: finish what is missing of this session.
        yes: resume although the sweep file has changed.
        dry_run: print the plan in order, and how long it will take.
    """
    from msgspec.structs import replace

    from sessions.errors import SweepFileError
    from sessions.folder import sessions_dir as directory
    from sessions.sweep import load_sweep
    from tui.session_run import new_session, run_session

    if resume is not None:
        from tui.resuming import resume_session

        return resume_session(resume, sweep, directory(sessions_dir), headless=headless, confirmed=yes)
    if sweep is None:
        raise SweepFileError("spectop run", ["no sweep file was named; `spectop init` writes one"])
    asked, text = load_sweep(sweep)
    if label is not None:
        asked = replace(asked, label=label)
    if dry_run:
        from tui.dry_run import print_plan

        return print_plan(asked, directory(sessions_dir))
    folder = new_session(asked, directory(sessions_dir), path=sweep, text=text)
    return run_session(folder, headless=headless)
