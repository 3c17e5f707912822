"""A saved (or still running) session, opened to be looked at: its state, what is known of it, what could not be read.

`open_session` is where every later look begins: tables, JSON, comparison, recommendation, report, export.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sessions.errors import NewerSchema, SessionError
from sessions.folder import SessionInfo, folders, printable, read_info
from sessions.logread import read_for_state, state_from
from sessions.points import VOIDING
from sessions.settings import settings_words
from sessions.state import SessionState


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """An opened session.

    Attributes:
        info: what `session.json` says; `None` when it is absent or unreadable (then `skipped` says so).
        skipped: what of the log could not be read, in words.
        live: an engine writes to it just now.
    """

    folder: Path
    info: SessionInfo | None
    state: SessionState
    skipped: tuple[str, ...] = ()
    live: bool = False

    @property
    def name(self) -> str:
        """The folder's name, fit for a screen."""
        return printable(self.folder.name)

    @property
    def status(self) -> str:
        """The session's end, "running", or "interrupted" when its engine is gone without having ended it."""
        return status_words(self.state, live=self.live)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs' names, one each: as noted at the start, else as last read."""
        if self.info is not None and self.info.gpus:
            return self.info.gpus
        return gpu_names(self.state)

    @property
    def driver(self) -> str | None:
        """The GPU driver's version: as noted at the start, else as last read."""
        return (self.info.driver if self.info else None) or (self.state.gpus.driver if self.state.gpus else None)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What one preset of a listed session came to: its best cell that no mark voids."""

    preset: str
    settings: str
    measured: int = 0
    cells: int = 0
    best_tok_s: float | None = None
    acceptance_length: float | None = None
    at: str = ""
    evals: tuple[str, ...] = ()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of sessions.

    Attributes:
        created: UTC, ISO 8601, or empty where unknown.
        cells_done, cells: how many of the planned cells are through.
        base_url: of the server; `end`: how the session ended, in words; `gpus`: their names, one each.
        standings: its presets, in their order.
        problem: why the session cannot be opened, or empty.
    """

    folder: Path
    name: str
    label: str = ""
    created: str = ""
    model: str = ""
    presets: int = 0
    cells_done: int = 0
    cells: int = 0
    status: str = ""
    simulated: bool = False
    base_url: str = ""
    end: str = ""
    gpus: tuple[str, ...] = ()
    standings: tuple[Standing, ...] = ()
    problem: str = ""


def gpu_names(state: SessionState) -> tuple[str, ...]:
    """Returns the names of the GPUs as last read: the server's own where that is known, else all."""
    sample = state.gpus
    if sample is None:
        return ()
    ours = [g for g in sample.gpus if sample.ours is None or g.index in sample.ours]
    return tuple(printable(g.name or "unnamed GPU") for g in ours)


def status_words(state: SessionState, *, live: bool) -> str:
    """Returns a session's status: "finished", "failed", "stopped", "running", "interrupted" or "empty"."""
    if state.status == "running" and not live:
        return "interrupted" if state.session or state.cells else "empty"
    return state.status


def open_session(folder: Path, *, samples: bool = True) -> Session:
    """Opens a session.

    Args:
        folder: its folder (`sessions.folder.find` finds it by name).
        samples: whether the newest GPU and server samples are read as well.

    Raises:
        NewerSchema: a newer version wrote it.
        SessionError: its log is there and cannot be read.
    """
    skipped: list[str] = []
    info: SessionInfo | None = None
    try:
        info = read_info(folder)
    except NewerSchema:
        raise
    except SessionError as error:
        skipped.append(f"{printable(str(error))}; host, GPUs and sweep file are unknown")
    read = read_for_state(folder)
    return Session(
        folder=folder,
        info=info,
        state=state_from(folder, read, samples=samples),
        skipped=(*skipped, *read.skipped),
        live=read.live,
    )


def list_sessions(sessions_dir: Path) -> list[Listed]:
    """Lists all sessions, newest first; one that cannot be opened is listed with the reason."""
    return [_listed(folder) for folder in reversed(folders(sessions_dir))]


def _listed(folder: Path) -> Listed:
    name = printable(folder.name)
    try:
        session = open_session(folder, samples=False)
    except SessionError as error:
        return Listed(folder=folder, name=name, status="unreadable", problem=printable(str(error)))
    info, state = session.info, session.state
    return Listed(
        folder=folder,
        name=name,
        label=printable(info.label if info else state.label),
        created=info.created if info else state.started_at,
        model=printable(state.model),
        presets=len(state.presets),
        cells_done=sum(1 for c in state.cells.values() if c.status == "measured"),
        cells=len(state.cells),
        status=session.status,
        simulated=state.simulated,
        base_url=printable(state.base_url),
        end=printable(state.end_words),
        gpus=session.gpus,
        standings=tuple(_standing(state, name) for name in state.presets),
    )


def _standing(state: SessionState, name: str) -> Standing:
    preset = state.presets[name]
    cells = [c for c in state.cells.values() if c.key.preset == name]
    measured = [(c.key, c.figures) for c in cells if c.status == "measured" and c.figures is not None]
    sound = [(key, f) for key, f in measured if not any(m.kind in VOIDING for m in f.marks)]
    best = max(sound, key=lambda one: one[1].throughput_tok_s or 0.0, default=None)
    return Standing(
        preset=printable(name),
        settings=printable(settings_words(preset.preset)),
        measured=len(measured),
        cells=len(cells),
        best_tok_s=best[1].throughput_tok_s if best else None,
        acceptance_length=best[1].acceptance_length if best else None,
        at=f"{best[0].context} x {best[0].concurrency}" if best else "",
        evals=tuple(printable(f"{e.problem_set}: {e.words}") for e in preset.evals),
    )
