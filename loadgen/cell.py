"""One worker's part of one cell: which request starts when, and what is told while it runs.

Requests are numbered over the whole cell. Worker `w` of `W` owns the slots `s` with `s % W == w` and the requests that
fall to them (`number % concurrency % W == w`), so that a cell is spread exactly, without talk between workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec
from asyncio_throttle.throttler import Throttler

from loadgen.arrival import StopRule, due_times
from loadgen.client import Client, Flight, Prepared
from loadgen.lag import LagWatcher
from loadgen.messages import Beat, CellOver, RecordMade, Share
from loadgen.records import Generation, GenerationRequest, Outcome, RequestRecord
from loadgen.spec import CellSpec, ClosedLoop

BEAT_S = 0.25
STARTS_AT_ONCE = 8
PAUSE_S, UNCONNECTED_PAUSE_S, PAUSE_MOST_S = 0.05, 0.25, 2.0
MOST_DOUBLINGS = 6
WARMUP_INDEX = 1_000_000_000
"""Warm-up prompts are numbered from here, so that none equals a measured one."""


async def _until(due_ns: int) -> None:
    """Sleeps until a time, never less: the loop's timers count in milliseconds and may be early."""
    while True:
        left_ns = due_ns - time.perf_counter_ns()
        if left_ns <= 0:
            return
        await asyncio.sleep(left_ns / 1e9)


def _pause_s(fruitless: int, outcome: Outcome) -> float:
    """How long a slot waits after that many requests in a row that gave no token, the last of them with `outcome`.

    A server that is down answers at once: without a pause that would be thousands of failures a second.
    """
    if not fruitless or (fruitless == 1 and outcome is not Outcome.CONNECT):
        return 0.0
    first_s = UNCONNECTED_PAUSE_S if outcome is Outcome.CONNECT else PAUSE_S
    return min(PAUSE_MOST_S, first_s * 2.0 ** min(fruitless - 1, MOST_DOUBLINGS))


class Prompts(Protocol):
    """Whatever makes the requests of a cell."""

    def request(self, index: int, slot: int, previous: Generation | None = None) -> GenerationRequest:
        """Returns request number `index`; `previous` is what the slot's last turn came to."""
        ...


Send = Callable[[RecordMade | Beat | CellOver], None]


class CellRun:
    """Runs one worker's share of a cell.

    Args:
        client: reads the streams.
        spec: the cell.
        share: which part of it.
        prompts: makes its requests.
        send: takes records as requests end and a beat four times a second.
    """

    def __init__(self, client: Client, spec: CellSpec, share: Share, prompts: Prompts, send: Send) -> None:
        self._client = client
        self._spec = spec
        self._share = share
        self._prompts = prompts
        self._send = send
        self._stop = StopRule(spec.stop)
        self._slots = range(share.worker, spec.concurrency, share.workers)
        self._throttle = self._make_throttle()
        self._turn = asyncio.Lock()
        self._enough = asyncio.Event()
        self._start_ns = 0
        self._lag = LagWatcher()
        self._prepared: dict[tuple[int, int], Prepared] = {}
        self._flights: dict[str, Flight] = {}
        self._opened_ns: list[int] = []
        self._closed_ns: list[int] = []
        self._started = self._finished = self._failed = self._in_decode = 0
        self._tokens = self._verify_steps = self._correct_drafts = 0
        self._idle = False

    async def warm_up(self) -> None:
        """Runs this worker's warm-up requests, as many at once as it has slots."""
        numbers = iter(range(self._share.worker, self._spec.warmup_requests, self._share.workers))

        async def slot_loop(slot: int) -> None:
            for number in numbers:
                if self._enough.is_set():
                    return
                request = self._request(WARMUP_INDEX + number, slot, None, warmup=True)
                self._emit(
                    await self._client.generate(request, cell=self._spec.cell, slot=slot, worker=self._share.worker)
                )

        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(slot_loop(slot))

    def prepare(self) -> None:
        """Makes each slot's first request beforehand, so that the start of many is no burst of work."""
        for slot in self._slots:  # which also is the number of its first request
            if self._stop.may_start(slot, 0.0):
                self._prepared[slot, slot] = self._client.prepare(self._request(slot, slot, None))

    async def run(self, start_ns: int) -> CellOver:
        """Runs the measured part.

        Args:
            start_ns: when it starts, `time.perf_counter_ns`, the same for all workers.

        Returns:
            How this process fared.
        """
        self._start_ns = start_ns
        await _until(start_ns)
        self._lag.start()
        beats = asyncio.get_running_loop().create_task(self._beat())
        try:
            async with asyncio.TaskGroup() as group:
                if isinstance(self._spec.arrival, ClosedLoop):
                    numbers = self._closed_loop_numbers()
                    for place, slot in enumerate(self._slots, 1):
                        group.create_task(self._slot(slot, numbers))
                        if place % STARTS_AT_ONCE == 0:
                            await asyncio.sleep(0)  # first answers are read while the last requests are being sent
                else:
                    group.create_task(self._arrivals(group))
        finally:
            beats.cancel()
            self._lag.stop()
        self._send(self._snapshot())
        return CellOver(
            self._share.serial, self._lag.lag_s(0.99), self._lag.cpu_share(), self._opened_ns, self._closed_ns
        )

    def stop_starting(self) -> None:
        """Lets the running requests be the last ones."""
        self._enough.set()

    def _make_throttle(self) -> Throttler | None:
        rate = self._spec.start_rate_limit
        if rate is None:
            return None
        period = self._share.workers / rate
        return Throttler(1, period=period, retry_interval=min(0.01, period / 10))

    def _elapsed_s(self) -> float:
        return (time.perf_counter_ns() - self._start_ns) / 1e9

    def _owns(self, number: int) -> bool:
        return number % self._spec.concurrency % self._share.workers == self._share.worker

    def _closed_loop_numbers(self) -> Iterator[int]:
        number = 0
        while not self._enough.is_set() and self._stop.may_start(number, self._elapsed_s()):
            if self._owns(number):
                yield number
            number += 1

    async def _slot(self, slot: int, numbers: Iterator[int]) -> None:
        """A slot of a closed loop: its next request starts when its last one ended."""
        previous: Generation | None = None
        fruitless = 0
        for number in numbers:
            previous = await self._one(number, slot, time.perf_counter_ns(), previous)
            record = previous.record
            fruitless = fruitless + 1 if record.ttft is None and not record.valid else 0
            await self._rest(_pause_s(fruitless, record.outcome))
        self._idle = True

    async def _rest(self, pause_s: float) -> None:
        """Waits before a slot's next request, unless there is to be none."""
        if pause_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._enough.wait()

    async def _arrivals(self, group: asyncio.TaskGroup) -> None:
        """An open loop: requests start when they are due, as long as one of this worker's slots is free."""
        free = list(self._slots)
        turn = asyncio.Semaphore(len(free))
        last: dict[int, Generation] = {}

        async def one(number: int, slot: int, due_ns: int) -> None:
            try:
                last[slot] = await self._one(number, slot, due_ns, last.get(slot))
            finally:
                free.append(slot)
                turn.release()

        for number, offset in enumerate(due_times(self._spec.arrival, self._spec.seed)):
            if self._enough.is_set() or not self._stop.may_start(number, offset):
                break
            if not self._owns(number):
                continue
            due_ns = self._start_ns + int(offset * 1e9)
            await _until(due_ns)
            await turn.acquire()
            if self._enough.is_set():
                break
            group.create_task(one(number, free.pop(0), due_ns))
        self._idle = True

    async def _one(self, number: int, slot: int, due_ns: int, previous: Generation | None) -> Generation:
        prepared = self._prepared.pop((number, slot), None) if self._prepared else None
        if prepared is None:
            prepared = self._client.prepare(self._request(number, slot, previous))
        if self._throttle is not None:
            # One at a time: a throttle wakes everyone who waits for it every few milliseconds.
            async with self._turn:
                await self._throttle.acquire()  # type: ignore[no-untyped-call]
        rid, opened_ns = prepared.request.rid, 0

        def on_wire() -> None:
            nonlocal opened_ns
            opened_ns = time.perf_counter_ns()

        def on_flight(flight: Flight) -> None:
            self._flights[rid] = flight

        self._started += 1
        try:
            generation = await self._client.generate(
                prepared,
                cell=self._spec.cell,
                slot=slot,
                worker=self._share.worker,
                due_ns=due_ns,
                on_flight=on_flight,
                on_wire=on_wire,
            )
        finally:
            self._flights.pop(rid, None)
            if opened_ns:
                self._opened_ns.append(opened_ns)
                self._closed_ns.append(time.perf_counter_ns())
        self._count(generation.record)
        self._emit(generation)
        return generation

    def _request(
        self, number: int, slot: int, previous: Generation | None, *, warmup: bool = False
    ) -> GenerationRequest:
        # SGLang aborts every request whose id begins with the one given: ids of one length keep them apart.
        return msgspec.structs.replace(
            self._prompts.request(number, slot, previous),
            rid=uuid.uuid4().hex,
            purpose="warmup" if warmup else "cell",
        )

    def _count(self, record: RequestRecord) -> None:
        self._finished += 1
        self._failed += not record.valid
        self._in_decode += record.ttft is not None
        self._tokens += record.n_out or 0
        if record.verify_steps is not None and record.correct_drafts is not None:
            self._verify_steps += record.verify_steps
            self._correct_drafts += record.correct_drafts

    def _emit(self, generation: Generation) -> None:
        if self._spec.keep_text:
            self._send(RecordMade(self._share.serial, generation.record, generation.content, generation.reasoning))
        else:
            self._send(RecordMade(self._share.serial, generation.record))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._send(self._snapshot())

    def _snapshot(self) -> Beat:
        readings = [flight.reading for flight in self._flights.values()]
        return Beat(
            serial=self._share.serial,
            started=self._started,
            finished=self._finished,
            failed=self._failed,
            running=len(readings),
            tokens=self._tokens + sum(reading.tokens_seen for reading in readings),
            in_decode=self._in_decode + sum(reading.first_token_ns is not None for reading in readings),
            uncounted=sum(reading.first_token_ns is not None and not reading.tokens_seen for reading in readings),
            idle=self._idle,
            verify_steps=self._verify_steps,
            correct_drafts=self._correct_drafts,
        )
