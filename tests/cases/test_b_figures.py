"""Field cases of kind B: what the figures must be, and what they must never be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadgen.cell_acceptance import acceptance
from loadgen.decode_log import read_batch_line
from loadgen.figures import Mark, MarkKind, ServerWindow
from loadgen.measure import measure_cell
from loadgen.reading import generated_tokens, reasoning_tokens
from loadgen.records import AcceptanceSource, Outcome, RequestRecord
from loadgen.request_figures import chunk_gaps_s, decode_tok_s, token_gaps_s, tpot_s
from loadgen.wire import Usage
from sessions.points import Estimate, ratio, verdict
from telemetry import gauges
from telemetry.server import combine
from telemetry.windows import server_window
from tests.loadgen.records import cell, evenly, failed, ok

DATA = Path(__file__).parent / "data"


def case(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text())


def expected(name: str) -> Any:
    return case(name, "expected.json")


def close(value: float) -> Any:
    return pytest.approx(value, rel=0.005)


def kinds(marks: tuple[Mark, ...]) -> set[MarkKind]:
    return {mark.kind for mark in marks}


def two_ends(first_ms: float | None, last_ms: float | None, tokens: int | None, **changes: Any) -> RequestRecord:
    """A request of which only the times of its first and last token are known."""
    if first_ms is None or last_ms is None:
        return ok(0.0, n_out=tokens, **changes)
    chunks = [(first_ms / 1e3, None)] + ([(last_ms / 1e3, None)] if last_ms > first_ms else [])
    return ok(0.0, *chunks, n_out=tokens, **changes)


def spec_request(tokens: int | None, steps: int | None, rid: str = "r", **changes: Any) -> RequestRecord:
    return ok(0.0, (0.1, 1), (1.0, None), n_out=tokens, verify_steps=steps, rid=rid, **changes)


def test_f25_inter_token_latency_of_chunks_with_several_tokens() -> None:
    given, wanted = case("F25", "events.json"), expected("F25")
    record = ok(0.0, *((e["t_ms"] / 1e3, e["tokens"]) for e in given["events"]), n_out=given["usage_completion_tokens"])
    assert record.ttft == close(wanted["ttft_ms"] / 1e3)
    assert tpot_s(record) == close(wanted["tpot_ms"] / 1e3)
    assert decode_tok_s(record) == close(wanted["decode_tok_s"])
    per_token = [gap * 1e3 for gap, tokens in token_gaps_s(record) for _ in range(tokens)]
    assert per_token == pytest.approx(wanted["per_token_gaps_ms"], rel=0.005)
    figures = measure_cell([record], cell(1))
    assert figures.output_tokens == wanted["completion_tokens"]
    assert figures.chunk_gap_s.p50 == close(wanted["chunk_gap_ms"] / 1e3)
    assert figures.itl_s.n == 24
    assert figures.itl_s.p50 is not None
    assert figures.itl_s.p50 < 0.01
    assert len(chunk_gaps_s(record)) == 7


def test_f26_answers_of_no_one_and_two_tokens() -> None:
    wanted = expected("F26")
    records = [
        two_ends(r["ttft_ms"], r["t_last_ms"], r["tokens"], finish_reason=r["finish"], rid=r["id"])
        for r in case("F26", "requests.json")
    ]
    for record in records:
        tpot = wanted["tpot_ms"][record.rid]
        assert tpot_s(record) == (None if tpot is None else close(tpot / 1e3))
    figures = measure_cell(records, cell(1, max_tokens=1))
    assert figures.tpot_s.n == 2  # the two without a time a token are left out, not counted as 0
    assert figures.tpot_s.p50 == close(wanted["mean_tpot_over_requests"] / 1e3)  # of two, median and mean are one
    assert figures.ttft_s.n == 3
    assert figures.ttft_s.p50 == close(wanted["mean_ttft_ms"] / 1e3)
    assert sum(1 for r in records if r.valid and not r.chunks) == wanted["empty_answers"]


def test_f27_delivered_tokens_and_not_those_asked_for() -> None:
    seen, asked, wanted = case("F27", "observed.json"), case("F27", "request.json"), expected("F27")
    record = two_ends(seen["ttft_ms"], seen["t_last_token_ms"], seen["usage"]["completion_tokens"])
    assert tpot_s(record) == close(wanted["tpot_ms"] / 1e3)
    figures = measure_cell([record], cell(1, max_tokens=asked["max_tokens"], ignore_eos=True))
    assert figures.output_tokens == wanted["completion_tokens"]
    assert MarkKind.SHORT_OUTPUT in kinds(figures.marks)


def test_f28_decode_ends_with_the_last_token() -> None:
    seen, wanted = case("F28", "observed.json"), expected("F28")
    record = two_ends(
        seen["ttft_ms"], seen["t_last_token_ms"], seen["usage"]["completion_tokens"], t=seen["t_done_ms"] / 1e3
    )
    assert tpot_s(record) == close(wanted["tpot_ms"] / 1e3)
    assert decode_tok_s(record) == close(wanted["decode_tok_s"])
    assert record.e2e == close(wanted["e2e_last_token_ms"] / 1e3)
    assert record.t == close(wanted["e2e_stream_end_ms"] / 1e3)
    figures = measure_cell([record], cell(1))
    assert figures.whole_run_throughput_tok_s == close(81 / 1.0)


def test_f29_ramp_and_tail_are_not_in_the_headline() -> None:
    wanted = expected("F29")
    slots = (0, 1, 1, 0)
    records = [
        evenly(r["start_s"], r["first_s"] - r["start_s"], r["last_s"] - r["start_s"], r["tokens"], slot=slot)
        for r, slot in zip(case("F29", "requests.json"), slots, strict=True)
    ]
    figures = measure_cell(records, cell(2))
    assert figures.output_tokens == wanted["total_tokens"]
    assert figures.whole_run_throughput_tok_s == close(wanted["cell_tok_s"])
    assert [decode_tok_s(r) for r in records] == pytest.approx(wanted["per_user_decode_tok_s"])
    # Two in flight from 0 to 11 s; the steady window leaves out the wait for the first tokens.
    assert figures.steady_end_t == close(wanted["full_load_window_s"][1])
    assert figures.steady_start_t == close(1.0)
    assert figures.throughput_tok_s == close((wanted["full_load_tok_s"] * 11 - 2) / 10)
    assert figures.throughput_tok_s is not None
    assert figures.throughput_tok_s < 20.0 < 40.0
    assert figures.effective_concurrency == close(2.0)


def test_f30_acceptance_length_counts_the_bonus_once() -> None:
    meta, wanted = case("F30", "generate_meta_info.json"), expected("F30")
    record = spec_request(
        meta["completion_tokens"],
        meta["spec_verify_ct"],
        correct_drafts=meta["spec_num_correct_drafts"],
        proposed_drafts=meta["spec_num_proposed_drafts"],
        accepted_histogram=tuple(meta["spec_correct_drafts_histogram"]),
    )
    found = acceptance([record], chain=True)
    assert found.length == close(wanted["committed_per_verify"])
    assert found.length is not None
    assert found.length <= wanted["block_size"]
    assert found.rate == close(wanted["accept_rate"])
    assert found.histogram is not None
    assert sum(found.histogram) == wanted["verify_steps"]
    drafts = sum(k * steps for k, steps in enumerate(found.histogram)) / sum(found.histogram)
    assert drafts == close(wanted["accepted_drafts_per_step"])
    assert found.survival is not None
    assert math.fsum(found.survival) == close(wanted["accepted_drafts_per_step"])


def test_f32_acceptance_over_ranks_is_a_ratio_of_sums_of_our_requests() -> None:
    wanted = expected("F32")
    records = [
        spec_request(r["completion_tokens"], r["spec_verify_ct"], rid=str(i))
        for i, r in enumerate(case("F32", "requests.json"))
    ]
    states = case("F32", "server_info.json")["internal_states"]
    told = [s["avg_spec_accept_length"] for s in states if "avg_spec_accept_length" in s]
    mean = ServerWindow(lifetime_acceptance=sum(told) / len(told))
    figures = measure_cell(records, cell(1), server=mean)
    assert figures.acceptance_length == pytest.approx(wanted["cell_accept_len"], abs=wanted["tolerance"])
    assert figures.acceptance_source == AcceptanceSource.PER_REQUEST_TOKENS


def test_f33_the_servers_mean_over_its_life_does_not_leak_into_a_cell() -> None:
    wanted = expected("F33")
    lifetime = case("F33", "server_info_after_B.json")["internal_states"][0]["avg_spec_accept_length"]
    records = [
        spec_request(r["completion_tokens"], r["spec_verify_ct"], rid=str(i))
        for i, r in enumerate(case("F33", "requests_B.json"))
    ]
    figures = measure_cell(records, cell(1), server=ServerWindow(lifetime_acceptance=lifetime))
    assert figures.acceptance_length == pytest.approx(wanted["cell_B_accept_len"], abs=wanted["tolerance"])
    before = case("F33", "server_info_before_A.json")["internal_states"][0].get("avg_spec_accept_length")
    untold = measure_cell([ok(0.0, (0.1, 1), (1.0, 5))], cell(1), server=ServerWindow(lifetime_acceptance=before))
    assert untold.acceptance_length is wanted["before_A"]


def test_f34_counters_that_started_again_give_no_difference() -> None:
    times = (0, 10, 95, 105)
    readings = [gauges.read_metrics((DATA / "F34" / f"scrape_{t:03d}s.txt").read_text()) for t in times]
    samples = []
    for i, t in enumerate(times):
        before = None if i == 0 else readings[i - 1]
        previous = None if before is None else before.totals
        samples.append(combine(float(t), None, readings[i], previous, float(t - times[i - 1]) if i else 0.0))
    for wanted in expected("F34")["intervals"]:
        facts = server_window(samples, wanted["from"], wanted["to"])
        if wanted.get("reset"):
            assert facts.counters_reset
            assert facts.generated is None
        else:
            assert facts.generated == wanted["tokens"]
            assert facts.verify_calls == wanted["verifies"]
        window = msgspec.convert(msgspec.to_builtins(facts), ServerWindow)
        figures = measure_cell([ok(0.0, (0.1, 1), (1.0, 5))], cell(1), server=window)
        if wanted.get("reset"):
            assert figures.acceptance_length is None
        else:
            assert figures.acceptance_length == close(wanted["tokens"] / wanted["verifies"])
            assert figures.acceptance_source == AcceptanceSource.TOKENS_PER_VERIFY


def test_f35_an_idle_servers_gauges_are_no_figures() -> None:
    wanted = expected("F35")
    sample = combine(0.0, None, gauges.read_metrics((DATA / "F35" / "metrics.txt").read_text()), None, 0.0)
    assert sample.running == wanted["running"]
    assert sample.gen_throughput_tok_s is wanted["gen_throughput_live"]
    assert sample.gen_throughput_last_tok_s == close(wanted["gen_throughput_last"])
    assert sample.acceptance_gauge is wanted["accept_len"]
    assert sample.cache_hit_rate is wanted["cache_hit_rate"]
    assert sample.queue_time_mean_s is wanted["mean_queue_time_s"]
    assert b"NaN" not in msgspec.json.encode(sample)
    figures = measure_cell([ok(0.0, (0.1, 1), (1.0, 5))], cell(1), server=ServerWindow(lifetime_acceptance=0.0))
    assert figures.acceptance_length is None
    assert MarkKind.DRAFTS_REJECTED not in kinds(figures.marks)


def test_f37_an_answer_that_is_all_thinking_was_delivered() -> None:
    seen, wanted = case("F37", "observed.json"), expected("F37")
    usage = seen["usage"]
    record = two_ends(
        seen["first_reasoning_ms"],
        seen["last_reasoning_ms"],
        usage["completion_tokens"],
        reasoning_tokens=usage["reasoning_tokens"],
        finish_reason=seen["finish_reason"],
    )
    assert record.ttft == close(wanted["ttft_ms"] / 1e3)
    assert tpot_s(record) == close(wanted["tpot_ms"] / 1e3)
    figures = measure_cell([record], cell(1, max_tokens=128))
    assert figures.output_tokens == wanted["completion_tokens"]
    assert figures.reasoning_tokens == 128
    assert figures.ttfo_s.p50 is None
    assert figures.requests.valid == 1


def test_f38_thinking_is_counted_once() -> None:
    wanted = expected("F38")
    usages = [msgspec.convert(usage, Usage) for usage in case("F38", "usages.json")]
    assert [generated_tokens(usage) for usage in usages] == wanted["generated_tokens"]
    assert [reasoning_tokens(usage) for usage in usages] == wanted["reasoning_tokens"]


def test_f39_only_the_server_counts_tokens() -> None:
    seen, wanted = case("F39", "observed.json"), expected("F39")
    record = two_ends(seen["ttft_ms"], seen["t_last_token_ms"], seen["usage"]["completion_tokens"])
    assert tpot_s(record) == close(wanted["tpot_ms"] / 1e3)
    assert measure_cell([record], cell(1)).output_tokens == wanted["completion_tokens"]
    without = case("F39", "observed_no_usage.json")
    figures = measure_cell([two_ends(without["ttft_ms"], without["t_last_token_ms"], None)], cell(1))
    assert figures.output_tokens is None
    assert figures.tpot_s.p50 is None
    assert MarkKind.UNMEASURED in kinds(figures.marks)


def from_outcome(given: dict[str, Any]) -> RequestRecord:
    if given["ok"]:
        return two_ends(given["ttft_ms"], given["e2e_ms"], given["tokens"], rid=str(given["i"]))
    outcome = Outcome.HTTP_4XX if given["error"].startswith("HTTP 4") else Outcome.ABORTED
    ttft = given.get("ttft_ms")
    return failed(
        0.0,
        given["e2e_ms"] / 1e3,
        outcome,
        rid=str(given["i"]),
        error=given["error"],
        n_out=given["tokens"],
        ttft=None if ttft is None else ttft / 1e3,
    )


def test_f40_fast_failures_improve_nothing() -> None:
    wanted = expected("F40")
    figures = measure_cell([from_outcome(r) for r in case("F40", "requests.json")], cell(10))
    assert figures.requests.valid == wanted["ok"]
    assert figures.requests.failed == {"aborted": 1, "http_4xx": 2}
    assert figures.ttft_s.p50 == close(wanted["mean_ttft_ms"] / 1e3)
    assert figures.e2e_s.p50 == close(wanted["mean_e2e_ms"] / 1e3)
    assert figures.output_tokens == wanted["tokens"]
    errors = next(mark for mark in figures.marks if mark.kind is MarkKind.ERRORS)
    assert "3 of 10" in errors.reason
    nothing = measure_cell([from_outcome(r) for r in case("F40", "requests_all_failed.json")], cell(1))
    assert nothing.requests.valid == wanted["all_failed"]["ok"]
    assert nothing.ttft_s.p50 is wanted["all_failed"]["mean_ttft_ms"]
    assert nothing.throughput_tok_s is wanted["all_failed"]["tok_s"]
    assert nothing.whole_run_throughput_tok_s is None
    assert MarkKind.ERRORS in kinds(nothing.marks)


def test_f41_the_accept_rate_is_for_chains_and_ranks_nothing() -> None:
    wanted = expected("F41")
    rates, lengths = [], {}
    for preset in case("F41", "presets.json"):
        drafts, steps = preset["num_draft_tokens"] - 1, 1000
        record = spec_request(
            None,
            steps,
            correct_drafts=round((preset["accept_len"] - 1) * steps),
            proposed_drafts=drafts * steps,
        )
        rates.append(acceptance([record], chain=True).rate)
        tree = measure_cell([record], cell(1), chain=False)
        assert tree.accept_rate is None
        assert not kinds(tree.marks) & {MarkKind.DRAFTS_REJECTED, MarkKind.NO_SPECULATION}
        lengths[preset["preset"]] = tree.acceptance_length or 0.0
    assert rates == pytest.approx(wanted["rate"], rel=0.005)
    assert sorted(lengths, key=lengths.__getitem__, reverse=True) == wanted["order_by_length"]


def test_f43_drafts_never_accepted_and_no_speculation_at_all() -> None:
    wanted, meta = expected("F43"), case("F43", "meta_all_rejected.json")
    rejected = spec_request(
        meta["completion_tokens"],
        meta["spec_verify_ct"],
        correct_drafts=meta["spec_num_correct_drafts"],
        proposed_drafts=meta["spec_num_proposed_drafts"],
        accepted_histogram=tuple(meta["spec_correct_drafts_histogram"]),
    )
    figures = measure_cell([rejected], cell(1))
    assert figures.acceptance_length == close(wanted["all_rejected"]["committed_per_verify"])
    assert MarkKind.DRAFTS_REJECTED in kinds(figures.marks)
    assert MarkKind.NO_SPECULATION not in kinds(figures.marks)
    by_counters = ServerWindow(generated=float(meta["completion_tokens"]), verify_calls=float(meta["spec_verify_ct"]))
    uncounted = spec_request(meta["completion_tokens"], None)
    assert MarkKind.DRAFTS_REJECTED in kinds(measure_cell([uncounted], cell(1), server=by_counters).marks)
    silent = measure_cell([spec_request(case("F43", "meta_no_spec.json")["completion_tokens"], None)], cell(1))
    assert silent.acceptance_length is wanted["no_spec"]["accept_len"]
    assert MarkKind.NO_SPECULATION in kinds(silent.marks)
    assert MarkKind.DRAFTS_REJECTED not in kinds(silent.marks)


def test_f44_acceptance_does_not_make_a_slow_server_fast() -> None:
    wanted, steps = expected("F44"), 100
    speeds, figures = [], []
    for name in ("dflash", "baseline"):
        given = case("F44", f"{name}.json")
        tokens_a_step = given["accept_len"] or 1.0
        tokens = round(tokens_a_step * steps)
        seconds = tokens / given["tok_s"]
        record = ok(
            0.0,
            (0.5, 1),
            (0.5 + seconds, tokens),
            verify_steps=steps if given["accept_len"] else None,
            correct_drafts=tokens - steps if given["accept_len"] else None,
        )
        figures.append(measure_cell([record], cell(given["concurrency"]), speculative=bool(given["accept_len"])))
        speeds.append(Estimate(figures[-1].throughput_tok_s or 0.0, error=0.5, freedom=20))
    dflash, baseline = figures
    assert dflash.acceptance_length == close(2.1)
    assert baseline.acceptance_length is None
    assert dflash.step_s == close(wanted["step_ms"] / 1e3)
    assert baseline.step_s == close(wanted["baseline_step_ms"] / 1e3)
    found = ratio(*speeds)
    assert found is not None
    assert found.value == close(wanted["speedup"])
    assert verdict(found, higher_is_better=True) == "worse"


def test_f45_batch_lines_of_several_versions() -> None:
    lines = (DATA / "F45" / "server.log").read_text().splitlines()
    for line, wanted in zip(lines, expected("F45")["lines"], strict=True):
        found = read_batch_line(line)
        if wanted["kind"] == "other":
            assert found is None
            continue
        assert found is not None
        assert found.kind == wanted["kind"]
        names = {
            "accept_len": "accept_length",
            "accept_rate": "accept_rate",
            "tok_s": "gen_tok_s",
            "running": "running",
            "queue": "queued",
            "dp": "dp",
            "cached_tokens": "cached_tokens",
        }
        for key, value in wanted.items():
            if key != "kind":
                assert getattr(found, names[key]) == value, (key, line)
    third = read_batch_line(lines[2])
    assert third is not None
    assert (third.tp, third.graph, third.token_usage) == (0, False, 0.0)
