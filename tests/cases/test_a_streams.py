"""Field cases of kind A: streams as servers and proxies really send them, read by read over a real socket."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadgen.reading import StreamReading
from loadgen.records import Generation, Outcome
from loadgen.request_figures import decode_tok_s
from tests.loadgen.replay import Piece, play, read_pieces, request_for

DATA = Path(__file__).parent / "data"
OUTCOMES = {"ok": {Outcome.OK}, "incomplete": {Outcome.TRUNCATED}, "failed": set(Outcome) - {Outcome.OK}}

VARIANTS = [
    ("F01", "reads.jsonl"),
    ("F02", "reads.jsonl"),
    ("F03", "reads.jsonl"),
    ("F04", "reads.jsonl"),
    ("F05", "reads.jsonl"),
    ("F06", "reads.jsonl"),
    ("F07", "reads.jsonl"),
    ("F08", "reads.jsonl"),
    ("F10", "reads.jsonl"),
    ("F11", "reads.jsonl"),
    ("F12", "reads.jsonl"),
    ("F13", "reads.jsonl"),
    ("F13", "reads_reasoning.jsonl"),
    ("F15", "reads.jsonl"),
    ("F16", "reads.jsonl"),
    ("F17", "reads.jsonl"),
    ("F17", "reads_incremental.jsonl"),
    ("F18", "reads.jsonl"),
    ("F19", "reads.jsonl"),
    ("F21", "reads.jsonl"),
    ("F23", "reads.jsonl"),
    ("F24", "reads.jsonl"),
]


def case(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text())


def expect(generation: Generation, wanted: dict[str, Any]) -> None:
    """Compares everything of a case's expected.json that a record or its text holds."""
    record = generation.record
    assert record.outcome in OUTCOMES[wanted["outcome"]], record.error
    assert record.valid == (wanted["outcome"] == "ok")
    assert (record.error is None) == record.valid
    for key, found in (
        ("content", generation.content),
        ("reasoning", generation.reasoning),
        ("finish_reason", record.finish_reason),
        ("completion_tokens", record.n_out),
        ("prompt_tokens", record.prompt_tokens),
        ("reasoning_tokens", record.reasoning_tokens),
        ("malformed", record.malformed),
        ("spec_verify_ct", record.verify_steps),
    ):
        if key in wanted:
            assert found == wanted[key], key
    for key, seconds in (("ttft_ms", record.ttft), ("ttfo_ms", record.ttfo), ("t_last_token_ms", record.e2e)):
        if key in wanted:
            assert seconds == (None if wanted[key] is None else pytest.approx(wanted[key] / 1e3)), key
    if "tpot_ms" in wanted and (record.n_first in (None, 1)):
        speed = decode_tok_s(record)
        assert (1e3 / speed if speed else None) == (
            None if wanted["tpot_ms"] is None else pytest.approx(wanted["tpot_ms"], abs=1e-3)
        )


@pytest.mark.parametrize(("name", "file"), VARIANTS, ids=[f"{n}-{f.removesuffix('.jsonl')}" for n, f in VARIANTS])
async def test_read_by_read(name: str, file: str) -> None:
    request, response = case(name, "request.json"), case(name, "response.json")
    generation, replay = await play(
        read_pieces(DATA / name / file),
        path=request["path"],
        status=response["status"],
        content_type=response["headers"]["content-type"],
        end=response["end"],
    )
    expect(generation, case(name, "expected.json"))
    path, body = replay.asked[0]
    assert path == request["path"]
    assert body["stream"] is True and body["rid"] == "r-1"
    if path == "/v1/chat/completions":
        assert body["messages"] == request["body"]["messages"]
        assert body["stream_options"]["include_usage"] is True


TIMES = ("ttft_ms", "ttfo_ms", "t_last_token_ms", "tpot_ms")


@pytest.mark.parametrize("name", sorted({name for name, _ in VARIANTS} - {"F08", "F19"}))
async def test_one_byte_at_a_time_over_the_socket(name: str) -> None:
    body = (DATA / name / "body.bin").read_bytes()
    pieces = [Piece(float(i), body[i : i + 1]) for i in range(len(body))]
    generation, _ = await play(pieces, path=case(name, "request.json")["path"])
    expect(generation, {key: value for key, value in case(name, "expected.json").items() if key not in TIMES})


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("name", sorted({name for name, _ in VARIANTS} - {"F08"}))
def test_any_cut_gives_the_same(name: str, size: int) -> None:
    body = (DATA / name / "body.bin").read_bytes()
    whole, cut = StreamReading(keep_text=True), StreamReading(keep_text=True)
    whole.feed(body, 5)
    for start in range(0, len(body), size):
        cut.feed(body[start : start + size], 5)
    for reading in (whole, cut):
        reading.end()
    request = request_for(case(name, "request.json")["path"])
    stamps: dict[str, Any] = {"cell": None, "slot": 0, "worker": 0, "origin_ns": 0, "due_ns": 0, "sent_ns": 0}
    records = [reading.record(request, over_ns=9, http_status=200, failure=None, **stamps) for reading in (whole, cut)]
    assert records[0] == records[1]
    assert (whole.content, whole.reasoning) == (cut.content, cut.reasoning)


async def test_f01_leaves_no_replacement_character() -> None:
    generation, _ = await play(read_pieces(DATA / "F01" / "reads.jsonl"))
    assert "\ufffd" not in generation.content


async def test_f05_token_ids_of_a_named_event_are_not_counted() -> None:
    generation, _ = await play(read_pieces(DATA / "F05" / "reads.jsonl"))
    assert generation.record.n_out == 3
    assert len(generation.record.chunks) == 2


@pytest.mark.parametrize("end", ["reset", "cut"])
async def test_f08_a_lost_connection_is_called_one(end: str) -> None:
    generation, _ = await play(read_pieces(DATA / "F08" / "reads.jsonl"), end=end)
    record = generation.record
    assert record.outcome is Outcome.TRUNCATED
    assert record.error is not None and "connection was lost" in record.error
    assert record.malformed == 0
    assert generation.content == "half"


async def test_f10_says_what_the_server_said() -> None:
    generation, replay = await play(read_pieces(DATA / "F10" / "reads.jsonl"), path="/generate")
    record = generation.record
    assert record.outcome is Outcome.STREAM_ERROR
    assert record.error is not None and "400" in record.error and "longer than the context length" in record.error
    assert (record.ttft, record.e2e, record.n_out, record.chunks) == (None, None, None, ())
    assert len(replay.asked) == 1  # not asked again


async def test_f11_acceptance_without_the_prefill_token() -> None:
    generation, _ = await play(read_pieces(DATA / "F11" / "reads.jsonl"))
    record, wanted = generation.record, case("F11", "expected.json")
    assert record.verify_steps is not None and record.correct_drafts is not None
    tau = (record.correct_drafts + record.verify_steps) / record.verify_steps
    assert tau == wanted["accept_len_from_histogram"]
    assert record.accepted_histogram is not None and sum(record.accepted_histogram) == record.verify_steps


async def test_f16_unknown_chunks_share_what_is_known() -> None:
    generation, _ = await play(read_pieces(DATA / "F16" / "reads.jsonl"))
    assert [chunk.tokens for chunk in generation.record.chunks] == [1, 3, None, None]
    assert (generation.record.n_first, generation.record.n_first_known) == (1, True)


@pytest.mark.parametrize(
    ("file", "told"), [("reads.jsonl", False), ("reads_incremental.jsonl", False), ("reads_incremental.jsonl", True)]
)
async def test_f17_tokens_of_each_event(file: str, told: bool) -> None:
    generation, _ = await play(
        read_pieces(DATA / "F17" / file), path="/generate", target={"incremental_streaming": told}
    )
    wanted = case("F17", "expected.json")
    assert [chunk.tokens for chunk in generation.record.chunks] == wanted["per_event_tokens"]
    assert generation.content == wanted["content"]


async def test_f18_is_aborted() -> None:
    generation, _ = await play(read_pieces(DATA / "F18" / "reads.jsonl"))
    assert generation.record.outcome is Outcome.ABORTED


async def test_f21_gaps_of_one_read_are_zero() -> None:
    generation, _ = await play(read_pieces(DATA / "F21" / "reads.jsonl"))
    times = [chunk.t for chunk in generation.record.chunks]
    gaps = [round((b - a) * 1e3, 6) for a, b in pairwise(times)]
    assert gaps == case("F21", "expected.json")["event_gaps_ms"]


async def test_f22_a_page_instead_of_a_stream() -> None:
    body = (DATA / "F22" / "variant1_body.bin").read_bytes()
    generation, _ = await play([Piece(10, body)], content_type="text/html")
    record = generation.record
    assert record.outcome is Outcome.STREAM_ERROR
    assert record.error is not None and "text/html" in record.error and "502 Bad Gateway" in record.error
    assert record.ttft is None


async def test_f22_an_error_body_is_read() -> None:
    body = (DATA / "F22" / "variant2_body.bin").read_bytes()
    generation, _ = await play([Piece(10, body)], status=503, content_type="application/json")
    record = generation.record
    assert (record.outcome, record.http_status) == (Outcome.HTTP_5XX, 503)
    assert record.error is not None and "The server is warming up" in record.error


async def test_f23_speed_of_a_single_chunk_is_unknown() -> None:
    generation, _ = await play(read_pieces(DATA / "F23" / "reads.jsonl"))
    record = generation.record
    assert (record.n_first, record.n_first_known, record.n_out) == (5, True, 5)
    assert decode_tok_s(record) is None
