"""Every fault does what its name says, and the truth tells it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.simserver.support import Sim, parse_answer, running, until

TREE = "--speculative-algorithm DDTREE --speculative-ddtree-budget {} --speculative-ddtree-topk 4 --sim-speed 20"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with running(tmp_path_factory.mktemp("sim"), *TREE.format(8).split()) as sim:
        yield sim


@pytest.fixture(autouse=True)
def no_fault_is_left(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    yield
    if "faulty" in request.fixturenames:
        request.getfixturevalue("faulty").fault(clear="all")


def text_of(events: list[Any]) -> str:
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and e.get("choices"))


def outcome(sim: Sim, rid: str) -> str:
    requests = sim.truth(f"rid={rid}")["requests"]
    return str(requests[0]["outcome"]) if requests else "unknown"


def test_faults_are_listed_set_and_cleared_while_running(faulty: Sim) -> None:
    assert faulty.fault(set=["no-usage", "truncate=0.5"]).json["active"] == {"no-usage": None, "truncate": 0.5}
    assert faulty.fault(clear=["no-usage"]).json["active"] == {"truncate": 0.5}
    refused = faulty.fault(set="no-such")
    assert (refused.code, "known are:" in refused.json["error"]) == (400, True)
    assert faulty.fault(clear="all").json["active"] == {}
    assert "ignore-window" in faulty.get("/sim/fault")["known"]


def test_stream_error_is_an_error_event_under_a_200(faulty: Sim) -> None:
    faulty.fault(set="stream-error=1")
    answer = faulty.stream("Tell me.", max_tokens=80, rid="err")
    assert answer.code == 200
    assert answer.complete
    errors = [event["error"] for event in answer.events if event != "[DONE]" and "error" in event]
    assert [(error["code"], error["type"]) for error in errors] == [(503, "SERVICE_UNAVAILABLE")]
    assert answer.events[-1] == "[DONE]"
    assert not any(e["choices"][0]["finish_reason"] for e in answer.events[:-1] if e.get("choices"))
    assert outcome(faulty, "err") == "error"
    (truth,) = faulty.truth("rid=err&text=1")["requests"]
    assert truth["text"] == text_of(answer.events)
    assert truth["completion_tokens"] == truth["sent_tokens"] < 80


def test_truncate_is_a_clean_end_without_finish_or_done(faulty: Sim) -> None:
    faulty.fault(set="truncate=1")
    answer = faulty.stream("Tell me.", max_tokens=80, rid="trunc")
    assert answer.complete
    assert "[DONE]" not in answer.events
    assert not any(event["choices"][0]["finish_reason"] for event in answer.events)
    assert outcome(faulty, "trunc") == "truncated"


def test_cut_is_a_lost_connection(faulty: Sim) -> None:
    faulty.fault(set="cut=1")
    answer = faulty.stream("Tell me.", max_tokens=80, rid="cut")
    assert not answer.complete
    assert answer.chunks
    assert outcome(faulty, "cut") == "cut"


def test_stall_goes_silent_and_stays_open(faulty: Sim) -> None:
    faulty.fault(set="stall=1")
    body = {
        "messages": [{"role": "user", "content": "Tell me."}], "stream": True, "max_tokens": 80, "rid": "stall",
        "temperature": 0,
    }  # fmt: skip
    with faulty.open("POST", "/v1/chat/completions", body) as sock:
        until(lambda: outcome(faulty, "stall") == "stalled", "the stall")
        sock.settimeout(0.5)
        raw = b""
        with pytest.raises(TimeoutError):
            while True:
                data = sock.recv(65536)
                assert data, "the connection stays open"
                raw += data
        assert parse_answer(raw).chunks


def test_a_share_hits_about_that_share_of_streams(faulty: Sim) -> None:
    faulty.fault(set="truncate=0.5")
    for index in range(30):
        faulty.stream("Tell me.", max_tokens=12, rid=f"share-{index}")
    outcomes = faulty.truth("prefix=share-")["sums"]["outcomes"]
    assert outcomes["ok"] + outcomes["truncated"] == 30
    assert 6 <= outcomes["truncated"] <= 24


def test_no_usage(faulty: Sim) -> None:
    faulty.fault(set="no-usage")
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = faulty.stream("Tell me.", max_tokens=20, stream_options=options).events
    assert not any(event.get("usage") for event in events[:-1])
    assert faulty.chat("Tell me.", max_tokens=20).json["usage"] is None


def test_no_spec_details(faulty: Sim) -> None:
    faulty.fault(set="no-spec-details")
    assert not any("sglext" in event for event in faulty.stream("Tell me.", max_tokens=40).events[:-1])
    body = {"text": "Once", "sampling_params": {"max_new_tokens": 40, "temperature": 0}}
    meta = faulty.exchange("POST", "/generate", body).json["meta_info"]
    assert not any(key.startswith("spec_") for key in meta)


def test_hang_generate_answers_health_and_nothing_else(faulty: Sim) -> None:
    faulty.fault(set="hang-generate")
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 4}
    with faulty.open("POST", "/v1/chat/completions", body, timeout=0.5) as sock, pytest.raises(TimeoutError):
        sock.recv(1)
    assert faulty.exchange("GET", "/health").code == 200
    assert faulty.exchange("GET", "/v1/models").code == 200
    faulty.fault(clear="hang-generate")
    assert faulty.chat("Hi", max_tokens=4).code == 200


def test_reject_drafts_leaves_one_token_a_step(faulty: Sim) -> None:
    faulty.fault(set="reject-drafts")
    faulty.stream("Tell me.", max_tokens=40, rid="refused", ignore_eos=True)
    (truth,) = faulty.truth("rid=refused")["requests"]
    assert (truth["verify_steps"], truth["correct_drafts"], truth["acceptance_length"]) == (39, 0, 1.0)


def test_small_batch_runs_fewer_than_the_settings_say(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-fault", "small-batch=1", "--sim-speed", "20") as sim:
        first = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300, "rid": "one", "ignore_eos": True}
        with sim.open("POST", "/v1/chat/completions", first) as sock:
            sim.chat("Hello", max_tokens=3, rid="two")
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
        one, two = (sim.truth(f"rid={rid}")["requests"][0] for rid in ("one", "two"))
        assert two["start_ns"] >= one["end_due_ns"]
        assert sim.get("/server_info")["internal_states"][0]["effective_max_running_requests_per_dp"] == 256


def test_batches_larger_than_the_captured_graphs_say_so_and_are_slower(tmp_path: Path) -> None:
    def stories(sim: Sim, count: int) -> None:
        body = {"max_tokens": 400, "ignore_eos": True, "stream": True}
        with contextlib.ExitStack() as stack:
            socks = [
                stack.enter_context(
                    sim.open(
                        "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": f"{n}"}], **body}
                    )
                )
                for n in range(count)
            ]
            for sock in socks:
                while sock.recv(65536):
                    pass

    with running(tmp_path, "--cuda-graph-max-bs-decode", "2", "--sim-speed", "20") as sim:
        assert sim.get("/server_info")["internal_states"][0]["decode_cuda_graph_bs"] == [1, 2]
        stories(sim, 2)
        assert "#running-req: 2" in sim.log
        assert "cuda graph: False, gen throughput" not in sim.log
        stories(sim, 3)
        lines = [line for line in sim.log.splitlines() if "Decode batch, #running-req: 3" in line]
        assert lines
        assert all("cuda graph: False" in line for line in lines)


def test_server_error_refuses_a_share_of_requests(faulty: Sim) -> None:
    faulty.fault(set="server-error=1")
    answer = faulty.stream("Hi", max_tokens=4)
    assert (answer.code, answer.json["object"]) == (503, "error")


def test_gpu_faults(faulty: Sim) -> None:
    faulty.fault(set=["gpu-lost=3", "gpu-throttle=5"])
    gpus = faulty.get("/sim/gpus")["gpus"]
    assert [gpu["state"] for gpu in gpus].index("lost") == 3
    assert "power_w" not in gpus[3]
    assert "hw_thermal_slowdown" in gpus[5]["throttle"]
    assert gpus[5]["temperature_c"] > gpus[4]["temperature_c"] + 5


def test_a_throttling_gpu_slows_every_step(faulty: Sim) -> None:
    def span(rid: str) -> float:
        faulty.stream("Tell me more.", max_tokens=200, ignore_eos=True, rid=rid)
        (truth,) = faulty.truth(f"rid={rid}")["requests"]
        return float(truth["end_due_ns"] - truth["first_token_due_ns"]) / truth["verify_steps"]

    for index in range(3):
        faulty.stream("Warm up.", max_tokens=200, ignore_eos=True, rid=f"warm-{index}")
    normal = span("normal")
    faulty.fault(set="gpu-throttle=0")
    assert span("throttled") > 1.1 * normal


def test_mask_corruption_hits_wide_trees_only(tmp_path: Path) -> None:
    prompts = [f"Write a Python function f{index}(x) that adds {index}." for index in range(8)]
    found: dict[tuple[int, bool], tuple[float, list[str]]] = {}
    for budget in (8, 16):
        with running(tmp_path, *TREE.format(budget).split()) as sim:
            for broken in (False, True):
                sim.exchange("DELETE", "/sim/truth")
                sim.fault(set="mask-corruption" if broken else [])
                texts = [text_of(sim.stream(prompt, max_tokens=120).events) for prompt in prompts]
                found[budget, broken] = (sim.truth()["sums"]["acceptance_length"], texts)
    assert found[8, True][1] == found[8, False][1] == found[16, False][1]
    assert all(a != b for a, b in zip(found[16, True][1], found[16, False][1], strict=True))
    assert found[16, True][0] < found[8, False][0] < found[16, False][0]


def test_wrong_model_name(tmp_path: Path) -> None:
    with running(tmp_path, "--served-model-name", "kimi-k2.6", "--sim-fault", "wrong-model-name") as sim:
        assert sim.get("/v1/models")["data"][0]["id"] == "another-model"
        assert sim.get("/server_info")["served_model_name"] == "another-model"
        assert sim.chat("Hi", max_tokens=2, model="kimi-k2.6").json["model"] == "kimi-k2.6"


def first_token_s(sim: Sim, rid: str) -> float:
    sim.stream("Hi", max_tokens=2, rid=rid)
    (truth,) = sim.truth(f"rid={rid}")["requests"]
    return float(truth["first_token_due_ns"] - truth["arrival_ns"]) / 1e9


def test_cold_start_costs_the_first_request_only(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-fault", "cold-start=8", "--sim-speed", "10") as sim:
        assert first_token_s(sim, "first") > 0.8
        with contextlib.suppress(KeyError):
            first_token_s(sim, "second")
        assert first_token_s(sim, "third") < 0.4


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_eval_pass_rate(tmp_path: Path, rate: float) -> None:
    with running(
        tmp_path, "--sim-eval-pass-rate", str(rate), "--sim-speed", "100", "--reasoning-parser", "kimi_k2"
    ) as sim:
        message = sim.chat("Write a Python function `fib(n)`.", max_tokens=3000).json["choices"][0]["message"]
        code = message["content"].split("```python\n")[-1].split("```")[0]
        scope: dict[str, Any] = {}
        exec(code, scope)
        assert (scope["fib"](10) == 55) is (rate == 1.0)
        assert "```python" in message["reasoning_content"]
        assert "</think>" not in message["content"] + message["reasoning_content"]
