"""The recorded `/metrics` and `/v1/loads` of real servers give the figures that stand in them."""

from __future__ import annotations

import math

import pytest

from telemetry import exposition, gauges
from telemetry.gauges import RankLoad, Totals
from tests.telemetry.captured import body


def test_sglang_with_speculation_under_load():
    found = gauges.read_metrics(body("sglang-ngram", "metrics.during_load"))
    assert found is not None
    assert (found.family, found.running, found.waiting, found.ranks) == ("sglang", 1, 0, 1)
    assert found.token_usage == 0.01
    assert found.cache_hit_rate == 0.8228346456692913
    assert found.gen_throughput_tok_s == 14.585056758333
    assert found.acceptance_gauge == 1.75
    # both series of is_streaming: 268 + 321
    assert found.totals.generated == 589.0
    assert found.totals.verify_calls == 288.0
    assert found.totals.decode == 583.0


def test_sglang_counts_finished_requests_only_but_decode_live():
    before, during, after = (
        gauges.read_metrics(body("sglang-ngram", f"metrics.{when}"))
        for when in ("before_load", "during_load", "after_load")
    )
    assert before and during and after
    assert before.totals.generated == during.totals.generated == 589.0
    assert (before.totals.decode, during.totals.decode, after.totals.decode) == (559.0, 583.0, 1315.0)
    assert after.totals.generated == 268.0 + 1089.0
    assert after.totals.verify_calls == 1006.0
    assert after.acceptance_gauge == 1.0268456375838926


def test_sglang_before_the_first_report_has_no_acceptance():
    found = gauges.read_metrics(body("sglang-ngram", "metrics.before"))
    assert found is not None
    assert found.acceptance_gauge is None
    assert found.totals.verify_calls == 7.0


def test_sglang_without_speculation():
    found = gauges.read_metrics(body("sglang-plain", "metrics.during_load"))
    assert found is not None
    assert found.running == 2
    assert found.gen_throughput_tok_s == 18.21439470125696
    assert found.acceptance_gauge is None
    assert found.totals.verify_calls is None
    assert found.totals.decode == 623.0
    assert found.totals.queued == 57.0


def test_vllm_ngram_counters():
    before, after = (gauges.read_metrics(body("vllm-ngram", f"metrics.{when}_load")) for when in ("before", "after"))
    assert before and after
    assert before.totals.drafts == 27.0
    assert (after.totals.drafts, after.totals.draft_tokens, after.totals.accepted) == (62.0, 248.0, 57.0)
    assert after.totals.accepted_per_position == (32.0, 9.0, 9.0, 7.0)
    assert after.totals.decode == after.totals.generated == 1251.0
    assert (after.running, after.waiting, after.token_usage) == (0, 0, 0.0)


def test_vllm_dflash_under_load():
    found = gauges.read_metrics(body("vllm-dflash", "metrics.during_load"))
    assert found is not None
    assert (found.family, found.running, found.waiting) == ("vllm", 12, 0)
    assert found.token_usage == 0.03418803418803418
    assert (found.totals.drafts, found.totals.draft_tokens, found.totals.accepted) == (499.0, 1996.0, 0.0)
    assert (found.totals.cache_queries, found.totals.cache_hits) == (1767.0, 0.0)


def test_llama_cpp_under_load():
    found = gauges.read_metrics(body("llama", "metrics.during_load"))
    assert found is not None
    assert (found.family, found.running, found.waiting) == ("llamacpp", 8, 4)
    assert found.totals.generated == 519.0
    assert found.totals.decode is None  # counted at a request's end: no live figure can be made of it
    assert (found.totals.drafts, found.totals.accepted) == (0.0, 0.0)


def test_loads_of_sglang():
    found = gauges.read_loads(body("sglang-ngram", "get.v1_loads").encode())
    assert found is not None
    # 0.0 of throughput and hit rate stand for "metrics are off" as well: unknown
    assert found.ranks == (RankLoad(running=0, waiting=0, token_usage=0.0),)


@pytest.mark.parametrize("server", ["vllm-dflash", "llama"])
def test_loads_of_servers_without_it(server: str):
    assert gauges.read_loads(body(server, "get.v1_loads").encode()) is None


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"loads": 3}', b'{"loads": []}', b"<html>"])
def test_loads_of_another_shape(content: bytes):
    assert gauges.read_loads(content) is None


def test_metrics_of_something_else():
    assert gauges.read_metrics("# TYPE go_threads gauge\ngo_threads 7\n") is None
    assert gauges.read_metrics("") is None


def sglang(*lines: str) -> gauges.MetricsReading:
    found = gauges.read_metrics("\n".join(lines) + "\n")
    assert found is not None
    return found


def test_data_parallel_ranks_are_summed_and_tensor_parallel_copies_are_not():
    found = sglang(
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3.0',
        'sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3.0',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 5.0',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="1"} 4.0',
        'sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="0"} 100.0',
        'sglang:realtime_tokens_total{dp_rank="1",mode="decode",tp_rank="0"} 50.0',
        'sglang:realtime_tokens_total{dp_rank="1",mode="prefill_compute",tp_rank="0"} 7000.0',
        'sglang:token_usage{dp_rank="0"} 0.25',
        'sglang:token_usage{dp_rank="1"} 0.75',
        'sglang:spec_accept_length{dp_rank="0"} 2.0',
        'sglang:spec_accept_length{dp_rank="1"} 4.0',
    )
    assert (found.running, found.ranks, found.totals.decode) == (8, 2, 150.0)
    assert found.token_usage == 0.75
    assert found.acceptance_gauge is None  # two means without their weights make no mean


def test_a_total_over_priorities_is_not_counted_twice():
    found = sglang(
        'sglang:num_queue_reqs{priority=""} 5.0',
        'sglang:num_queue_reqs{priority="1"} 2.0',
        'sglang:num_queue_reqs{priority="2"} 3.0',
    )
    assert found.waiting == 5


def test_nan_and_infinity_are_unknown():
    found = sglang("sglang:cache_hit_rate NaN", "sglang:token_usage +Inf", "sglang:num_running_reqs NaN")
    assert (found.cache_hit_rate, found.token_usage, found.running) == (None, None, None)


def test_a_broken_line_costs_only_itself():
    found = sglang('sglang:num_running_reqs{model_name="a} 3.0', "sglang:num_queue_reqs many", "sglang:token_usage 0.5")
    assert (found.running, found.waiting, found.token_usage) == (None, None, 0.5)


def test_positions_with_a_gap_are_left_out():
    found = gauges.read_metrics(
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 3\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 1\n'
    )
    assert found is not None
    assert found.totals.accepted_per_position is None


def test_vllm_engines_are_summed():
    found = gauges.read_metrics(
        'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 3\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 3\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 4\n'
    )
    assert found is not None
    assert (found.running, found.ranks, found.totals.accepted_per_position) == (5, 2, (7.0,))


def test_only_wanted_names_are_parsed():
    wanted = exposition.name_filter(["a:b"])
    found = exposition.parse('a:b{x="1"} 2\na:b_total 3\na:bc 4\n# a:b 5\n a:b 6\n', wanted)
    assert list(found) == ["a:b"]
    assert [one.value for one in found["a:b"]] == [2.0]


@pytest.mark.parametrize(("value", "wanted"), [(None, None), (0.0, None), (0.99, None), (1.0, 1.0), (math.nan, None)])
def test_possible_acceptance(value: float | None, wanted: float | None):
    assert gauges.possible_acceptance(value) == wanted


def test_totals_default_to_unknown():
    assert all(value is None for value in (getattr(Totals(), name) for name in Totals.__struct_fields__))
