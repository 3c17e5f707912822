"""The server's gauges over a real socket: absent, slow and restarted servers slow nothing and are said so."""

from __future__ import annotations

import asyncio

import pytest

from telemetry import gauges
from telemetry.combining import combine, was_reset
from telemetry.gauges import LoadsReading, MetricsReading, RankLoad, Totals
from telemetry.server import ServerGauges
from tests.telemetry.captured import answer, body, raw, replaying


async def test_sglang_both_endpoints():
    served = {"/metrics": raw("sglang-ngram", "metrics.during_load"), "/v1/loads": raw("sglang-ngram", "get.v1_loads")}
    async with replaying(served) as server:
        source = ServerGauges(server.url, "sglang")
        try:
            first = await source.sample(1.0)
            server.answers["/metrics"] = raw("sglang-ngram", "metrics.after_load")
            second = await source.sample(2.0)
        finally:
            await source.close()
    assert first.problem is None
    assert first.source == "/v1/loads+/metrics (sglang)"
    # /v1/loads counts live: nothing ran when it was recorded, so the throughput gauge tells of the past
    assert (first.running, first.stale, first.gen_throughput_tok_s) == (0, True, None)
    assert first.gen_throughput_last_tok_s == 14.585056758333
    assert first.acceptance_gauge == 1.75
    assert first.acceptance_gauge_label == gauges.SGLANG_GAUGE_LABEL
    assert first.decode_tok_s is None
    assert second.decode_tokens_total == 1315.0
    assert second.decode_tok_s is not None
    assert second.decode_tok_s > 0
    assert not second.counters_reset
    assert second.fetch_s is not None


async def test_vllm_is_never_asked_for_loads():
    async with replaying({"/metrics": raw("vllm-ngram", "metrics.before_load")}) as server:
        source = ServerGauges(server.url, "vllm")
        try:
            first = await source.sample(1.0)
            server.answers["/metrics"] = raw("vllm-ngram", "metrics.after_load")
            second = await source.sample(2.0)
        finally:
            await source.close()
        assert "/v1/loads" not in server.asked
    assert first.acceptance_gauge is None
    assert first.acceptance_lifetime == pytest.approx(1 + 45 / 27)
    assert second.acceptance_gauge == pytest.approx(1 + (57 - 45) / (62 - 27))
    assert second.acceptance_gauge_label == gauges.COUNTER_GAUGE_LABEL
    assert second.cache_hit_rate == 0.0
    assert second.queue_time_mean_s == pytest.approx((0.0019383049998396018 - 0.0010685089996513852) / 12)


async def test_absent_endpoints_are_remembered_until_a_restart():
    async with replaying({"/v1/loads": raw("sglang-plain", "get.v1_loads")}) as server:
        source = ServerGauges(server.url, "sglang")
        try:
            for t in range(3):
                sample = await source.sample(float(t))
            assert server.asked == {"/metrics": 1, "/v1/loads": 3}
            assert sample.running == 0
            assert sample.problem == "no /metrics: counters are missing (SGLang: start it with --enable-metrics)"
            source.forget()
            await source.sample(4.0)
            assert server.asked["/metrics"] == 2
        finally:
            await source.close()


async def test_a_server_without_any_gauges():
    async with replaying() as server:
        source = ServerGauges(server.url, "openai")
        try:
            sample = await source.sample(1.0)
        finally:
            await source.close()
    assert sample.running is None
    assert sample.problem == "the server has neither /v1/loads nor /metrics"


async def test_a_hanging_endpoint_is_left_alone_and_the_other_still_counts():
    served: dict[str, bytes | None] = {"/metrics": None, "/v1/loads": raw("sglang-plain", "get.v1_loads")}
    async with replaying(served) as server:
        source = ServerGauges(server.url, "sglang", timeout_s=0.2)
        try:
            first = await source.sample(1.0)
            second = await source.sample(2.0)
        finally:
            await source.close()
        assert server.asked == {"/metrics": 1, "/v1/loads": 2}
    assert first.running == second.running == 0
    assert first.problem == "/metrics: no answer within 0.2 s, next try in 2 s"
    assert second.problem == first.problem


async def test_a_hanging_endpoint_holds_up_nothing_else():
    async with replaying({"/metrics": None}) as server:
        source = ServerGauges(server.url, "vllm", timeout_s=30.0)
        waiting = asyncio.create_task(source.sample(1.0))
        async with asyncio.timeout(10):
            await server.arrived.wait()
            for _ in range(100):
                await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        sample = await source.sample(2.0)  # whoever gave up on it is not made to wait again
        await source.close()
        assert server.asked == {"/metrics": 1}
        assert "/metrics: no answer within" in (sample.problem or "")


async def test_refused_and_back_after_a_restart():
    async with replaying({"/metrics": raw("sglang-ngram", "metrics.after_load")}) as server:
        source = ServerGauges(server.url, "sglang")
        port = int(server.url.rpartition(":")[2])
        first = await source.sample(1.0)
    try:
        gone = await source.sample(2.0)
        async with replaying({"/metrics": raw("sglang-ngram", "metrics.before")}, port) as server:
            back = await source.sample(3.0)
            assert server.asked == {"/metrics": 1, "/v1/loads": 1}  # its absence before the restart proves nothing now
    finally:
        await source.close()
    assert first.problem is None or "loads" not in first.problem
    assert gone.problem == "the server refuses connections"
    assert (gone.running, gone.source) == (None, "none")
    assert back.counters_reset
    assert back.decode_tok_s is None
    assert back.generated_total == 20.0


@pytest.mark.parametrize(
    ("status", "words"),
    [("401 Unauthorized", "wants another API key"), ("500 Internal Server Error", "/metrics: HTTP 500")],
)
async def test_refusals_are_said(status: str, words: str):
    async with replaying({"/metrics": answer(status, "secret-words")}) as server:
        source = ServerGauges(server.url, "vllm", api_key="sk-very-secret")
        try:
            sample = await source.sample(1.0)
        finally:
            await source.close()
        assert "Bearer sk-very-secret" in server.heads[0]
    assert sample.problem is not None
    assert words in sample.problem
    assert "secret" not in sample.problem


async def test_a_page_of_something_else():
    async with replaying({"/metrics": answer("200 OK", "<html>hello</html>")}) as server:
        source = ServerGauges(server.url, "vllm")
        try:
            sample = await source.sample(1.0)
        finally:
            await source.close()
    assert sample.problem == "/metrics: holds none of the names of SGLang, vLLM or llama.cpp"


async def test_a_large_body_is_parsed_off_the_loop():
    large = body("sglang-ngram", "metrics.during_load") + "# padding\n" * 40_000
    async with replaying({"/metrics": answer("200 OK", large)}) as server:
        source = ServerGauges(server.url, "vllm")
        try:
            sample = await source.sample(1.0)
        finally:
            await source.close()
    assert sample.running == 1


def loads(*ranks: RankLoad) -> LoadsReading:
    return LoadsReading(ranks=ranks)


def test_lifetime_acceptance_of_several_ranks_is_not_averaged():
    ranks = [RankLoad(acceptance_lifetime=value) for value in (None, None, 2.8, 3.7, None, 4.6)]
    sample = combine(1.0, loads(*ranks), None, None, 0.0)
    assert sample.acceptance_lifetime is None
    assert sample.acceptance_by_rank == (None, None, 2.8, 3.7, None, 4.6)
    assert sample.ranks == 6


def test_the_only_rank_with_a_mean_speaks_for_all():
    sample = combine(1.0, loads(RankLoad(), RankLoad(acceptance_lifetime=2.8)), None, None, 0.0)
    assert sample.acceptance_lifetime == 2.8


def test_running_over_ranks_needs_every_rank():
    sample = combine(1.0, loads(RankLoad(running=2, waiting=1), RankLoad(running=3)), None, None, 0.0)
    assert (sample.running, sample.waiting) == (5, None)


def metrics(**totals: float) -> MetricsReading:
    return MetricsReading(family="sglang", totals=Totals(**totals), running=1)


def test_rate_from_counters():
    sample = combine(10.0, None, metrics(decode=815.0), Totals(decode=550.0), 2.0)
    assert sample.decode_tok_s == 132.5
    assert not sample.counters_reset


def test_a_counter_that_fell_is_a_reset():
    sample = combine(10.0, None, metrics(decode=5.0, generated=900.0), Totals(decode=550.0, generated=800.0), 2.0)
    assert sample.counters_reset
    assert sample.decode_tok_s is None


def test_a_counter_that_vanished_or_appeared_is_no_reset():
    assert not was_reset(Totals(decode=5.0), Totals())
    assert not was_reset(Totals(), Totals(decode=5.0))


def test_vllm_counters_made_anew_are_a_reset_even_if_higher():
    assert was_reset(Totals(decode=5.0, created=100.0), Totals(decode=50.0, created=160.0))
