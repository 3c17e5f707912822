"""Nothing lost: killed engines, full disks, cut connections, terminals that stop reading, several at once."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sessions.commands import Command
from sessions.errors import EngineLost
from sessions.folder import control_of, publish_control, socket_path
from sessions.launch import connect, last_words, start_engine
from sessions.log import lock_holder
from sessions.logread import state_of
from sessions.sweep import EvalsTable
from sessions.tables import open_table
from tests.needs import needs
from tests.sessions.cutting import outcome, run_and_cut, sweep_to_be_cut
from tests.sessions.engines import DDTREE, PLAIN, Run, sweep_on_simserver
from tests.sessions.soundness import check_end, check_folder
from tests.sessions.terminals import SPECTOP, Terminal, sshd, wait_for
from tests.torture import torture

CUTS = int(os.environ.get("SPECTOP_CUTS", "5"))


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    begun: list[Run] = []
    yield begun
    for run in begun:
        run.end()


def spectop(*words: str, sessions: Path) -> subprocess.CompletedProcess[str]:
    asked = [SPECTOP, *words, "--sessions-dir", str(sessions)]
    return subprocess.run(asked, check=False, capture_output=True, text=True, timeout=100)


@pytest.mark.timeout(300)
async def test_ten_random_kills_lose_nothing(tmp_path: Path) -> None:
    result = await torture(10, tmp_path, seed=6)
    assert result.kills.total() == 10
    assert result.cells >= 24


async def test_a_server_that_outlived_its_engine_is_ended_and_not_measured(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(sweep_on_simserver(PLAIN, DDTREE, concurrency=(1,), requests_per_slot=8, speed=2.0), tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    state = await run.until(client, lambda s: s.phase == "measuring")
    assert run.engine is not None
    run.engine.kill()
    await run.wait()
    await client.close()
    proof = state.presets["b8t4-wnone"].proof
    assert proof is not None
    orphan = psutil.Process(int(proof.instance["manager pid"]))
    assert "simserver" in orphan.cmdline()
    run.start(resume=True)
    client = await run.client()
    state = await run.until(client, lambda s: s.phase == "measuring")
    again = state.presets["b8t4-wnone"].proof
    assert again is not None and again.instance["manager pid"] != str(orphan.pid)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    check_folder(run.folder, {})
    check_end(run.folder, state)


async def test_an_eval_cut_short_is_run_again_and_counted_once(tmp_path: Path, runs: list[Run]) -> None:
    evals = EvalsTable(coding="core-5", lossless_prompts=2, max_tokens=1500, concurrency=1)
    run = Run(sweep_on_simserver(DDTREE, evals=evals, concurrency=(1,), speed=6.0), tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    state = await run.until(client, lambda s: any(p.judgements for p in s.presets.values()))
    assert run.engine is not None and state.phase == "evaluating"
    run.engine.kill()
    await run.wait()
    await client.close()
    assert not any(p.evals for p in state_of(run.folder).presets.values())
    run.start(resume=True)
    client = await run.client()
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    check_folder(run.folder, {})
    check_end(run.folder, state)
    (preset,) = state.presets.values()
    assert len(preset.judgements) == 5 and preset.evals[0].judged == 5
    assert preset.lossless is not None and preset.lossless.compared == 2
    assert len((run.folder / "evals.jsonl").read_bytes().splitlines()) > 5
    assert open_table(run.folder, "evals").frame.collect().height == 5


@needs("mount")
@pytest.mark.timeout(300)
def test_a_full_disk_pauses_the_sweep_and_costs_nothing(tmp_path: Path) -> None:
    for name in ("disk", "run", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    asked = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*asked, sys.executable, "-m", "tests.sessions.full_disk", str(tmp_path / "disk")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.sshd
@needs("sshd")
@pytest.mark.timeout(600)
def test_a_cut_connection_changes_nothing(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "ssh").mkdir()
    told: list[str] = []
    with sshd(tmp_path / "ssh") as server:
        state = run_and_cut(server, tmp_path, CUTS, {"XDG_STATE_HOME": str(tmp_path / "state")}, say=told.append)
    assert len(told) == CUTS
    sys.stdout.write("\n".join(told) + "\n")
    undisturbed = Run(sweep_to_be_cut(CUTS, speed=20.0), tmp_path / "undisturbed")
    runs.append(undisturbed)
    assert outcome(state) == outcome(asyncio.run(undisturbed.to_end()))
    assert len(outcome(state)) == len(state.cells) >= 12


async def test_a_terminal_that_stops_reading_holds_nothing_up(tmp_path: Path, runs: list[Run]) -> None:
    sweep = sweep_on_simserver(DDTREE, concurrency=(1, 2, 4), requests_per_slot=8, speed=2.0)
    run = Run(sweep, tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    terminal = Terminal([SPECTOP, "attach", str(run.folder)])
    try:
        await run.until(client, lambda s: s.phase in ("warming", "measuring"))
        await asyncio.to_thread(terminal.shows, "b8t4-w2048")
        terminal.stall()
        seen = len(terminal.output)
        state = await run.until(client, lambda _: False)
        await client.close()
        assert await run.wait() == 0
        assert terminal.process.poll() is None  # it hangs in its terminal
        assert len(terminal.output) - seen < 1 << 16  # at most what one read had under way
        check_folder(run.folder, {})
        check_end(run.folder, state)
        lags = [cell.figures.client.engine_lag_p99_s for cell in state.cells.values() if cell.figures is not None]
        assert len(lags) == 3 and all(lag is not None for lag in lags)
        assert any("event loop was at most" in news.words for news in state.news)
        terminal.go_on()
        await asyncio.to_thread(terminal.shows, "3 of 3 cells measured")
    finally:
        terminal.kill()


async def test_a_terminal_that_was_too_slow_to_be_told_the_end_reads_it_in_the_log(
    tmp_path: Path, runs: list[Run]
) -> None:
    run = Run(sweep_on_simserver(DDTREE, concurrency=(1,)), tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert await run.wait() == 0  # nothing is asked for meanwhile, so the engine leaves without waiting for long
    state = await run.until(client, lambda _: False)
    assert state.status == "finished" and [c.status for c in state.cells.values()] == ["measured"]
    await client.close()


async def test_several_terminals_see_the_same_and_scripts_command(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(sweep_on_simserver(DDTREE, concurrency=(1, 2), load_seconds=3.0), tmp_path)
    runs.append(run)
    run.start()
    clients = [await run.client() for _ in range(3)]
    screen = Terminal([SPECTOP, "attach", str(run.folder)])
    try:
        await run.until(clients[0], lambda s: s.phase == "reconfiguring")
        name = run.folder.name
        paused = await asyncio.to_thread(spectop, "ctl", name, "pause", sessions=tmp_path)
        assert (paused.returncode, paused.stdout) == (0, "pausing when the present step is done\n")
        refused = await asyncio.to_thread(spectop, "ctl", name, "apply", "nothing", sessions=tmp_path)
        assert refused.returncode == 1 and 'no preset is called "nothing"' in refused.stderr
        wrong = await asyncio.to_thread(spectop, "ctl", name, "fly", sessions=tmp_path)
        assert wrong.returncode == 2
        second = await asyncio.to_thread(spectop, "run", "--resume", name, "--headless", sessions=tmp_path)
        assert second.returncode == 2 and f"is running (engine pid {run.engine.pid})" in second.stderr  # type: ignore[union-attr]
        await run.until(clients[0], lambda s: s.paused)
        assert (await clients[1].command(Command(name="resume"))).ok
        states = await asyncio.gather(*(run.until(client, lambda _: False) for client in clients))
        assert states[0] == states[1] == states[2] and states[0].status == "finished"
        await asyncio.to_thread(screen.shows, "2 of 2 cells measured")
    finally:
        screen.kill()
        for client in clients:
            await client.close()
    await run.wait()
    gone = await asyncio.to_thread(spectop, "ctl", name, "pause", sessions=tmp_path)
    assert gone.returncode == 1 and f"no engine runs session {name}" in gone.stderr


async def test_a_stopped_session_is_resumed_and_its_old_end_is_not_taken_for_the_new_one(
    tmp_path: Path, runs: list[Run]
) -> None:
    run = Run(sweep_on_simserver(DDTREE, concurrency=(1, 2, 4), requests_per_slot=8, speed=2.0), tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring" and s.done_cells == 1)
    assert (await client.command(Command(name="stop"))).ok
    assert (await run.until(client, lambda _: False)).status == "stopped"
    await client.close()
    assert await run.wait() == 1
    done = await asyncio.to_thread(spectop, "run", "--resume", run.folder.name, "--headless", sessions=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "session finished: 3 of 3 cells measured" in done.stdout
    await asyncio.to_thread(wait_for, lambda: lock_holder(run.folder) is None, "the engine ended")
    check_folder(run.folder, {})
    check_end(run.folder, state_of(run.folder))


async def test_a_second_engine_is_refused_and_the_first_does_not_notice(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(sweep_on_simserver(DDTREE, concurrency=(1, 2), requests_per_slot=8, speed=2.0), tmp_path)
    runs.append(run)
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="pause"))).ok  # so that it is there, however long the second one takes
    await run.until(client, lambda s: s.paused)
    assert run.engine is not None
    second = start_engine(run.folder, resume=True)
    assert await asyncio.to_thread(second.wait, 60) == 2
    said = last_words(run.folder)
    assert f"another engine writes to this session (process {run.engine.pid})" in said
    assert "Traceback" not in said
    assert (await client.command(Command(name="resume"))).ok
    state = await run.until(client, lambda _: False)
    assert [c.status for c in state.cells.values()] == ["measured", "measured"]
    await client.close()
    assert await run.wait() == 0
    check_folder(run.folder, {})
    check_end(run.folder, state)


async def test_the_socket_of_a_dead_engine_is_no_engine_and_is_replaced(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(sweep_on_simserver(DDTREE, concurrency=(1,)), tmp_path)
    runs.append(run)
    path = socket_path(run.folder)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    publish_control(run.folder, path)
    assert path.exists() and control_of(run.folder) == path and lock_holder(run.folder) is None
    with pytest.raises(EngineLost, match="no engine runs session"):
        await connect(run.folder)
    state = await run.to_end()
    assert state.status == "finished"
    assert not path.exists()
    assert state_of(run.folder).cells == state.cells
    wait_for(lambda: lock_holder(run.folder) is None, "the lock is given back")
