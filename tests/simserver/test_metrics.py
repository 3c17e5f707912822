"""`/metrics` beside the recorded page: same names, types and labels, and counters that move when the real ones do."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.simserver.support import Sim, capture, running

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def families(page: str) -> dict[str, tuple[str, dict[str, frozenset[str]]]]:
    """Name to type and, for each sample name, its label names."""
    return {
        family.name: (family.type, {sample.name: frozenset(sample.labels) for sample in family.samples})
        for family in text_string_to_metric_families(page)
    }


def values(sim: Sim, name: str, **labels: str) -> float:
    total = 0.0
    for family in text_string_to_metric_families(sim.exchange("GET", "/metrics").body.decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                total += sample.value
    return total


def test_names_types_and_labels_are_the_real_ones(tree_server: Sim) -> None:
    tree_server.stream("Write a Python function fib(n).", max_tokens=100)
    answer = tree_server.exchange("GET", "/metrics")
    real, simulated = families(capture("metrics.after_load").body.decode()), families(answer.body.decode())
    unknown = set(simulated) - set(real) - {"sglang:num_aborted_requests"}
    assert not unknown
    for name, (kind, samples) in simulated.items():
        if name in real:
            assert (kind, samples) == real[name]
    for name in (
        "gen_throughput",
        "spec_accept_length",
        "spec_verify_calls",
        "realtime_tokens",
        "time_to_first_token_seconds",
    ):
        assert f"sglang:{name}" in simulated


def test_finished_requests_move_the_counters_and_steps_move_the_live_one(tree_server: Sim) -> None:
    names = ("sglang:generation_tokens_total", "sglang:spec_verify_calls_total", "sglang:num_requests_total")
    before = [values(tree_server, name) for name in names]
    live = values(tree_server, "sglang:realtime_tokens_total", mode="decode")
    tree_server.stream("Write a Python function fib(n).", max_tokens=200, rid="metered")
    (truth,) = tree_server.truth("rid=metered")["requests"]
    after = [values(tree_server, name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [200, truth["verify_steps"], 1]
    moved = values(tree_server, "sglang:realtime_tokens_total", mode="decode") - live
    assert moved == truth["verify_steps"] + truth["correct_drafts"]


def test_generated_tokens_are_counted_at_the_end_and_decoded_ones_at_once(tmp_path: Path) -> None:
    with running(tmp_path, "--enable-metrics", "--sim-speed", "2") as sim:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 4000, "ignore_eos": True}
        with sim.open("POST", "/v1/chat/completions", body) as sock:
            while values(sim, "sglang:realtime_tokens_total", mode="decode") < 10:
                assert sock.recv(4096)
            assert values(sim, "sglang:generation_tokens_total") == 0
        assert values(sim, "sglang:http_requests_total", endpoint="/v1/chat/completions") == 1


def test_without_the_flag_there_is_no_page(tmp_path: Path) -> None:
    with running(tmp_path) as sim:
        answer = sim.exchange("GET", "/metrics")
        assert (answer.code, answer.json) == (404, {"detail": "Not Found"})


def test_a_flush_resets_the_lifetime_acceptance(tree_server: Sim) -> None:
    tree_server.stream("Write a Python function fib(n).", max_tokens=600, ignore_eos=True)
    internal = tree_server.get("/server_info")["internal_states"][0]
    assert internal["avg_spec_accept_length"] > 1
    assert tree_server.exchange("POST", "/flush_cache?timeout=10").code == 200
    assert "avg_spec_accept_length" not in tree_server.get("/server_info")["internal_states"][0]


@pytest.mark.parametrize("include", ["spec", "core,spec"])
def test_loads_tell_the_lifetime_acceptance(tree_server: Sim, include: str) -> None:
    tree_server.stream("Write a Python function fib(n).", max_tokens=600, ignore_eos=True)
    load = tree_server.get(f"/v1/loads?include={include}")["loads"][0]
    assert 1 < load["speculative"]["accept_length"] < 9
    assert load["speculative"]["accept_rate"] < 1
    page = tree_server.exchange("GET", "/v1/loads?format=prometheus").body.decode()
    assert 'sglang_spec_accept_length{dp_rank="0"} ' in page


def test_environment_variables_show_only_when_asked(tmp_path: Path) -> None:
    flags = ["--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8"]
    env = {"SGLANG_DDTREE_MAX_TOPK": "6", "SGLANG_EXPOSE_OWN_ENV_VARS": "1"}
    with running(tmp_path, *flags, env=env) as sim:
        info = sim.get("/server_info")
    assert info["internal_states"][0]["env_vars"]["SGLANG_DDTREE_MAX_TOPK"] == "6"
    assert info["speculative_ddtree_topk"] == 6
