"""The engine end to end: real process, real socket, real workers, a simulated server whose truth is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from evals.verdicts import Verdict
from loadgen.records import Outcome, RequestRecord
from reconfig.presets import Preset
from sessions.commands import Command
from sessions.logread import state_of
from sessions.state import SessionState
from sessions.sweep import EvalsTable, ServerTable, Sweep
from tests.sessions.engines import DDTREE, PLAIN, Run, sweep_on_simserver

Start = Callable[[Sweep], Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def started(sweep: Sweep) -> Run:
        runs.append(Run(sweep, tmp_path / "sessions"))
        return runs[-1]

    yield started
    for run in runs:
        run.end()


def records(run: Run) -> list[RequestRecord]:
    lines = (run.folder / "requests.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=RequestRecord) for line in lines]


def statuses(state: SessionState) -> list[str]:
    return [c.status for c in state.cells.values()]


async def test_figures_equal_the_servers_own_truth(start: Start):
    run = start(sweep_on_simserver(DDTREE, speed=1.0, leave="as-is"))
    state = await run.to_end()
    assert state.status == "finished" and statuses(state) == ["measured", "measured"]
    truth = {r["rid"]: r for r in run.get("/sim/truth")["requests"]}
    for cell in state.cells.values():
        own = [r for r in records(run) if r.cell == cell.run and r.purpose == "cell"]
        told = [truth[r.rid] for r in own]
        assert len(own) == 3 * cell.key.concurrency
        assert cell.figures is not None and cell.figures.acceptance_length is not None
        steps = sum(t["verify_steps"] for t in told)
        assert cell.figures.acceptance_length == pytest.approx(
            (sum(t["correct_drafts"] for t in told) + steps) / steps, abs=5e-4
        )
        assert cell.figures.output_tokens == sum(t["completion_tokens"] for t in told)
        for record, t in zip(own, told, strict=True):
            assert record.n_out == t["completion_tokens"] and record.verify_steps == t["verify_steps"]
            assert record.ttft is not None and t["first_token_ns"] - t["arrival_ns"] <= (record.ttft + 1e-3) * 1e9


async def test_an_ignored_window_ends_that_preset_alone(start: Start):
    run = start(sweep_on_simserver(PLAIN, DDTREE, faults=("ignore-window",), concurrency=(1,)))
    state = await run.to_end()
    by_preset = {c.key.preset: c for c in state.cells.values()}
    assert by_preset["b8t4-wnone"].status == "measured"
    lost = by_preset["b8t4-w2048"]
    assert lost.status == "not-in-effect" and lost.figures is None
    assert state.presets["b8t4-w2048"].status == "not-in-effect"
    assert "window" in lost.reason and "2048" in lost.reason and "None" in lost.reason


async def test_nothing_comes_from_an_old_process_that_goes_on_answering(start: Start):
    run = start(sweep_on_simserver(PLAIN, DDTREE, faults=("slow-old-process=5",), concurrency=(1,)))
    state = await run.to_end()
    assert statuses(state) == ["measured", "measured"]
    proofs = [p.proof for p in state.presets.values()]
    pids = [p.instance["manager pid"] for p in proofs if p is not None]
    assert len(set(pids)) == 2
    assert [p.instance["server version"] for p in proofs if p is not None] == ["0.5.23"] * 2
    assert "draft_window_size=2048, compact_cache=True" in {s.found for s in proofs[1].settings}  # type: ignore[union-attr]


async def test_the_coding_eval_and_the_lossless_check_run_as_phases_of_their_own(start: Start):
    evals = EvalsTable(coding="core-5", lossless_prompts=3, max_tokens=1500)
    run = start(sweep_on_simserver(PLAIN, DDTREE, evals=evals, concurrency=(1,), speed=20.0))
    state = await run.to_end()
    for name in ("b8t4-wnone", "b8t4-w2048"):
        preset = state.presets[name]
        assert [j.verdict for j in preset.judgements] == [Verdict.PASS] * 5
        assert preset.evals[0].passed == 5
        assert preset.lossless is not None and preset.lossless.identical_share == 1.0
        assert preset.lossless.reference == "b8t4-wnone"
    assert {r.purpose for r in records(run)} == {"probe", "cell", "warmup", "eval", "lossless"} - {"probe"}
    assert (run.folder / "texts" / "texts.jsonl").stat().st_size > 0


async def test_a_killed_engine_loses_no_finished_cell_and_resume_measures_the_rest(start: Start):
    run = start(sweep_on_simserver(DDTREE, speed=2.0, concurrency=(1, 2, 4), requests_per_slot=4))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.done_cells >= 1 and s.phase == "measuring")
    assert run.engine is not None
    os.kill(run.engine.pid, signal.SIGKILL)
    await run.wait()
    await client.close()
    broken = state_of(run.folder)
    finished = {name for name, c in broken.cells.items() if c.status == "measured"}
    assert 1 <= len(finished) < 3
    before = {name: broken.cells[name].figures for name in finished}

    run.start(resume=True)
    client = await run.client()
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    assert statuses(state) == ["measured"] * 3
    assert {name: state.cells[name].figures for name in finished} == before
    assert state_of(run.folder).cells == state.cells


async def test_another_session_finds_nothing_of_the_first_one_in_the_servers_cache(start: Start):
    sweep = sweep_on_simserver(DDTREE, contexts=(400,), concurrency=(2,), leave="as-is")
    sweep = replace(sweep, load=replace(sweep.load, flush_cache=False))
    first = start(sweep)
    assert statuses(await first.to_end()) == ["measured"]
    unmanaged = replace(sweep.server, manager=ServerTable(base_url=sweep.server.base_url).manager)
    second = start(replace(sweep, server=unmanaged, as_it_stands=True))
    assert statuses(await second.to_end()) == ["measured"]
    assert {r.purpose for r in records(second)} == {"warmup", "cell"}
    for run in (first, second):
        for record in records(run):
            # The chat template's own tokens are all that two prompts begin with alike.
            assert record.cached_tokens is not None and record.cached_tokens < 20 < 390 < (record.prompt_tokens or 0)


async def test_commands_pause_skip_repeat_note_and_stop(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1, 2, 4, 6), requests_per_slot=8, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="note", argument="changed the fan curve"))).ok
    assert (await client.command(Command(name="pause"))).ok
    state = await run.until(client, lambda s: s.paused)
    assert state.phase == "paused" and statuses(state).count("measured") == 1
    assert not (await client.command(Command(name="apply", argument="nothing"))).ok
    assert (await client.command(Command(name="repeat"))).ok
    assert (await client.command(Command(name="resume"))).ok
    state = await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="skip"))).ok
    state = await run.until(client, lambda s: "skipped" in statuses(s))
    assert (await client.command(Command(name="stop"))).ok
    state = await run.until(client, lambda _: False)
    assert state.status == "stopped" and state.notes[0].words == "changed the fan curve"
    assert not (await client.command(Command(name="pause"))).ok
    await client.close()
    await run.wait()


async def test_apply_switches_at_once_and_the_left_preset_is_finished_later(start: Start):
    run = start(sweep_on_simserver(PLAIN, DDTREE, concurrency=(4,), requests_per_slot=12, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    reply = await client.command(Command(name="apply", argument="b8t4-w2048"))
    assert reply.ok and "restarts" in reply.words
    state = await run.until(client, lambda s: s.current_preset == "b8t4-w2048" and s.phase == "measuring")
    assert state.cells["b8t4-wnone/60x4/t0/r1"].status == "waiting"
    state = await run.until(client, lambda _: False)
    assert state.status == "finished" and statuses(state) == ["measured", "measured"]
    await client.close()
    await run.wait()


async def test_a_preset_is_added_on_the_fly(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1,), requests_per_slot=6, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase in ("warming", "measuring"))
    bad = Preset(name="x", algorithm="DDTREE", budget=4, topk=2, window=None, block_size=None)
    assert (await client.command(Command(name="add-preset", preset=bad))).ok
    assert not (await client.command(Command(name="add-preset", preset=bad))).ok
    state = await run.until(client, lambda _: False)
    assert state.presets["x"].status == "done" and statuses(state) == ["measured", "measured"]
    await client.close()
    await run.wait()


async def test_a_cell_that_the_server_cannot_hold_is_skipped_and_said(start: Start):
    run = start(sweep_on_simserver(DDTREE, contexts=(60, 900), concurrency=(1,), more=("--context-length", "920")))
    state = await run.to_end()
    fits, too_long = state.cells.values()
    assert fits.status == "measured"
    assert (too_long.status, too_long.failures) == ("skipped", ())
    assert too_long.reason == "900 prompt and 48 output tokens are more than the server's 920 a request"


async def test_a_cell_with_failures_is_measured_once_more_and_then_kept_with_its_mark(start: Start):
    run = start(sweep_on_simserver(DDTREE, faults=("stream-error=0.4",), concurrency=(4,), requests_per_slot=6))
    state = await run.to_end()
    cell = next(iter(state.cells.values()))
    assert cell.attempt == 2
    if cell.status == "measured":
        assert cell.figures is not None and "errors" in {m.kind.value for m in cell.figures.marks}
    assert {r.outcome for r in records(run)} == {Outcome.OK, Outcome.STREAM_ERROR}
    assert {r.cell for r in records(run) if r.purpose == "cell"} == {cell.key.text, f"{cell.key.text}#2"}


async def test_a_server_that_dies_in_mid_cell_costs_that_attempt_and_is_proven_again(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(2,), requests_per_slot=20, speed=2.0))
    run.start()
    client = await run.client()
    state = await run.until(client, lambda s: s.phase == "measuring")
    proof = state.presets["b8t4-w2048"].proof
    assert proof is not None
    os.kill(int(proof.instance["manager pid"]), signal.SIGKILL)
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    (cell,) = state.cells.values()
    assert cell.status == "measured" and cell.attempt == 2
    assert any("not known to be in effect any more" in n.words for n in state.news)
    again = state.presets["b8t4-w2048"].proof
    assert again is not None and again.instance["manager pid"] != proof.instance["manager pid"]


async def test_another_instance_between_two_cells_is_noticed_before_the_next_is_measured(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1, 2), requests_per_slot=6, speed=2.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert (await client.command(Command(name="pause"))).ok
    state = await run.until(client, lambda s: s.paused)
    proof = state.presets["b8t4-w2048"].proof
    assert proof is not None
    os.kill(int(proof.instance["manager pid"]), signal.SIGKILL)
    assert (await client.command(Command(name="resume"))).ok
    state = await run.until(client, lambda _: False)
    await client.close()
    await run.wait()
    assert statuses(state) == ["measured", "measured"]
    assert [c.attempt for c in state.cells.values()] == [1, 2]


async def test_sighup_concerns_the_engine_no_more_than_a_closed_laptop(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(1,)))
    run.start()
    client = await run.client()
    assert run.engine is not None
    os.kill(run.engine.pid, signal.SIGHUP)
    state = await run.until(client, lambda _: False)
    assert state.status == "finished"
    await client.close()
    await run.wait()


async def test_sigterm_ends_the_session_in_order(start: Start):
    run = start(sweep_on_simserver(DDTREE, concurrency=(4,), requests_per_slot=30, speed=1.0))
    run.start()
    client = await run.client()
    await run.until(client, lambda s: s.phase == "measuring")
    assert run.engine is not None
    os.kill(run.engine.pid, signal.SIGTERM)
    state = await run.until(client, lambda _: False)
    assert state.status == "stopped"
    assert statuses(state) == ["waiting"]
    await client.close()
    assert await run.wait() == 1
