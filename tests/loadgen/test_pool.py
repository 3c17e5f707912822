"""Load processes: real ones, against a server that knows what it served."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import psutil
import pytest

from loadgen.errors import CellError, WorkerLost
from loadgen.pool import WorkerPool
from loadgen.records import GenerationRequest, Message, Outcome
from loadgen.spec import Constant, Stop, Target, Workload
from tests.loadgen.pools import Seen, cell, pool_for, the_worker, workers
from tests.loadgen.token_server import token_server
from tests.needs import needs


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_cell_is_spread_exactly(count: int) -> None:
    async with token_server() as served, pool_for(served, count) as pool:
        seen = Seen()
        health = await seen.run(pool, cell(warmup_requests=3))
        assert Counter(record.purpose for record in seen.records) == {"cell": 12, "warmup": 3}
        assert all(record.valid for record in seen.records), seen.records[0].error
        assert len(served.asked) == len({body["rid"] for body in served.asked}) == 15
        assert {len(body["rid"]) for body in served.asked} == {32}  # none begins another
        assert len({body["messages"][0]["content"] for body in served.asked}) == 15
        slots = {record.slot: record.worker for record in seen.measured}
        assert slots == {slot: slot % count for slot in range(4)}
        shares = Counter(record.worker for record in seen.measured)
        assert shares == Counter(number % 4 % count for number in range(12))
        assert health.workers == count
        assert health.streams_open_max <= 4
        assert (health.loop_lag_p99_s >= 0, health.cpu_share > 0) == (True, True)


async def test_records_tell_what_was_served() -> None:
    async with token_server(tokens=8, per_chunk=2, fail_every=3) as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=1, stop=Stop(requests=6)))
        assert [record.outcome for record in seen.records] == [Outcome.OK, Outcome.OK, Outcome.STREAM_ERROR] * 2
        good = seen.records[0]
        assert ([chunk.tokens for chunk in good.chunks], good.n_out, good.prompt_tokens) == ([2] * 4, 8, 60)
        assert (good.verify_steps, good.correct_drafts, good.cell, good.max_tokens) == (3, 3, "c", 8)
        assert good.t_due <= good.t_send <= good.t
        last = seen.progress[-1]
        assert (last.started, last.finished, last.failed, last.running, last.total) == (6, 6, 2, 0, 6)
        assert (last.tokens, last.phase, last.share_done, last.acceptance_length) == (48, "tail", 1.0, 2.0)


async def test_as_many_streams_are_open_as_slots() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        served.hold = asyncio.Event()
        seen = Seen()
        running = asyncio.create_task(seen.run(pool, cell(concurrency=150, stop=Stop(requests=150))))
        await served.until(lambda: served.open_now == 150)
        served.hold.set()
        health = await running
        assert health.streams_open_max == served.open_most == 150
        assert len(seen.measured) == 150


async def test_phases_go_from_ramp_to_tail() -> None:
    async with token_server(delay_s=0.1) as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=2, stop=Stop(requests=6), warmup_requests=2))
        phases = [progress.phase for progress in seen.progress]
        assert phases[0] == "warmup" and phases[-1] == "tail" and "steady" in phases
        assert any(progress.tok_s for progress in seen.progress)


async def test_no_live_rate_where_the_server_does_not_count_as_it_goes() -> None:
    async with token_server(delay_s=0.15, running_usage=False) as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=1, stop=Stop(requests=2)))
        assert [record.n_out for record in seen.records] == [8, 8]
        assert seen.progress[-1].tokens == 16
        assert {progress.tok_s for progress in seen.progress} == {None}


async def test_a_server_that_is_down_is_not_hammered() -> None:
    async with token_server() as served:
        url = served.url
    pool = WorkerPool(2, time.perf_counter_ns(), Target(base_url=url, model="m"))
    await pool.start()
    seen = Seen()
    await seen.run(pool, cell(concurrency=8, stop=Stop(duration_s=1.0)))
    await pool.close()
    assert {record.outcome for record in seen.records} == {Outcome.CONNECT}
    starts: dict[int, list[float]] = {slot: [] for slot in range(8)}
    for record in seen.records:
        starts[record.slot].append(record.t_send)
    for times in starts.values():
        waits = [after - before for before, after in pairwise(sorted(times))]
        # The first starts at once, then a quarter of a second is waited, then a half: the next would be too late.
        assert len(times) in (2, 3)
        assert all(wait > 0.24 * 2**n for n, wait in enumerate(waits))


async def test_connections_and_processes_stay_between_cells() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        first = {process.pid for process in workers()}
        for _ in range(3):
            seen = Seen()
            await seen.run(pool, cell())
            assert len(seen.measured) == 12
        assert {process.pid for process in workers()} == first
        assert served.connections <= 4


async def test_single_generations_during_a_cell() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        served.hold = asyncio.Event()
        seen = Seen()
        running = asyncio.create_task(seen.run(pool, cell()))
        await served.until(lambda: served.open_now == 4)
        ones = [
            asyncio.create_task(
                pool.generate(GenerationRequest(rid=f"p{i}", text="hi", keep_text=True, purpose="probe"))
            )
            for i in range(6)
        ]
        await served.until(lambda: served.open_now == 10)
        served.hold.set()
        done = await asyncio.gather(*ones)
        await running
        assert [one.record.rid for one in done] == [f"p{i}" for i in range(6)]
        assert {one.content for one in done} == {" word" * 8}
        assert {one.record.worker for one in done} == {0, 1}
        assert {record.purpose for record in seen.records} == {"cell"}


async def test_a_cancelled_generation_is_aborted() -> None:
    async with token_server() as served, pool_for(served) as pool:
        served.hold = asyncio.Event()
        task = asyncio.create_task(pool.generate(GenerationRequest(rid="gone", text="hi")))
        await served.until(lambda: served.open_now == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await served.until(lambda: served.aborted == ["gone"] and served.open_now == 0)


async def test_skipping_aborts_everything_and_the_next_cell_runs() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        served.hold = asyncio.Event()
        seen = Seen()
        running = asyncio.create_task(seen.run(pool, cell(concurrency=8, stop=Stop(requests=100))))
        await served.until(lambda: served.open_now == 8)
        await pool.skip()
        await running
        await served.until(lambda: served.open_now == 0)
        assert set(served.aborted) == {body["rid"] for body in served.asked}
        assert len(served.asked) == 8
        served.hold = None
        again = Seen()
        await again.run(pool, cell())
        assert len(again.measured) == 12 and not seen.measured


async def test_cancelling_a_cell_skips_it() -> None:
    async with token_server() as served, pool_for(served) as pool:
        served.hold = asyncio.Event()
        running = asyncio.create_task(Seen().run(pool, cell()))
        await served.until(lambda: served.open_now == 4)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await served.until(lambda: served.open_now == 0)
        served.hold = None
        again = Seen()
        await again.run(pool, cell())
        assert len(again.records) == 12


async def test_skipping_in_the_warm_up() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        served.hold = asyncio.Event()
        seen = Seen()
        running = asyncio.create_task(seen.run(pool, cell(warmup_requests=4)))
        await served.until(lambda: served.open_now == 4)
        await pool.skip()
        await running
        assert seen.records == []
        await pool.skip()  # nothing is running: nothing happens


@asynccontextmanager
async def deaf(process: psutil.Process) -> AsyncIterator[None]:
    """Commands sent meanwhile are read by the process all at once."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


async def test_skipping_a_cell_that_was_only_just_asked_for() -> None:
    async with token_server() as served, pool_for(served) as pool:
        process = await the_worker(pool)
        for _ in range(2):
            seen = Seen()
            async with deaf(process):
                running = asyncio.create_task(seen.run(pool, cell()))
                await asyncio.sleep(0)  # the cell is asked for
                await pool.skip()
            await running
            assert seen.measured == []
        again = Seen()
        await again.run(pool, cell())
        assert len(again.measured) == 12


async def test_a_generation_cancelled_as_soon_as_it_was_asked_for() -> None:
    async with token_server() as served, pool_for(served) as pool:
        process = await the_worker(pool)
        async with deaf(process):
            task = asyncio.create_task(pool.generate(GenerationRequest(rid="gone", text="hi")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await served.until(lambda: served.aborted == ["gone"] and served.open_now == 0)
        assert (await pool.generate(GenerationRequest(rid="next", text="hi"))).record.valid


async def test_a_lost_process_is_an_error_and_can_be_replaced() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        served.hold = asyncio.Event()
        running = asyncio.create_task(Seen().run(pool, cell()))
        probe = asyncio.create_task(pool.generate(GenerationRequest(rid="probe", text="hi")))
        await served.until(lambda: served.open_now == 5)
        victims = workers()
        assert len(victims) == 2
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="status -9"):
            await running
        with pytest.raises(WorkerLost):
            await probe
        with pytest.raises(WorkerLost):
            await pool.generate(GenerationRequest(rid="late", text="hi"))
        with pytest.raises(WorkerLost):
            await Seen().run(pool, cell())
        served.hold = None
        await pool.start()
        seen = Seen()
        await seen.run(pool, cell())
        assert len(seen.records) == 12


async def test_a_process_ends_with_its_input_and_aborts_what_it_ran() -> None:
    async with token_server() as served:
        served.hold = asyncio.Event()
        pool = WorkerPool(1, time.perf_counter_ns(), Target(base_url=served.url, model="m"))
        await pool.start()
        running = asyncio.create_task(Seen().run(pool, cell()))
        await served.until(lambda: served.open_now == 4)
        (process,) = workers()
        await pool.close()
        assert not process.is_running()
        await served.until(lambda: served.open_now == 0)
        assert set(served.aborted) == {body["rid"] for body in served.asked}
        with pytest.raises(WorkerLost, match="closed"):
            await running


async def test_a_process_ignores_the_terminals_interrupt() -> None:
    async with token_server() as served, pool_for(served) as pool:
        process = await the_worker(pool)
        assert os.getsid(process.pid) != os.getsid(0)
        os.kill(process.pid, signal.SIGINT)
        done = await pool.generate(GenerationRequest(rid="r", text="hi"))
        assert done.record.valid


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stop": Stop()}, "needs a number of requests"),
        ({"arrival": Constant(rate=0)}, "rate must be above 0"),
        ({"workload": Workload(kind="jsonl", path="no/such/file.jsonl")}, "no/such/file.jsonl"),
        ({"concurrency": 100_000}, "open files"),
    ],
)
async def test_a_cell_that_can_not_be_run(changes: dict[str, Any], words: str) -> None:
    async with token_server() as served, pool_for(served) as pool:
        with pytest.raises(CellError, match=words):
            await Seen().run(pool, cell(**changes))
        seen = Seen()
        await seen.run(pool, cell())
        assert len(seen.records) == 12


async def test_conversations_carry_their_answers() -> None:
    async with token_server() as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=1, stop=Stop(requests=3), workload=Workload(kind="chat", turns=3)))
        assert [len(body["messages"]) for body in served.asked] == [1, 3, 5]
        assert served.asked[1]["messages"][1] == {"role": "assistant", "content": " word" * 8}
        assert all(text.content == "" for text in seen.texts)  # not asked to be kept


async def test_texts_come_along_where_they_are_kept() -> None:
    async with token_server() as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(stop=Stop(requests=4), keep_text=True))
        assert [text.content for text in seen.texts] == [" word" * 8] * 4
        assert [text.record.rid for text in seen.texts] == [record.rid for record in seen.records]


@needs("root")
async def test_load_processes_go_before_others() -> None:
    async with token_server() as served, pool_for(served) as pool:
        assert (await pool.generate(GenerationRequest(rid="r", text="hi"))).record.valid
        (process,) = workers()
        assert process.nice() < 0


async def test_another_target() -> None:
    async with token_server() as served, token_server() as other, pool_for(served, 2) as pool:
        await pool.retarget(Target(base_url=other.url, model="n"))
        done = await pool.generate(GenerationRequest(rid="r", messages=(Message("user", "hi"),)))
        assert done.record.valid
        assert (len(served.asked), [body["model"] for body in other.asked]) == (0, ["n"])
        assert pool.target.base_url == other.url
