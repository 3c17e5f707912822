"""The simulated answers beside the recorded ones of the real server: same status, headers, fields, order and types."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from tests.simserver.support import Answer, Sim, capture, capture_request

WHOLE = [
    "get.models", "get.health", "get.root404", "get.ping", "flush_cache", "bad.empty_body", "bad.generate.no_text",
    "bad.max_tokens_0", "bad.max_tokens_neg", "bad.max_tokens_over_ctx", "bad.method", "bad.no_messages", "bad.json",
    "bad.temperature", "bad.unknown_model", "bad.stream_options_without_stream", "chat.nonstream",
    "completions.nonstream", "completions.token_ids_prompt",
]  # fmt: skip
STREAMS = [
    "bad.unknown_model.stream", "chat.stream", "chat.stream.contusage", "chat.stream.logprobs",
    "chat.stream.max_tokens1", "chat.stream.nousage", "chat.stream.stop", "completions.stream",
]  # fmt: skip
NULLABLE = {
    "finish_reason", "matched_stop", "cached_tokens_details", "completion_tokens_details", "accelerator",
    "decode_moments", "reasoning_content",
}  # fmt: skip


def shape(value: Any, key: str = "") -> Any:
    """Keys in order and types of values; what may be null either way is not looked into."""
    if key in NULLABLE:
        return "nullable"
    if isinstance(value, dict):
        return [(name, shape(one, name)) for name, one in value.items()]
    if isinstance(value, list):
        return ["list", *(shape(one) for one in value[:1])]
    return type(value).__name__


def header_shape(answer: Answer) -> list[tuple[str, str]]:
    return [(name, "" if name in ("date", "content-length") else value) for name, value in answer.headers]


def ask(sim: Sim, name: str) -> Answer:
    method, path, body = capture_request(name)
    return sim.exchange(method, path, body)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_answers(tree_server: Sim, name: str) -> None:
    real, simulated = capture(name), ask(tree_server, name)
    assert simulated.status == real.status
    assert header_shape(simulated) == header_shape(real)
    assert simulated.complete
    if not real.body.startswith(b"{"):
        assert simulated.body == real.body
        return
    assert shape(simulated.json) == shape(real.json)
    if name.startswith("bad.") and "message" in real.json:
        source = re.compile(r'File "[^"]*/srt/')
        assert source.sub("", simulated.json["message"]) == source.sub("", real.json["message"])
        assert {**simulated.json, "message": 0} == {**real.json, "message": 0}


@pytest.mark.parametrize("name", ["bad.too_long", "bad.too_long.stream"])
def test_a_prompt_that_is_too_long(tree_server: Sim, name: str) -> None:
    real = capture(name)
    body = {
        "messages": [{"role": "user", "content": "word " * 4100}],
        "max_tokens": 8,
        "stream": name.endswith("stream"),
    }
    simulated = tree_server.exchange("POST", "/v1/chat/completions", body)
    assert (simulated.status, header_shape(simulated)) == (real.status, header_shape(real))
    number = re.compile(r"\(\d+ tokens\) is")
    assert number.sub("", simulated.body.decode()) == number.sub("", real.body.decode())


def test_generate_refuses_inside_the_stream(tree_server: Sim) -> None:
    real = capture("bad.generate.too_long.stream")
    body = {"text": "word " * 4100, "sampling_params": {"max_new_tokens": 8}, "stream": True}
    simulated = tree_server.exchange("POST", "/generate", body)
    assert (simulated.status, header_shape(simulated)) == (real.status, header_shape(real))
    assert len(simulated.chunks) == len(real.chunks) == 2
    number = re.compile(rb"\(\d+ tokens\) is")
    assert [number.sub(b"", chunk) for chunk in simulated.chunks] == [number.sub(b"", one) for one in real.chunks]


def kinds(events: list[Any]) -> list[Any]:
    """The sequence of event shapes, runs of the same shape taken together."""
    found: list[Any] = []
    for event in events:
        this = event if isinstance(event, str) else shape(event)
        if not found or found[-1] != this:
            found.append(this)
    return found


@pytest.mark.parametrize("name", STREAMS)
def test_streams(tree_server: Sim, name: str) -> None:
    real, simulated = capture(name), ask(tree_server, name)
    assert simulated.status == real.status
    assert header_shape(simulated) == header_shape(real)
    assert simulated.complete
    assert kinds(simulated.events) == kinds(real.events)
    assert all(chunk.endswith(b"\n\n") and chunk.count(b"data: ") == 1 for chunk in simulated.chunks)
    assert simulated.events[-1] == "[DONE]"


def test_finish_chunk_and_usage_tell_the_same_as_the_real_ones(tree_server: Sim) -> None:
    real, simulated = capture("chat.stream.contusage"), ask(tree_server, "chat.stream.contusage")
    ends = [events[-3]["choices"][0] for events in (real.events, simulated.events)]
    assert ends[0] == ends[1]
    assert simulated.events[-2]["usage"]["completion_tokens"] == real.events[-2]["usage"]["completion_tokens"] == 16
    counts = [event["usage"]["completion_tokens"] for event in simulated.events[1:-3]]
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert counts[-1] == 16


def test_a_stop_string_is_cut_off_and_named(tree_server: Sim) -> None:
    text = tree_server.chat("Tell me about queues.", max_tokens=40).json["choices"][0]["message"]["content"]
    stop = text.split()[6]
    answer = tree_server.stream("Tell me about queues.", max_tokens=40, stop=[stop])
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in answer.events[:-1] if event["choices"])
    assert said == text[: text.index(stop)]
    finish = next(e["choices"][0] for e in answer.events[:-1] if e["choices"] and e["choices"][0]["finish_reason"])
    assert (finish["finish_reason"], finish["matched_stop"]) == ("stop", stop)


def test_two_choices_share_one_stream(tree_server: Sim) -> None:
    real, simulated = capture("chat.stream.n2"), ask(tree_server, "chat.stream.n2")
    assert shape(simulated.events[-2]) == shape(real.events[-2])
    assert simulated.events[-2]["usage"]["completion_tokens"] == 16
    for index in (0, 1):
        mine = [e["choices"][0] for e in simulated.events[:-2] if e["choices"] and e["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == "length"


def test_the_natural_end_counts_its_end_token(tree_server: Sim) -> None:
    answer = tree_server.stream("What is 2+2? Answer with one word.", max_tokens=1500)
    finish = answer.events[-4]["choices"][0]
    assert finish["finish_reason"] == "stop"
    assert isinstance(finish["matched_stop"], int)
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in answer.events[:-3])
    tokens = tree_server.exchange("POST", "/tokenize", {"prompt": said}).json["count"]
    assert answer.events[-2]["usage"]["completion_tokens"] == tokens + 1


def test_acceptance_details_come_between_finish_and_usage(tree_server: Sim) -> None:
    events = tree_server.stream("Write a Python function fib(n).", max_tokens=64).events
    assert events[-4]["choices"][0]["finish_reason"] == "length"
    assert list(events[-3]) == ["id", "object", "created", "model", "choices", "usage", "sglext"]
    assert (events[-3]["choices"], events[-3]["usage"]) == ([], None)
    details = events[-3]["sglext"]["spec_tokens_details"]
    assert list(details) == [
        "spec_accept_rate", "spec_accept_length", "spec_cap_length", "spec_block_accept_length",
        "spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_verify_ct", "spec_correct_drafts_histogram",
        "spec_cap_lens_histogram",
    ]  # fmt: skip
    steps, correct = details["spec_verify_ct"], details["spec_num_correct_drafts"]
    histogram = details["spec_correct_drafts_histogram"]
    assert sum(histogram) == steps
    assert sum(k * count for k, count in enumerate(histogram)) == correct
    assert details["spec_num_proposed_drafts"] == steps * 8
    assert details["spec_accept_length"] == pytest.approx(64 / steps)
    assert details["spec_accept_rate"] == pytest.approx(correct / (steps * 8))
    assert correct + steps + 1 >= 64


def test_generate_is_cumulative_like_the_real_one(tree_server: Sim) -> None:
    real, simulated = capture("generate.stream"), ask(tree_server, "generate.stream")
    assert header_shape(simulated) == header_shape(real)
    assert shape(simulated.events[0]) == shape(real.events[0])
    assert shape(simulated.events[1]) == shape(real.events[1])
    assert shape(simulated.events[-2]) == shape(real.events[-2])
    texts = [event["text"] for event in simulated.events[:-1]]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    last = simulated.events[-2]
    assert len(last["output_ids"]) == last["meta_info"]["completion_tokens"] == 32
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 32}


def test_generate_whole_and_in_batches(tree_server: Sim) -> None:
    for name in ("generate.nonstream", "generate.batch"):
        real, simulated = capture(name), ask(tree_server, name)
        assert header_shape(simulated) == header_shape(real)
        assert shape(simulated.json) == shape(real.json)


def test_server_info_has_the_real_keys_in_their_order(tree_server: Sim) -> None:
    real, simulated = capture("get.server_info").json, tree_server.get("/server_info")
    extra = {"speculative_ddtree_budget", "speculative_ddtree_topk"}
    assert [key for key in simulated if key not in extra] == list(real)
    assert [key for key in simulated["internal_states"][0] if key not in extra | {"avg_spec_accept_length"}] == list(
        real["internal_states"][0]
    )
    assert simulated["version"] == "0.5.23"
    assert simulated["launch_command"].startswith("--model-path models/kimi --port 0")
    assert tree_server.get("/get_server_info")["speculative_draft_window_size"] == 2048


def test_model_info_and_loads(tree_server: Sim) -> None:
    assert shape(tree_server.get("/model_info")) == shape(capture("get.model_info").json)
    tree_server.stream("Write a Python function fib(n).", max_tokens=400)
    real, simulated = capture("get.v1_loads").json, tree_server.get("/v1/loads")
    assert [key for key in simulated["loads"][0] if key != "speculative"] == list(real["loads"][0])
    assert list(simulated) == list(real)
    assert simulated["loads"][0]["speculative"]["accept_length"] > 1
    assert "speculative" not in tree_server.get("/v1/loads?include=core,queues")["loads"][0]


def test_an_unknown_model_by_name_is_404(tree_server: Sim) -> None:
    answer = tree_server.exchange("GET", "/v1/models/nope")
    assert (answer.code, answer.json["error"]["code"]) == (404, "model_not_found")
    assert tree_server.exchange("GET", "/v1/models/smollm2").json["id"] == "smollm2"
