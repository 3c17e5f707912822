from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessions import replay as replaying
from sessions.commands import Command
from sessions.events import NoteAdded, SessionResumed
from sessions.log import SessionLog
from sessions.logread import state_of
from sessions.replay import Replay, ReplaySource
from sessions.state import SessionState
from tests.sessions.made import make_session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_session(tmp_path, progress=8)


def test_the_end_is_the_state(folder: Path) -> None:
    with Replay(folder) as replay:
        assert replay.seek(replay.length_s) == state_of(folder)
        assert replay.at_end


@pytest.mark.parametrize("jump", [0, 10**9])
def test_any_moment_is_the_same_from_both_sides(folder: Path, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    monkeypatch.setattr(replaying, "_JUMP", jump)
    with Replay(folder) as forward, Replay(folder) as back:
        back.seek(back.length_s)
        moments = [0.0, 0.5, 13.0, 14.2, 60.0, 61.5, 180.0]
        states = [forward.seek(t) for t in moments]
        for t, state in zip(reversed(moments), reversed(states), strict=True):
            assert back.seek(t) == state
        assert states[0].label == "made"
        assert states[3].current_cell == "none/1024x1/t0/r1"


def test_cells_are_found(folder: Path) -> None:
    with Replay(folder) as replay:
        assert len(replay.cells) == 36
        assert replay.seek(replay.cells[20].t).current_cell == replay.cells[20].cell.text


async def first_states(source: ReplaySource, count: int) -> list[SessionState]:
    found = []
    async with asyncio.timeout(20):
        async for state in source.states():
            found.append(state)
            if len(found) == count:
                break
    return found


async def test_it_plays(folder: Path) -> None:
    source = ReplaySource(folder, speed=100.0)
    found = await first_states(source, 4)
    assert [s.t for s in found] == sorted(s.t for s in found)
    assert found[-1].t > found[0].t
    assert not source.live
    await source.close()


async def test_it_starts_at_the_end_paused(folder: Path) -> None:
    source = ReplaySource(folder, start="end")
    (state,) = await first_states(source, 1)
    assert state == state_of(folder)
    assert source.paused
    assert source.position_s == source.length_s
    await source.close()


async def test_seeking_while_paused_shows_the_moment(folder: Path) -> None:
    source = ReplaySource(folder, start="end")
    states = source.states()
    await anext(states)
    source.seek(14.0)
    assert (await anext(states)).current_cell == "none/1024x1/t0/r1"
    begun = source.step_cell(1)
    assert begun is not None
    assert (await anext(states)).current_cell == begun.cell.text
    assert source.step_cell(-1) == source.cells[0]
    assert source.step_cell(-1) is None
    source.seek(1e9)
    assert source.step_cell(1) is None
    await source.close()
    assert [s async for s in states] == []


async def test_a_growing_session_is_followed(folder: Path) -> None:
    source = ReplaySource(folder, start="end")
    source.play(100.0)
    states = source.states()
    await anext(states)
    with SessionLog(folder) as log:
        assert source.growing
        log.append(SessionResumed(t=log.now(), at="now"))
        log.append(NoteAdded(t=log.now(), text="more"))
        async with asyncio.timeout(10):
            async for state in states:
                if state.notes:
                    break
    assert state.notes[-1].words == "more"
    await source.close()


async def test_it_takes_no_commands(folder: Path) -> None:
    source = ReplaySource(folder)
    reply = await source.command(Command(name="pause"))
    assert not reply.ok
    assert folder.name in reply.words
    await source.close()
