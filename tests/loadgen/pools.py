"""A pool of real load processes, and what came of a cell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from loadgen.pool import WorkerPool
from loadgen.records import Generation, GenerationRequest, RequestRecord
from loadgen.spec import CellProgress, CellSpec, Stop, Target, WorkerHealth
from tests.loadgen.token_server import TokenServer

LIMIT_S = 30.0


@asynccontextmanager
async def pool_for(served: TokenServer, workers: int = 1) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(workers, time.perf_counter_ns(), Target(base_url=served.url, model="m"))
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def cell(concurrency: int = 4, **changes: Any) -> CellSpec:
    given: dict[str, Any] = {"cell": "c", "context": 60, "max_tokens": 8, "stop": Stop(requests=12)}
    return CellSpec(concurrency=concurrency, **(given | changes))


class Seen:
    """What a cell reported."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.progress: list[CellProgress] = []
        self.texts: list[Generation] = []

    async def run(self, pool: WorkerPool, spec: CellSpec) -> WorkerHealth:
        async with asyncio.timeout(LIMIT_S):
            return await pool.run_cell(spec, self.records.append, self.progress.append, self.texts.append)

    @property
    def measured(self) -> list[RequestRecord]:
        return [record for record in self.records if record.purpose == "cell"]


async def the_worker(pool: WorkerPool) -> psutil.Process:
    """The process of a pool of one, once it answers: just started, it has no command line to be found by."""
    assert (await pool.generate(GenerationRequest(rid="q", text="hi"))).record.valid
    (process,) = workers()
    return process


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "loadgen.worker" in child.cmdline()]
