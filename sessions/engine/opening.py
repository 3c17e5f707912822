"""A session's first event: what is planned, against what, and what a restart is expected to take."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from reconfig.loads import LoadMemory
from reconfig.managers.config import ManualConfig
from sessions.engine.measuring import requests_of
from sessions.events import SessionResumed, SessionStarted
from sessions.folder import SessionInfo
from sessions.plan import plan_cells, reference_first
from sessions.state import SessionState
from sessions.sweep import Sweep


def opened(
    folder: Path,
    info: SessionInfo,
    sweep: Sweep,
    state: SessionState,
    memory: LoadMemory,
    *,
    resume: bool,
    simulated: bool,
) -> SessionStarted | SessionResumed:
    """Returns the event that opens a session, or takes it up again.

    Args:
        folder: the session's folder.
        info: its `session.json`.
        sweep: what is asked.
        state: what is known so far; empty for a new session.
        memory: earlier loads on this machine.
        resume: go on with what is missing.
        simulated: the server is the simulated one.
    """
    if resume and state.presets:
        return SessionResumed(engine_pid=os.getpid())
    presets = reference_first(sweep.expanded(), sweep.reference_name())
    matrix = sweep.matrix
    return SessionStarted(
        label=info.label,
        session=folder.name,
        base_url=sweep.server.base_url,
        model=sweep.server.model or "",
        presets=presets,
        cells=plan_cells(presets, matrix.contexts, matrix.concurrency, matrix.temperatures, matrix.repeats),
        reference=sweep.reference_name(),
        repeats=matrix.repeats,
        max_tokens=matrix.max_tokens,
        requests_per_cell={str(c): requests_of(sweep, c) for c in matrix.concurrency},
        coding=sweep.evals.coding,
        lossless_prompts=sweep.evals.lossless_prompts,
        simulated=simulated,
        restarts=not (sweep.as_it_stands or isinstance(sweep.server.manager, ManualConfig)),
        load_s_expected=memory.expected_s(sweep.server.model or "", urlsplit(sweep.server.base_url).hostname or ""),
        engine_pid=os.getpid(),
    )


def is_simulated(sweep: Sweep) -> bool:
    """Whether the server is the simulated one, as far as its start command tells."""
    return "simserver" in getattr(sweep.server.manager, "command", [])
