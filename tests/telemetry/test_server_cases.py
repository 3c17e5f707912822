"""Field cases of the server's gauges: several ranks, means since the start, restarts, idle servers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry import gauges
from telemetry.combining import combine
from telemetry.gauges import LoadsReading, RankLoad

DATA = Path(__file__).parents[1] / "cases" / "data"


def case(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text())


def test_f32_ranks_without_a_number_and_ranks_of_other_weight():
    states = case("F32", "server_info.json")["internal_states"]
    ranks = tuple(RankLoad(acceptance_lifetime=state.get("avg_spec_accept_length")) for state in states)
    sample = combine(0.0, LoadsReading(ranks=ranks), None, None, 0.0)
    assert sample.acceptance_lifetime is None  # neither the first one's nothing nor the mean 3.7
    assert sample.acceptance_by_rank == (None, None, 2.8, 3.7, None, 4.6)


def test_f33_the_mean_since_the_start_is_no_cells_gauge():
    for file, wanted in (("before_A", None), ("after_A", 4.0), ("after_B", 3.0)):
        states = case("F33", f"server_info_{file}.json")["internal_states"]
        rank = RankLoad(acceptance_lifetime=states[0].get("avg_spec_accept_length"))
        sample = combine(0.0, LoadsReading(ranks=(rank,)), None, None, 0.0)
        assert sample.acceptance_lifetime == wanted
        assert sample.acceptance_gauge is None


def test_f34_counters_start_again():
    wanted = case("F34", "expected.json")["intervals"]
    readings = {}
    for t in (0, 10, 95, 105):
        readings[t] = gauges.read_metrics((DATA / "F34" / f"scrape_{t:03d}s.txt").read_text())
    for interval in wanted:
        before, after = readings[interval["from"]], readings[interval["to"]]
        assert before is not None
        sample = combine(interval["to"], None, after, before.totals, interval["to"] - interval["from"])
        assert sample.counters_reset is interval.get("reset", False)
        assert sample.generated_total is not None
        assert sample.verify_calls_total is not None
        if interval.get("reset"):
            assert sample.decode_tok_s is None
            assert sample.generated_total == interval["tokens_at_least"]
            continue
        tokens = sample.generated_total - (before.totals.generated or 0)
        assert tokens == interval["tokens"]
        assert sample.verify_calls_total - (before.totals.verify_calls or 0) == interval["verifies"]
        assert tokens / (interval["to"] - interval["from"]) == interval["tok_s"]


def test_f35_an_idle_server():
    wanted = case("F35", "expected.json")
    text = (DATA / "F35" / "metrics.txt").read_text()
    first = gauges.read_metrics(text)
    assert first is not None
    sample = combine(1.0, None, first, first.totals, 1.0)
    assert sample.running == wanted["running"]
    assert sample.stale
    assert sample.gen_throughput_tok_s is wanted["gen_throughput_live"]
    assert sample.gen_throughput_last_tok_s == wanted["gen_throughput_last"]
    assert (sample.acceptance_gauge, sample.acceptance_gauge_label) == (wanted["accept_len"], None)
    assert sample.cache_hit_rate is wanted["cache_hit_rate"]
    assert sample.queue_time_mean_s is wanted["mean_queue_time_s"]
    line = msgspec.json.encode(sample).decode()
    assert "NaN" not in line
    assert not [v for v in json.loads(line).values() if isinstance(v, float) and not math.isfinite(v)]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_f35_any_gauge_may_be_no_number(value: str):
    names = ("num_running_reqs", "num_queue_reqs", "token_usage", "gen_throughput", "spec_accept_length")
    counters = (
        "generation_tokens_total",
        "spec_verify_calls_total",
        "queue_time_seconds_sum",
        "queue_time_seconds_count",
    )
    reading = gauges.read_metrics("".join(f"sglang:{name} {value}\n" for name in names + counters))
    sample = combine(1.0, None, reading, reading.totals if reading else None, 1.0)
    known = {name for name in sample.__struct_fields__ if getattr(sample, name) not in (None, False)}
    assert known == {"t", "source", "ranks"}
