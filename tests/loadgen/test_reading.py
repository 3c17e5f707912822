"""What is made of the events of a stream, whatever shapes servers give them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.failures import Failure, error_text, printable
from loadgen.reading import StreamReading, generated_tokens
from loadgen.records import GenerationRequest, Outcome, RequestRecord
from loadgen.wire import NotJson, Usage, decode_event

MS = 1_000_000


def record_of(reading: StreamReading, failure: Failure | None = None) -> RequestRecord:
    return reading.record(
        GenerationRequest(rid="r", keep_text=True),
        cell="c",
        slot=3,
        worker=1,
        origin_ns=-100 * MS,
        due_ns=-5 * MS,
        sent_ns=0,
        over_ns=50 * MS,
        http_status=200,
        failure=failure,
    )


def read(*events: Any, **settings: Any) -> RequestRecord:
    """One event each 10 ms, then a clean end."""
    reading = StreamReading(keep_text=True, **settings)
    for i, event in enumerate(events, 1):
        body = event if isinstance(event, str) else json.dumps(event)
        reading.feed(f"data: {body}\n\n".encode(), i * 10 * MS)
    reading.end()
    return record_of(reading)


def delta(finish: Any = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], "usage": usage}


def used(tokens: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 10, "completion_tokens": tokens} | more


def test_times_are_seconds_since_the_session_and_since_the_sending() -> None:
    record = read(delta(content="a"), delta(reasoning="b"), delta("stop", usage=used(2)))
    assert (record.t, record.t_due, record.t_send) == (0.15, 0.095, 0.1)
    assert (record.ttft, record.e2e, record.ttfo) == (0.01, 0.02, 0.01)
    assert (record.slot, record.worker, record.cell) == (3, 1, "c")


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_clean_finishes(reason: str) -> None:
    assert read(delta(content="a"), delta(reason), "[DONE]").valid


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("abort", Outcome.ABORTED), ("content_filter", Outcome.STREAM_ERROR), ("", Outcome.TRUNCATED)],
)
def test_other_finishes_are_failures(reason: str, outcome: Outcome) -> None:
    record = read(delta(content="a"), delta(reason), "[DONE]")
    assert record.outcome is outcome
    assert record.finish_reason == (reason or None)
    assert record.error


def test_done_without_a_finish_reason_is_a_cut_stream() -> None:
    assert read(delta(content="a"), "[DONE]").outcome is Outcome.TRUNCATED


def test_an_error_wins_over_a_finish_reason_and_over_a_lost_connection() -> None:
    reading = StreamReading()
    reading.feed(b'data: {"error":{"object":"error","message":"queue full","code":503}}\n\n', 1)
    lost = record_of(reading, Failure(Outcome.TRUNCATED, "lost"))
    assert (lost.outcome, lost.error) == (Outcome.STREAM_ERROR, "503: queue full")
    after = read(delta(content="a"), delta("stop"), {"object": "error", "message": "late", "code": 500})
    assert (after.outcome, after.error) == (Outcome.STREAM_ERROR, "500: late")


def test_an_abort_on_the_own_route_says_why() -> None:
    meta = {"completion_tokens": 1, "finish_reason": {"type": "abort", "message": "out of memory", "status_code": 503}}
    record = read({"text": "a", "output_ids": [1], "meta_info": meta})
    assert (record.outcome, record.error) == (Outcome.ABORTED, "503: out of memory")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 20, "total_tokens": 320, "completion_tokens": 300, "reasoning_tokens": 250}, 300),
        ({"prompt_tokens": 20, "total_tokens": 340, "completion_tokens": 50, "reasoning_tokens": 270}, 320),
        ({"prompt_tokens": 20, "completion_tokens": 300, "reasoning_tokens": 250}, 300),
        ({"prompt_tokens": 20, "total_tokens": 999, "completion_tokens": 300, "reasoning_tokens": 250}, 300),
        ({"completion_tokens": -1}, None),
        ({}, None),
    ],
)
def test_reasoning_inside_or_beside_the_completion(usage: dict[str, int], tokens: int | None) -> None:
    assert generated_tokens(Usage(**usage)) == tokens


def test_no_usage_is_no_count() -> None:
    record = read(delta(content="a"), delta(content="b"), delta("stop"))
    assert record.valid
    assert (record.n_out, record.n_first, record.n_first_known, record.prompt_tokens) == (None, 1, False, None)


def test_an_empty_answer_has_no_times() -> None:
    record = read(delta(role="assistant", content=""), delta("length", usage=used(0)))
    assert record.valid
    assert (record.n_out, record.ttft, record.e2e, record.n_first, record.chunks) == (0, None, None, None, ())


def test_a_running_count_that_goes_back_is_not_believed() -> None:
    record = read(delta(content="a", usage=used(3)), delta(content="b", usage=used(1)), delta("stop", usage=used(4)))
    assert [chunk.tokens for chunk in record.chunks] == [3, None]
    assert record.n_out == 4


def test_tokens_of_empty_chunks_belong_to_the_next_one_with_text() -> None:
    record = read(
        delta(content="", usage=used(0)),
        delta(content="", usage=used(1)),
        delta(content="ab", usage=used(3)),
        delta("stop", usage=used(4)),
    )
    assert [chunk.tokens for chunk in record.chunks] == [3]
    assert (record.n_first, record.n_out) == (3, 4)


def spec(**counts: Any) -> dict[str, Any]:
    return {"choices": [], "sglext": {"spec_tokens_details": counts}}


UNKNOWN = (None, None, None, None)


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_correct_drafts_histogram": []}, UNKNOWN),
        ({"spec_accept_length": 0.0}, UNKNOWN),
        (
            {"spec_verify_ct": 4, "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 12,
             "spec_correct_drafts_histogram": [4]},
            (4, 0, 12, (4,)),
        ),
        ({"spec_verify_ct": 4, "spec_num_correct_drafts": 0}, (4, None, None, None)),
        ({"spec_verify_ct": 4}, (4, None, None, None)),
        ({"spec_verify_ct": 4, "spec_accept_token_num": 9, "spec_draft_token_num": 28}, (4, 9, 28, None)),
        ({"spec_verify_ct": 3, "spec_accept_histogram": [0, 1, 2]}, (3, 5, None, (0, 1, 2))),
    ],
)  # fmt: skip
def test_speculative_counts_of_every_spelling(counts: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    for value in (spec(**counts), {"choices": [], "sglext": {"spec_tokens_details": [counts]}}):
        record = read(delta(content="a"), delta("stop"), value, {"choices": [], "usage": used(5)})
        found = (record.verify_steps, record.correct_drafts, record.proposed_drafts, record.accepted_histogram)
        assert found == wanted
        assert (record.acceptance_source is None) == (wanted[0] is None)
        assert record.n_out == 5


def test_speculative_counts_of_vllm() -> None:
    counts = {
        "num_spec_steps": 6,
        "num_accepted_draft_tokens": 9,
        "num_draft_tokens": 24,
        "acceptance_histogram": [2, 1, 1, 2, 0],
    }
    last = {"choices": [], "usage": used(16), "metrics": {"speculative_decoding": counts}}
    record = read(delta(content="a"), delta("stop"), last)
    assert (record.verify_steps, record.correct_drafts, record.proposed_drafts) == (6, 9, 24)
    assert record.accepted_histogram == (2, 1, 1, 2, 0)


def test_drafts_of_llama_without_steps_are_no_acceptance() -> None:
    record = read(delta(content="a"), delta("stop", usage=used(9)) | {"timings": {"draft_n": 8, "draft_n_accepted": 5}})
    assert (record.verify_steps, record.correct_drafts, record.proposed_drafts) == (None, 5, 8)
    assert record.acceptance_source is None


@pytest.mark.parametrize(
    ("event", "cached"),
    [
        ({"choices": [], "usage": used(1, prompt_tokens_details={"cached_tokens": 7})}, 7),
        ({"choices": [], "usage": used(1), "sglext": {"cached_tokens_details": {"device": 5, "host": 2}}}, 7),
        ({"choices": [], "usage": used(1), "timings": {"cache_n": 7}}, 7),
        ({"choices": [], "usage": used(1)}, None),
    ],
)
def test_cached_tokens_of_every_source(event: dict[str, Any], cached: int | None) -> None:
    assert read(delta(content="a"), delta("stop"), event).cached_tokens == cached


def test_incremental_own_route_is_found_out_by_its_ids() -> None:
    def piece(text: str, ids: list[int], total: int, reason: Any = None) -> dict[str, Any]:
        return {"text": text, "output_ids": ids, "meta_info": {"completion_tokens": total, "finish_reason": reason}}

    reading = StreamReading(keep_text=True)
    # The second piece begins with the first one's text: only the ids tell that it is no longer text so far.
    for event in (piece("a", [1], 1), piece("ab", [2, 3], 3), piece("c", [4], 4, {"type": "stop"})):
        reading.feed(f"data: {json.dumps(event)}\n\n".encode(), MS)
    assert reading.content == "aabc"
    assert [chunk.tokens for chunk in reading.chunks(0)] == [1, 2, 1]


def test_own_route_counts_ids_whose_text_is_held_back() -> None:
    def piece(text: str, ids: list[int], reason: Any = None) -> dict[str, Any]:
        return {"text": text, "output_ids": ids, "meta_info": {"completion_tokens": len(ids), "finish_reason": reason}}

    events = (
        piece("a", [1]),
        piece("a", [1, 2]),
        piece("a\u2603", [1, 2, 3], {"type": "stop"}),
        piece("a\u2603", [1, 2, 3]),
    )
    record = read(*events)
    assert [chunk.tokens for chunk in record.chunks] == [1, 1, 1]


def test_an_odd_field_does_not_cost_the_token_beside_it() -> None:
    odd = '{"choices":[{"delta":{"content":"a","reasoning_content":["x"]},"logprobs":{"p":NaN}}],"usage":"none"}'
    reading = StreamReading(keep_text=True)
    reading.feed(f"data: {odd}\n\n".encode(), MS)
    reading.feed(b'data: {"choices":[{"delta":{"content":"b\xff\\ud83d"}}]}\n\n', MS)
    assert reading.content == "ab\ufffd?"
    assert reading.malformed == 0
    assert len(reading.chunks(0)) == 2


@pytest.mark.parametrize("data", [b"{", b'{"a":', b"nonsense", b"[" * 100_000, b'{"choices":' + b"[" * 100_000])
def test_what_is_not_json_is_malformed(data: bytes) -> None:
    with pytest.raises(NotJson):
        decode_event(data)


@pytest.mark.parametrize("data", [b"null", b"[]", b"3", b'"text"', b"NaN"])
def test_json_that_is_no_object_is_nothing(data: bytes) -> None:
    assert decode_event(data) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"message": "m", "type": "t", "code": 400}, "400 t: m"),
        ({"detail": "d"}, "d"),
        ("plain\x1b[31m", "plain [31m"),
        ({}, "{}"),
        ({"message": {"a": 1}}, "{'a': 1}"),
        ([1], "[1]"),
    ],
)
def test_errors_in_words(error: Any, words: str) -> None:
    assert error_text(error) == words


def test_outside_text_is_shortened() -> None:
    assert printable("x" * 1000, 10) == "x" * 9 + "…"
