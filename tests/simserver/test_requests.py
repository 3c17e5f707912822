"""What a request may ask for, and what becomes of one that makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.simserver.support import Sim, running

QUESTION = "Write a Python function `gcd(a, b)`."


@pytest.fixture(scope="module")
def parsing_server(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    flags = "--speculative-algorithm DFLASH --reasoning-parser kimi_k2 --sim-speed 50"
    with running(tmp_path_factory.mktemp("sim"), *flags.split()) as sim:
        yield sim


def deltas(events: list[Any], field: str) -> list[str]:
    found = [event["choices"][0]["delta"].get(field) for event in events[:-1] if event["choices"]]
    return [text for text in found if text]


def test_a_parser_parts_reasoning_from_content(parsing_server: Sim) -> None:
    events = parsing_server.stream(QUESTION, max_tokens=2000, rid="parted").events
    thought, said = "".join(deltas(events, "reasoning_content")), "".join(deltas(events, "content"))
    (truth,) = parsing_server.truth("rid=parted&text=1")["requests"]
    assert truth["text"] == f"{thought}</think>{said}"
    usage = events[-2]["usage"]
    counted = parsing_server.exchange("POST", "/tokenize", {"prompt": [f"{thought}</think>", said]}).json["count"]
    assert usage["reasoning_tokens"] == usage["completion_tokens_details"]["reasoning_tokens"] == counted[0]
    assert usage["completion_tokens"] == sum(counted) + 1
    order = [
        "reasoning" if event["choices"][0]["delta"].get("reasoning_content") else "content"
        for event in events[1:-1]
        if event["choices"] and not event["choices"][0]["finish_reason"]
    ]
    assert order == sorted(order, reverse=True)
    assert all("reasoning_content" in event["choices"][0]["delta"] for event in events[:-1] if event["choices"])


def test_reasoning_may_be_held_back_until_it_is_complete(parsing_server: Sim) -> None:
    plain = "".join(deltas(parsing_server.stream(QUESTION, max_tokens=2000).events, "reasoning_content"))
    events = parsing_server.stream(QUESTION, max_tokens=2000, stream_reasoning=False, rid="held").events
    assert deltas(events, "reasoning_content") == [plain]
    (truth,) = parsing_server.truth("rid=held")["requests"]
    assert truth["first_tokens"] > 100, "nothing was sent before the reasoning was complete"


def test_the_parser_can_be_switched_off_and_so_can_the_reasoning(parsing_server: Sim) -> None:
    raw = parsing_server.chat(QUESTION, max_tokens=2000, separate_reasoning=False).json["choices"][0]["message"]
    assert raw["reasoning_content"] is None
    assert raw["content"].count("</think>") == 1
    quick = parsing_server.chat(QUESTION, max_tokens=2000, chat_template_kwargs={"thinking": False}).json
    message = quick["choices"][0]["message"]
    assert message["reasoning_content"] is None
    assert message["content"].startswith("Here is `gcd`")
    assert quick["usage"]["reasoning_tokens"] == 0


def test_an_answer_cut_inside_the_reasoning_has_no_content(parsing_server: Sim) -> None:
    answer = parsing_server.chat(QUESTION, max_tokens=60).json
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["reasoning_tokens"] == 60


def test_more_tokens_on_request(parsing_server: Sim) -> None:
    assert parsing_server.chat("Hi", max_tokens=1500, ignore_eos=True).json["usage"]["completion_tokens"] == 1500
    assert parsing_server.chat("Hi", max_tokens=1500, min_tokens=1400).json["usage"]["completion_tokens"] >= 1400


def test_a_conversations_earlier_turns_matter(parsing_server: Sim) -> None:
    def say(*turns: tuple[str, str]) -> str:
        messages = [{"role": role, "content": text} for role, text in turns]
        body = {"messages": messages, "temperature": 0, "max_tokens": 50, "separate_reasoning": False}
        answer = parsing_server.exchange("POST", "/v1/chat/completions", body).json
        return str(answer["choices"][0]["message"]["content"])

    last = ("user", "And now?")
    assert say(("user", "A"), ("assistant", "B"), last) != say(("user", "C"), ("assistant", "B"), last)
    assert say(("user", [{"type": "text", "text": "And now?"}])) == say(last)  # type: ignore[arg-type]


def test_incremental_generate_sends_only_what_is_new(tmp_path: Path) -> None:
    body = {
        "text": "Once upon a time", "stream": True,
        "sampling_params": {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True},
    }  # fmt: skip
    with running(tmp_path, "--incremental-streaming-output", "--sim-speed", "50") as sim:
        incremental = sim.exchange("POST", "/generate", body).events[:-1]
    with running(tmp_path, "--sim-speed", "50") as sim:
        cumulative = sim.exchange("POST", "/generate", body).events[:-1]
    assert "".join(event["text"] for event in incremental) == cumulative[-1]["text"]
    assert [n for event in incremental for n in event["output_ids"]] == cumulative[-1]["output_ids"]
    assert incremental[-1]["meta_info"]["completion_tokens"] == 40


def test_an_abort_ends_a_stream_in_the_usual_way(tmp_path: Path) -> None:
    with running(tmp_path, "--speculative-algorithm", "DFLASH") as sim:
        body = {
            "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 3000, "rid": "mine",
            "ignore_eos": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        with sim.open("POST", "/v1/chat/completions", body) as sock:
            raw = sock.recv(4096)
            assert sim.exchange("POST", "/abort_request", {"rid": "mine"}).code == 200
            while data := sock.recv(65536):
                raw += data
        assert b'"finish_reason":"abort"' in raw
        assert raw.index(b'"finish_reason":"abort"') < raw.index(b'"choices":[],"usage"') < raw.index(b"[DONE]")
        (truth,) = sim.truth("rid=mine")["requests"]
        assert (truth["outcome"], truth["finish_reason"]) == ("aborted", "abort")


def test_detokenize_is_the_way_back(parsing_server: Sim) -> None:
    tokens = parsing_server.exchange("POST", "/tokenize", {"prompt": "def gcd(a, b):"}).json["tokens"]
    assert parsing_server.exchange("POST", "/detokenize", {"tokens": tokens}).json == {"text": "def gcd(a, b):"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_tokens", "many", "Input should be a valid integer, unable to parse string as an integer"),
        ("temperature", "hot", "Input should be a valid number, unable to parse string as a number"),
        ("stop", 5, "Input should be a valid string"),
        ("stream_options", [], "Input should be a valid dictionary or object"),
        ("messages", ["hi"], "Input should be a valid dictionary"),
    ],
)
def test_wrong_types_are_named(parsing_server: Sim, field: str, value: Any, words: str) -> None:
    answer = parsing_server.chat("Hi", **{field: value})
    assert (answer.code, answer.json["object"]) == (400, "error")
    assert words in answer.json["message"]
    assert f"('body', '{field}')" in answer.json["message"]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
ROUTES = ["/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/detokenize", "/abort_request"]
FIELDS = [
    "messages", "prompt", "text", "input_ids", "max_tokens", "temperature", "stop", "stop_token_ids", "n", "seed",
    "stream_options", "chat_template_kwargs", "sampling_params", "rid", "top_logprobs", "min_tokens", "tokens",
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(
        ["/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/detokenize", "/abort_request"]
    ),
    body=st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4),
)
@example(path="/generate", body={"text": []})
def test_no_body_makes_the_server_stumble(parsing_server: Sim, path: str, body: dict[str, Any]) -> None:
    if path == "/v1/chat/completions" and "messages" not in body:
        body["messages"] = [{"role": "user", "content": "Hi"}]
    body.setdefault("max_tokens", 3)
    answer = parsing_server.exchange("POST", path, body)
    assert answer.code in (200, 400), answer.body
