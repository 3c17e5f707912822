"""When the requests of a cell start, and when no more do: due times, caps, durations, narrow intervals."""

from __future__ import annotations

import asyncio

import pytest

from loadgen.spec import Constant, Poisson, Stop
from tests.loadgen.pools import Seen, cell, pool_for
from tests.loadgen.token_server import token_server


@pytest.mark.parametrize("arrival", [Constant(rate=100), Poisson(rate=100)])
async def test_an_open_loop_starts_by_due_time(arrival: Constant | Poisson) -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        seen = Seen()
        health = await seen.run(pool, cell(concurrency=16, arrival=arrival, stop=Stop(requests=30)))
        due = sorted(record.t_due for record in seen.measured)
        assert len(due) == 30
        if isinstance(arrival, Constant):
            assert [round(t - due[0], 3) for t in due] == [round(i / 100, 3) for i in range(30)]
        assert all(record.t_send >= record.t_due for record in seen.measured)
        assert health.start_lateness_p99_s >= 0


async def test_an_open_loop_is_steady_once_it_has_forgotten_its_start() -> None:
    async with token_server(delay_s=0.01) as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=64, arrival=Constant(rate=20), stop=Stop(requests=24)))
        phases = [progress.phase for progress in seen.progress]
        assert "steady" in phases
        assert phases[-1] == "tail"


async def test_an_open_loop_without_a_free_slot_is_late() -> None:
    async with token_server() as served, pool_for(served) as pool:
        served.hold = asyncio.Event()
        seen = Seen()
        running = asyncio.create_task(
            seen.run(pool, cell(concurrency=2, arrival=Constant(rate=1000), stop=Stop(requests=6)))
        )
        await served.until(lambda: served.open_now == 2)
        await asyncio.sleep(0.3)  # the others become due meanwhile
        assert len(served.asked) == 2
        served.hold.set()
        health = await running
        assert health.streams_open_max == 2
        assert health.start_lateness_p99_s > 0.25


async def test_a_cap_on_starts_spreads_them() -> None:
    async with token_server() as served, pool_for(served, 2) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=10, stop=Stop(requests=10), start_rate_limit=20))
        starts = sorted(record.t_send for record in seen.measured)
        # Two processes with ten starts a second each: the last of ten starts at least 0.4 s after the first.
        assert starts[-1] - starts[0] >= 0.39


async def test_a_duration_stops_the_starts() -> None:
    async with token_server(delay_s=0.02) as served, pool_for(served) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=2, stop=Stop(duration_s=0.5)))
        starts = [record.t_send for record in seen.measured]
        assert max(starts) - min(starts) <= 0.6
        assert len(starts) > 4
        assert seen.progress[-1].total is None


async def test_a_narrow_interval_stops_the_starts() -> None:
    async with token_server(delay_s=0.01) as served, pool_for(served, 2) as pool:
        seen = Seen()
        await seen.run(pool, cell(concurrency=4, stop=Stop(interval_share=0.9, min_requests=8)))
        assert len(seen.measured) >= 8
