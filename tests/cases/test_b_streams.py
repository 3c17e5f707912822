"""Cases of kind B that are about streams: what their figures are made of, from the wire on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.records import Outcome
from loadgen.request_figures import tpot_s
from tests.loadgen.replay import Piece, play

DATA = Path(__file__).parent / "data"


def case(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text())


def event(t_ms: float, finish: str | None = None, usage: Any = None, **delta: str) -> Piece:
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": usage}
    return Piece(t_ms, f"data: {json.dumps(body)}\n\n".encode())


def usage_chunk(t_ms: float, usage: Any) -> Piece:
    return Piece(t_ms, f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())


def done(t_ms: float) -> Piece:
    return Piece(t_ms, b"data: [DONE]\n\n")


@pytest.mark.parametrize("number", range(4))
async def test_f26_answers_of_no_one_and_two_tokens(number: int) -> None:
    given, wanted = case("F26", "requests.json")[number], case("F26", "expected.json")
    pieces = [event(5, role="assistant", content="")]
    if given["tokens"]:
        pieces.append(event(given["ttft_ms"], content="a"))
    if given["tokens"] > 1:
        pieces.append(event(given["t_last_ms"], content="b"))
    end = (given["t_last_ms"] or 5) + 1
    usage = {"prompt_tokens": 5, "completion_tokens": given["tokens"]}
    record = (await play([*pieces, event(end, given["finish"]), usage_chunk(end + 1, usage), done(end + 2)]))[0].record
    assert record.outcome is Outcome.OK
    assert record.n_out == given["tokens"]
    assert record.ttft == (None if given["ttft_ms"] is None else pytest.approx(given["ttft_ms"] / 1e3))
    tpot, expected = tpot_s(record), wanted["tpot_ms"][given["id"]]
    assert tpot == (None if expected is None else pytest.approx(expected / 1e3))


async def test_f27_delivered_and_not_asked_tokens() -> None:
    seen, asked = case("F27", "observed.json"), case("F27", "request.json")
    pieces = [
        event(seen["ttft_ms"], content="a"),
        event(seen["t_last_token_ms"], content="b"),
        event(seen["stream_end_ms"], seen["finish_reason"]),
        usage_chunk(seen["stream_end_ms"], seen["usage"]),
        done(seen["stream_end_ms"]),
    ]
    generation, replay = await play(pieces, **asked)
    assert generation.record.n_out == case("F27", "expected.json")["completion_tokens"]
    assert generation.record.max_tokens == 512
    assert tpot_s(generation.record) == pytest.approx(0.025)
    assert "ignore_eos" not in replay.asked[0][1]


async def test_f28_late_closing_chunks_are_no_decode_time() -> None:
    seen, wanted = case("F28", "observed.json"), case("F28", "expected.json")
    pieces = [
        event(seen["ttft_ms"], content="a"),
        event(seen["t_last_token_ms"], "length", content="b"),
        usage_chunk(seen["t_usage_ms"], seen["usage"]),
        done(seen["t_done_ms"]),
    ]
    record = (await play(pieces))[0].record
    assert record.e2e == pytest.approx(wanted["e2e_last_token_ms"] / 1e3)
    assert record.t == pytest.approx(wanted["e2e_stream_end_ms"] / 1e3)
    assert tpot_s(record) == pytest.approx(wanted["tpot_ms"] / 1e3)


async def test_f37_an_answer_that_is_all_thinking() -> None:
    seen, wanted = case("F37", "observed.json"), case("F37", "expected.json")
    pieces = [
        event(seen["first_reasoning_ms"], reasoning_content="Hm"),
        event(seen["last_reasoning_ms"], reasoning_content="."),
        event(seen["last_reasoning_ms"], seen["finish_reason"]),
        usage_chunk(seen["last_reasoning_ms"], seen["usage"]),
        done(seen["last_reasoning_ms"]),
    ]
    generation, _ = await play(pieces)
    record = generation.record
    assert record.outcome is Outcome.OK
    assert (record.n_out, record.reasoning_tokens, record.ttfo) == (wanted["completion_tokens"], 128, None)
    assert record.ttft == pytest.approx(wanted["ttft_ms"] / 1e3)
    assert tpot_s(record) == pytest.approx(wanted["tpot_ms"] / 1e3)
    assert (generation.content, generation.reasoning) == ("", "Hm.")


@pytest.mark.parametrize("index", range(3))
async def test_f38_thinking_inside_or_beside_the_completion(index: int) -> None:
    usage, wanted = case("F38", "usages.json")[index], case("F38", "expected.json")
    record = (await play([event(10, content="a"), event(20, "stop"), usage_chunk(21, usage), done(22)]))[0].record
    assert record.n_out == wanted["generated_tokens"][index]
    assert record.reasoning_tokens == wanted["reasoning_tokens"][index]


@pytest.mark.parametrize("file", ["observed.json", "observed_no_usage.json"])
async def test_f39_only_the_server_counts(file: str) -> None:
    seen = case("F39", file)
    times = [seen["ttft_ms"] + 10 * i for i in range(15)]
    assert times[-1] == seen["t_last_token_ms"]
    pieces = [*(event(t, content=" ") for t in times), event(450, "stop")]
    if seen["usage"] is not None:
        pieces.append(usage_chunk(451, seen["usage"]))
    generation, _ = await play([*pieces, done(452)])
    assert generation.content == seen["text"]
    assert generation.record.n_out == (None if seen["usage"] is None else 15)
