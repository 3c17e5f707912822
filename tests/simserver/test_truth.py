"""The truth against what a client sees: tokens, text, acceptance, times, queueing and the prefix cache."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.simserver.support import Sim, running


def text_of(events: list[Any]) -> str:
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"])


@pytest.mark.parametrize("route", ["chat", "generate", "completions"])
def test_usage_stream_tokenize_and_truth_count_the_same(tree_server: Sim, route: str) -> None:
    rid = f"count-{route}"
    if route == "chat":
        answer = tree_server.stream("Write a Python function gcd(a, b).", max_tokens=150, rid=rid)
        text, usage = text_of(answer.events), answer.events[-2]["usage"]
        prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
        assert all(event["id"] == rid for event in answer.events[:-1])
    elif route == "generate":
        body = {
            "text": "Once upon a time", "rid": rid, "stream": True,
            "sampling_params": {"max_new_tokens": 150, "temperature": 0, "ignore_eos": True},
        }  # fmt: skip
        last = tree_server.exchange("POST", "/generate", body).events[-2]
        text, meta = last["text"], last["meta_info"]
        prompt, completion = meta["prompt_tokens"], meta["completion_tokens"]
    else:
        body = {"prompt": "Once upon a time", "max_tokens": 150, "temperature": 0, "ignore_eos": True, "rid": rid}
        answer = tree_server.exchange("POST", "/v1/completions", body)
        text, usage = answer.json["choices"][0]["text"], answer.json["usage"]
        prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    (truth,) = tree_server.truth(f"rid={rid}&text=1&chunks=1")["requests"]
    assert truth["text"] == text
    assert truth["completion_tokens"] == truth["sent_tokens"] == completion == 150
    assert truth["prompt_tokens"] == prompt
    assert sum(tokens for _, tokens in truth["chunks"]) == 150
    assert tree_server.exchange("POST", "/tokenize", {"prompt": text}).json["count"] == 150
    if route != "chat":
        assert tree_server.exchange("POST", "/tokenize", {"prompt": "Once upon a time"}).json["count"] == prompt


def test_prompt_tokens_of_a_conversation_are_those_of_tokenize(tree_server: Sim) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there, who are you?"}]
    counted = tree_server.exchange("POST", "/tokenize", {"messages": messages}).json
    answer = tree_server.exchange("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert answer.json["usage"]["prompt_tokens"] == counted["count"] == len(counted["tokens"])
    assert counted["max_model_len"] == 2048


def test_acceptance_is_a_ratio_of_sums_and_equals_the_streams_own_details(tree_server: Sim) -> None:
    details = []
    for index in range(4):
        answer = tree_server.stream(f"Write a Python function f{index}(x).", max_tokens=90, rid=f"sums-{index}")
        details.append(answer.events[-3]["sglext"]["spec_tokens_details"])
    steps = sum(one["spec_verify_ct"] for one in details)
    correct = sum(one["spec_num_correct_drafts"] for one in details)
    sums = tree_server.truth("prefix=sums-")["sums"]
    assert (sums["requests"], sums["verify_steps"], sums["correct_drafts"]) == (4, steps, correct)
    assert sums["acceptance_length"] == pytest.approx((correct + steps) / steps)
    assert sum(sums["accepted_histogram"]) == steps
    assert sums["outcomes"] == {"ok": 4}


def acceptance(tmp_path: Path, flags: str, prompts: list[str]) -> float:
    with running(tmp_path, "--speculative-algorithm", "DFLASH", "--sim-speed", "50", *flags.split()) as sim:
        for index, prompt in enumerate(prompts):
            sim.stream(prompt, max_tokens=400, ignore_eos=True, rid=f"a-{index}")
        return float(sim.truth("prefix=a-")["sums"]["acceptance_length"])


@pytest.mark.parametrize(
    ("flags", "prompt", "published"),
    [
        ("", "Write a Python function f{}(x).", 5.3),
        ("", "What should I cook tonight, idea {}?", 3.7),
        ("--sim-profile qwen3-8b", "Solve the equation {}x = 4 and prove it.", 7.79),
    ],
)
def test_acceptance_through_the_server_is_the_published_one(
    tmp_path: Path, flags: str, prompt: str, published: float
) -> None:
    prompts = [prompt.format(index) for index in range(16)]
    assert acceptance(tmp_path, flags, prompts) == pytest.approx(published, rel=0.12)


def test_a_long_context_without_a_window_accepts_less(tmp_path: Path) -> None:
    prompts = [f"{index} {'word ' * 8000}\n\nWrite a Python function f(x)." for index in range(8)]
    with_window = acceptance(tmp_path, "--speculative-draft-window-size 2048", prompts)
    assert acceptance(tmp_path, "", prompts) < 0.85 * with_window
    assert acceptance(tmp_path, "--speculative-draft-window-size 512", prompts) < 0.95 * with_window


def test_prompts_that_differ_at_their_start_only_have_their_own_luck(tree_server: Sim) -> None:
    tail = "word " * 1500 + "Write a Python function fib(n)."
    for index in range(3):
        tree_server.stream(f"{index} {tail}", max_tokens=120, rid=f"luck-{index}")
    histograms = [one["accepted_histogram"] for one in tree_server.truth("prefix=luck-")["requests"]]
    assert histograms[0] != histograms[1] != histograms[2] != histograms[0]


def test_the_first_token_comes_from_prefill_and_drafts_are_not_cut(tree_server: Sim) -> None:
    answer = tree_server.stream("Write a Python function fib(n).", max_tokens=1, rid="one")
    (truth,) = tree_server.truth("rid=one")["requests"]
    assert (truth["verify_steps"], truth["correct_drafts"], truth["acceptance_length"]) == (0, 0, None)
    assert answer.events[-3]["sglext"]["spec_tokens_details"]["spec_verify_ct"] == 0
    overshoot = 0
    for index in range(12):
        tree_server.stream(f"Write a Python function fib(n), {index}.", max_tokens=20, rid=f"cut-{index}")
    for one in tree_server.truth("prefix=cut-")["requests"]:
        assert one["completion_tokens"] == 20
        assert one["correct_drafts"] + one["verify_steps"] + 1 >= 20
        overshoot += one["correct_drafts"] + one["verify_steps"] + 1 - 20
    assert overshoot > 0


def test_times_are_on_the_clock_that_clients_share(tree_server: Sim) -> None:
    sent = time.perf_counter_ns()
    tree_server.stream("Write a Python function gcd(a, b).", max_tokens=60, rid="clock")
    received = time.perf_counter_ns()
    report = tree_server.truth("rid=clock")
    (truth,) = report["requests"]
    assert sent < truth["arrival_ns"] <= truth["first_token_due_ns"] <= truth["first_token_ns"]
    assert truth["first_token_ns"] < truth["last_token_ns"] < received
    assert report["lateness"]["steps"] > 0
    assert truth["late_max_s"] >= truth["late_mean_s"] >= 0


def test_greedy_text_is_lossless_across_speculative_settings(tmp_path: Path) -> None:
    settings = [
        "",
        "--speculative-algorithm DFLASH",
        "--speculative-algorithm DDTREE --speculative-ddtree-budget 16 --speculative-ddtree-topk 4",
    ]
    texts = []
    for flags in settings:
        with running(tmp_path, *flags.split(), "--sim-speed", "50") as sim:
            texts.append([text_of(sim.stream(f"Question {i}: why?", max_tokens=80).events) for i in range(3)])
    assert texts[0] == texts[1] == texts[2]
    with running(tmp_path, "--sim-seed", "7", "--sim-speed", "50") as sim:
        assert text_of(sim.stream("Question 0: why?", max_tokens=80).events) != texts[0][0]


def test_sampled_text_differs_and_a_seed_repeats_it(tree_server: Sim) -> None:
    def say(**extra: Any) -> str:
        return text_of(tree_server.stream("Tell me something.", max_tokens=60, temperature=0.8, **extra).events)

    assert say() != say()
    assert say(seed=3) == say(seed=3)


def test_above_max_running_requests_the_rest_waits(tmp_path: Path) -> None:
    with running(tmp_path, "--max-running-requests", "2", "--sim-speed", "20") as sim:
        threads = [
            threading.Thread(
                target=sim.stream, args=(f"Story {i}",), kwargs={"max_tokens": 800, "ignore_eos": True, "rid": f"q-{i}"}
            )
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = sim.truth("prefix=q-")
        spans = sorted((one["start_ns"], one["end_due_ns"]) for one in report["requests"])
        for index, (start, _) in enumerate(spans):
            assert sum(1 for begin, end in spans[:index] if begin < start < end) < 2
        queued = sorted(one["queued_s"] for one in report["requests"])
        assert queued[-1] > 0.1
        assert sim.get("/server_info")["internal_states"][0]["effective_max_running_requests_per_dp"] == 2


def test_a_full_queue_refuses_with_503(tmp_path: Path) -> None:
    flags = ["--max-running-requests", "1", "--max-queued-requests", "1", "--sim-fault", "hang-generate"]
    with running(tmp_path, *flags) as sim:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "rid": "held"}
        with sim.open("POST", "/v1/chat/completions", body):
            while sim.truth()["waiting"] == 0:
                time.sleep(0.01)
            answer = sim.chat("Hi", max_tokens=4)
        assert (answer.code, answer.json["type"]) == (503, "SERVICE_UNAVAILABLE")


def test_the_prefix_cache_saves_prefill_and_is_reported(tmp_path: Path) -> None:
    flags = ["--enable-cache-report", "--sim-speed", "20", "--speculative-algorithm", "DFLASH", "--enable-metrics"]
    long = "word " * 3000
    with running(tmp_path, *flags) as sim:
        cold = sim.chat(long, max_tokens=4, rid="cold").json["usage"]
        warm = sim.chat(long, max_tokens=4, rid="warm").json["usage"]
        assert cold["prompt_tokens_details"]["cached_tokens"] < 20
        assert warm["prompt_tokens_details"]["cached_tokens"] == warm["prompt_tokens"] - 1
        assert "#new-token: 1, #cached-token: " in sim.log
        cached = sim.chat(long, max_tokens=2, return_cached_tokens_details=True).json["sglext"]["cached_tokens_details"]
        assert cached == {"device": warm["prompt_tokens"] - 1, "host": 0}
        assert sim.exchange("POST", "/flush_cache?timeout=5").code == 200
        again = sim.chat(long, max_tokens=4, rid="again").json["usage"]
        assert again["prompt_tokens_details"]["cached_tokens"] == 0
    with running(tmp_path, *flags, "--disable-radix-cache") as sim:
        for _ in range(2):
            assert sim.chat(long, max_tokens=2).json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_flush_is_refused_while_anything_runs(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-fault", "hang-generate") as sim:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "rid": "held"}
        with sim.open("POST", "/v1/chat/completions", body):
            while sim.truth()["waiting"] == 0:
                time.sleep(0.01)
            assert sim.exchange("POST", "/flush_cache?timeout=0.1").code == 400
            assert sim.exchange("POST", "/abort_request", {"rid": ""}).code == 200
            assert sim.truth()["waiting"] == 1
            assert sim.exchange("POST", "/abort_request", {"rid": "held"}).code == 200
            assert sim.exchange("POST", "/flush_cache").code == 200
        (truth,) = sim.truth("rid=held")["requests"]
        assert (truth["outcome"], truth["finish_reason"]) == ("aborted", "abort")


def test_a_prompt_under_way_is_unfinished_and_can_be_aborted(tmp_path: Path) -> None:
    with running(tmp_path, "--chunked-prefill-size", "32768") as sim:
        sim.chat("Hi", max_tokens=1)
        body = {"messages": [{"role": "user", "content": "word " * 20_000}], "max_tokens": 4, "rid": "long"}
        with sim.open("POST", "/v1/chat/completions", body) as sock:
            while not sim.truth("rid=long")["requests"]:
                time.sleep(0.01)
            assert sim.truth("rid=long")["requests"][0]["first_token_ns"] is None
            assert sim.exchange("POST", "/flush_cache").code == 400
            assert sim.exchange("POST", "/abort_request", {"rid": "long"}).code == 200
            assert b'"finish_reason":"abort"' in sock.recv(65536)
        assert sim.exchange("POST", "/flush_cache?timeout=10").code == 200
        assert sim.chat("Hi", max_tokens=3).json["usage"]["completion_tokens"] == 3


def test_a_client_that_leaves_is_aborted_two_seconds_later(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-speed", "5") as sim:
        body = {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100_000, "rid": "left", "stream": True,
            "ignore_eos": True,
        }  # fmt: skip
        with sim.open("POST", "/v1/chat/completions", body) as sock:
            assert sock.recv(100)
        while sim.truth("rid=left")["requests"][0]["outcome"] == "open":
            time.sleep(0.01)
        (truth,) = sim.truth("rid=left")["requests"]
        assert truth["outcome"] == "aborted"
        assert 0 < truth["completion_tokens"] < 100_000


def test_truth_can_be_forgotten(tmp_path: Path) -> None:
    with running(tmp_path, "--sim-speed", "50", "--sim-history", "3") as sim:
        for index in range(5):
            sim.chat("Hi", max_tokens=2, rid=f"h-{index}")
        report = sim.truth()
        assert [one["rid"] for one in report["requests"]] == ["h-2", "h-3", "h-4"]
        assert report["forgotten"] == 2
        assert sim.exchange("DELETE", "/sim/truth").json == {"cleared": True}
        assert sim.truth()["requests"] == []


def test_gpus_follow_the_load_and_their_energy_is_the_integral_of_their_power(tmp_path: Path) -> None:
    with running(tmp_path, "--speculative-algorithm", "DFLASH") as sim:
        idle = sim.get("/sim/gpus")
        assert len(idle["gpus"]) == 8
        assert len({gpu["uuid"] for gpu in idle["gpus"]}) == 8
        first = idle["gpus"][0]
        assert (first["utilisation"], first["power_w"], first["throttle"]) == (0.0, 32.0, ["gpu_idle"])
        assert first["memory_used_bytes"] < first["memory_total_bytes"]
        sim.stream("Write a story", max_tokens=300, ignore_eos=True)
        busy = sim.get("/sim/gpus")
        gpu = busy["gpus"][0]
        assert gpu["utilisation"] > 0.5
        assert gpu["power_w"] > 200
        assert gpu["throttle"] == []
        seconds = (busy["t_ns"] - idle["t_ns"]) / 1e9
        joules = gpu["energy_j"] - first["energy_j"]
        assert 32.0 * seconds < joules < 430.0 * seconds
