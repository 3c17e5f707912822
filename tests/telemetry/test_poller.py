"""The polling thread: its own pace, its own cost, and nobody waits for it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import pytest

from telemetry.poller import Poller
from telemetry.samples import GpuReading, GpuSample

LIMIT_S = 20.0


class Scripted:
    """A source whose reads can be made to hang or to fail."""

    name = "scripted"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()
        self.closed = threading.Event()
        self.error: Exception | None = None
        self.reads = 0
        self.threads: set[str] = set()

    def read(self, t: float) -> GpuSample:
        self.reads += 1
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.go.wait(LIMIT_S)
        if self.error:
            raise self.error
        return GpuSample(t=t, source=self.name, gpus=(GpuReading(index=0),))

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def source() -> Scripted:
    return Scripted()


def test_samples_arrive_with_their_cost(source: Scripted):
    taken: queue.Queue[GpuSample] = queue.Queue()
    times = iter(range(100, 200))
    poller = Poller(source, taken.put, clock=lambda: float(next(times)), interval_s=0.01)
    poller.start()
    samples = [taken.get(timeout=LIMIT_S) for _ in range(3)]
    assert poller.stop()
    assert [sample.t for sample in samples] == [100.0, 101.0, 102.0]
    assert all(sample.poll_s is not None and sample.poll_s >= 0 for sample in samples)
    assert source.closed.is_set()
    assert source.threads == {"gpu-poller"}
    cost = poller.cost()
    assert cost.reads >= 3
    assert cost.wall_s >= cost.wall_max_s > 0
    assert cost.cpu_s > 0
    assert cost.hanging_s is None


def test_stop_does_not_wait_for_a_hanging_read(source: Scripted):
    taken: queue.Queue[GpuSample] = queue.Queue()
    source.go.clear()
    poller = Poller(source, taken.put, interval_s=0.01)
    poller.start()
    assert source.entered.wait(LIMIT_S)
    assert poller.stop() is False
    assert not source.closed.is_set()
    source.go.set()
    assert source.closed.wait(LIMIT_S)  # the thread closes its source itself when the driver lets it go
    assert taken.empty()  # and what it read too late goes to nobody


def test_a_hanging_read_is_seen_from_outside_and_ticks_are_missed_not_made_up(source: Scripted):
    taken: queue.Queue[GpuSample] = queue.Queue()
    source.go.clear()
    poller = Poller(source, taken.put, interval_s=0.01)
    poller.start()
    assert source.entered.wait(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while poller.cost().hanging_s is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert poller.cost().hanging_s is not None
    assert source.reads == 1
    source.go.set()
    taken.get(timeout=LIMIT_S)
    taken.get(timeout=LIMIT_S)
    assert poller.cost().missed >= 1
    assert poller.stop()


def test_poke_reads_at_once(source: Scripted):
    taken: queue.Queue[GpuSample] = queue.Queue()
    poller = Poller(source, taken.put, interval_s=3600.0)
    poller.start()
    taken.get(timeout=LIMIT_S)
    for _ in range(3):
        poller.poke()
        taken.get(timeout=LIMIT_S)
    assert poller.stop()
    assert source.reads == 4


def test_an_error_of_a_source_is_a_problem_not_an_end(source: Scripted):
    taken: queue.Queue[GpuSample] = queue.Queue()
    source.error = OSError("driver went away")
    poller = Poller(source, taken.put, interval_s=0.01)
    poller.start()
    assert taken.get(timeout=LIMIT_S).problem == "GPU reading failed: OSError: driver went away"
    source.error = None
    deadline = time.monotonic() + LIMIT_S
    while (sample := taken.get(timeout=LIMIT_S)).problem and time.monotonic() < deadline:
        continue
    assert sample.gpus
    assert poller.stop()


def test_a_closed_loop_ends_the_thread_quietly(source: Scripted):
    loop = asyncio.new_event_loop()
    loop.close()
    poller = Poller(source, lambda sample: loop.call_soon_threadsafe(print, sample) and None, interval_s=0.01)
    poller.start()
    assert source.closed.wait(LIMIT_S)
    assert poller.stop()
    assert source.reads == 1


def test_a_poller_never_started_closes_its_source(source: Scripted):
    assert Poller(source, lambda _: None).stop()
    assert source.closed.is_set()
