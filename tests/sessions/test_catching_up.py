"""What a killed engine did not come to do after its last event is done by the next one, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
from msgspec.structs import replace

from evals.verdicts import Verdict
from loadgen.figures import MarkKind
from sessions import events as ev
from sessions.engine.conductor import Conductor
from sessions.folder import create, describe_host
from sessions.log import SessionLog
from sessions.logread import read_events
from sessions.recorder import Recorder
from sessions.state import SessionState
from sessions.tables import open_table
from tests.sessions.made import make_session
from tests.sessions.test_neighbours import SWEEP, state_after


async def run_on(state: SessionState, folder: Path) -> SessionState:
    """Runs a conductor that has nothing left to measure, and returns the state that it leaves."""
    nothing_to_do: Any = Mock(spec_set=())
    checking: Any = Mock(spec_set=("suspect",))
    with SessionLog(folder) as log:
        recorder = Recorder(log, state)
        ending, _ = await Conductor(SWEEP, recorder, nothing_to_do, nothing_to_do, checking).run()
    assert ending == "finished"
    checking.suspect.assert_called_once_with()
    return recorder.state


async def test_a_mark_is_given_that_the_last_cell_earned_another_and_only_once(tmp_path: Path) -> None:
    folder = create(tmp_path, "marks", describe_host("marks"))
    state = state_after({"b16": 3.0, "b8": 4.0, "b4-other": 3.5})
    for _ in range(2):
        state = await run_on(replace(state, status="running"), folder)
        figures = state.cells["b16/60x1/t0/r1"].figures
        assert figures is not None and [m.kind for m in figures.marks] == [MarkKind.TAU_DROP]
    marked = [e.cell.preset for e in read_events(folder).events if isinstance(e, ev.CellMarked)]
    assert marked == ["b16"]


async def test_the_cells_of_a_preset_that_was_found_not_in_effect_are_ended(tmp_path: Path) -> None:
    folder = create(tmp_path, "cells", describe_host("cells"))
    state = state_after({"b16": 3.0, "b8": 4.0})
    lost = replace(state.presets["b4-other"], status="not-in-effect", reason="the window is None")
    state = await run_on(replace(state, presets={**state.presets, "b4-other": lost}), folder)
    cell = state.cells["b4-other/60x1/t0/r1"]
    assert (cell.status, cell.reason, cell.figures) == ("not-in-effect", "the window is None", None)


def test_an_answer_judged_again_counts_once(tmp_path: Path) -> None:
    folder = make_session(tmp_path, repeats=1)
    first = next(e for e in read_events(folder).events if isinstance(e, ev.AnswerJudged))
    before = open_table(folder, "evals").frame.collect()
    with SessionLog(folder) as log:
        again = replace(first.judgement, verdict=Verdict.TIMEOUT)
        log.append(ev.AnswerJudged(t=log.now(), judgement=again))
    after = open_table(folder, "evals").frame.collect()
    assert after.height == before.height
    assert after.filter(pl.col("rid") == first.judgement.rid)["verdict"].to_list() == ["timeout"]
