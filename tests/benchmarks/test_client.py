"""The benchmark of the load generator: its parts run, and count what was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.client import EXTRA_EVENTS, Figures, compile_firehose, firehose, median_of_rounds, read_by, read_by_us
from loadgen.target import detect_target
from tests.needs import needs

STREAMS, CHUNKS = 3, 20


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_firehose(tmp_path_factory.mktemp("firehose"))


@needs("cc")
def test_every_reader_sees_every_event(program: Path) -> None:
    with firehose(program, CHUNKS, 1000) as port:
        ours, fixed_s, health = read_by_us(port, STREAMS, 1)
        rows = [ours, read_by("bare", port, STREAMS), read_by("stock", port, STREAMS)]
    assert [row.events for row in rows] == [STREAMS * (CHUNKS + EXTRA_EVENTS)] * 3
    assert all(row.cpu_us > 0 for row in rows[1:])
    assert health.streams_open_max == STREAMS
    assert fixed_s > 0


@needs("cc")
def test_firehose_answers_like_a_server(program: Path) -> None:
    with firehose(program, 1, 0) as port:
        target = asyncio.run(detect_target(f"http://127.0.0.1:{port}"))
    assert (target.model, target.dialect, target.max_model_len) == ("mock", "openai", 131072)


def test_readers_take_turns() -> None:
    costs = iter([3, 30, 1, 10, 2, 20])
    order: list[str] = []

    def reader(name: str) -> Figures:
        order.append(name)
        return Figures(name, 1, 1.0, next(costs) / 1e6, 0.0)

    rows = median_of_rounds([lambda: reader("a"), lambda: reader("b")])
    assert order == ["a", "b"] * 3
    assert [round(row.cpu_us) for row in rows] == [2, 20]
