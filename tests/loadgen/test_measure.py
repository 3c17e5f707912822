"""The figures of a cell."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.figures import CellFigures, GoodputLimits, GpuWindow, MarkKind, ServerWindow
from loadgen.measure import measure_cell
from loadgen.records import Outcome, RequestRecord
from loadgen.spec import Poisson, Stop
from tests.loadgen.records import cell, evenly, failed, ok


def two_slots() -> list[RequestRecord]:
    """Two slots, three answers of 101 tokens each, 10 tokens a second: steady from 1 s to 33 s."""
    return [
        evenly(start, 1.0, 11.0, 101, slot=slot, prompt_tokens=60, cached_tokens=3, max_tokens=101)
        for start in (0.0, 11.0, 22.0)
        for slot in (0, 1)
    ]


def test_headline_of_a_plain_cell() -> None:
    figures = measure_cell(two_slots(), cell(2, max_tokens=101), speculative=False)
    # After the first token of each slot: 100 + 101 + 101 tokens a slot in 32 s.
    assert figures.throughput_tok_s == pytest.approx(604 / 32)
    assert figures.whole_run_throughput_tok_s == pytest.approx(606 / 33)
    assert figures.decode_tok_s.p50 == pytest.approx(10.0)
    assert figures.tpot_s.p50 == pytest.approx(0.1)
    assert figures.effective_concurrency == pytest.approx(2.0)
    assert (figures.ramp_s, figures.steady_s, figures.tail_s) == pytest.approx((1.0, 32.0, 0.0))
    assert figures.output_tokens == 606
    assert figures.requests.valid == 6
    assert figures.prompt_tokens_mean == 60
    assert figures.cached_token_share == pytest.approx(0.05)
    assert {m.kind for m in figures.marks} == {MarkKind.FEW_SAMPLES}


def test_warm_up_and_probes_never_count() -> None:
    extra = [ok(0.0, (0.5, 1000), purpose=purpose) for purpose in ("warmup", "probe", "eval", "lossless")]
    spec = cell(2, max_tokens=101)
    assert measure_cell(two_slots() + extra, spec) == measure_cell(two_slots(), spec)


def test_nothing_asked_gives_nothing() -> None:
    figures = measure_cell([], cell(4))
    assert figures == CellFigures()


def test_all_failed_has_no_number() -> None:
    figures = measure_cell([failed(0.0, 0.1, Outcome.HTTP_4XX), failed(0.1, 0.2, Outcome.CONNECT)], cell(1))
    assert figures.throughput_tok_s is None
    assert figures.whole_run_throughput_tok_s is None
    assert figures.ttft_s.p50 is None
    assert figures.output_tokens is None
    assert figures.requests.failed == {"connect": 1, "http_4xx": 1}
    assert [m.kind for m in figures.marks] == [MarkKind.ERRORS]


def test_one_answer_without_usage_leaves_no_total() -> None:
    records = [*two_slots(), ok(33.0, (1.0, None), (2.0, None), n_out=None)]
    figures = measure_cell(records, cell(2, max_tokens=101), speculative=False)
    assert figures.output_tokens is None
    assert figures.unmeasured == 1
    assert MarkKind.UNMEASURED in {m.kind for m in figures.marks}


def test_answer_without_usage_outside_the_window_leaves_the_headline() -> None:
    lone = ok(43.0, (1.0, None), (2.0, None), n_out=None, slot=1)
    records = [*two_slots(), lone]
    figures = measure_cell(records, cell(2, max_tokens=101), speculative=False)
    assert figures.steady_end_t == 33.0
    assert figures.throughput_tok_s == pytest.approx(604 / 32)


def test_open_loop_window_ends_with_the_arrivals() -> None:
    spec = cell(8, arrival=Poisson(rate=1.0), max_tokens=11)
    records = [evenly(float(i), 0.5, 1.5, 11, slot=i % 8, max_tokens=11) for i in range(20)]
    figures = measure_cell(records, spec, speculative=False)
    assert figures.steady_start_t == pytest.approx(1.5)
    assert figures.steady_end_t == pytest.approx(19.0)
    assert figures.throughput_tok_s == pytest.approx(11.0, rel=0.05)
    assert MarkKind.UNDER_RUN not in {m.kind for m in figures.marks}


def test_energy_is_scaled_to_the_window_and_divided_by_its_tokens() -> None:
    gpus = GpuWindow(energy_j=2000.0, energy_span_s=20.0, memory_peak_bytes=(5, None))
    figures = measure_cell(two_slots(), cell(2, max_tokens=101), gpus=gpus)
    assert figures.energy_j_per_tok == pytest.approx(100.0 * 32 / 604)
    assert figures.gpu_memory_peak_bytes == (5, None)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    records = [ok(0.0, (0.1, 1), (1.1, 10)), ok(2.0, (0.5, 1), (1.5, 10)), ok(4.0, (0.1, 1))]
    spec = cell(1)
    assert measure_cell(records, spec, goodput_limits=GoodputLimits(ttft_s=0.2)).goodput == pytest.approx(2 / 3)
    assert measure_cell(records, spec, goodput_limits=GoodputLimits(tpot_s=0.01)).goodput == pytest.approx(1 / 3)
    assert measure_cell(records, spec).goodput is None


def test_categories_where_a_cell_mixes_them() -> None:
    records = [
        ok(0.0, (0.1, 1), (1.1, 10), category="code", verify_steps=2, correct_drafts=8),
        ok(2.0, (0.1, 1), (1.1, 10), category="prose", verify_steps=5, correct_drafts=5),
    ]
    code, prose = measure_cell(records, cell(1)).categories
    assert (code.category, code.acceptance_length, code.output_tokens) == ("code", 5.0, 11)
    assert (prose.category, prose.acceptance_length, prose.decode_tok_s_p50) == ("prose", 2.0, pytest.approx(10.0))
    assert measure_cell(records[:1], cell(1)).categories == ()


def test_time_of_a_step_is_a_ratio_of_sums() -> None:
    spec = cell(1)
    two = [ok(0.0, (0.1, 1), (1.1, 9), verify_steps=10), ok(2.0, (0.1, 1), (3.1, 9), verify_steps=30, rid="b")]
    assert measure_cell(two, spec).step_s == pytest.approx(4.0 / 40)
    assert measure_cell([*two, ok(6.0, (0.1, 1), (9.1, 9))], spec).step_s == pytest.approx(4.0 / 40)
    assert measure_cell([ok(0.0, (0.1, 1), (1.1, 10))], spec).step_s == pytest.approx(0.1)
    assert measure_cell([ok(0.0, (0.1, 1))], spec).step_s is None


def test_server_view_is_kept_beside_ours() -> None:
    figures = measure_cell(two_slots(), cell(2), server=ServerWindow(running_mean=1.5, lifetime_acceptance=0.0))
    assert figures.server_running_mean == 1.5
    assert figures.acceptance_length is None


def test_figures_survive_json() -> None:
    figures = measure_cell(two_slots(), cell(2))
    assert msgspec.json.decode(msgspec.json.encode(figures), type=CellFigures) == figures


chunk_lists = st.lists(
    st.tuples(st.floats(0.01, 2.0, allow_nan=False), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=8
)


@st.composite
def some_records(draw: st.DrawFn) -> list[RequestRecord]:
    records = []
    for slot in range(draw(st.integers(1, 3))):
        now = draw(st.floats(0.0, 0.5))
        for _ in range(draw(st.integers(0, 4))):
            offset, chunks = 0.0, []
            for gap, tokens in draw(chunk_lists):
                offset += gap
                chunks.append((offset, tokens))
            usage = draw(st.one_of(st.none(), st.integers(0, 80)))
            outcome = draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.STREAM_ERROR]))
            records.append(ok(now, *chunks, n_out=usage, slot=slot, outcome=outcome, rid=f"{slot}/{len(records)}"))
            now += offset + draw(st.floats(0.0, 0.5))
    return records


@settings(max_examples=150, deadline=None)
@given(some_records(), st.integers(1, 3), st.randoms())
def test_order_of_records_does_not_matter(
    records: list[RequestRecord], concurrency: int, shuffler: random.Random
) -> None:
    shuffled = list(records)
    shuffler.shuffle(shuffled)
    assert measure_cell(shuffled, cell(concurrency)) == measure_cell(records, cell(concurrency))


@settings(max_examples=150, deadline=None)
@given(some_records(), st.integers(1, 3))
def test_no_figure_exceeds_what_its_tokens_allow(records: list[RequestRecord], concurrency: int) -> None:
    figures = measure_cell(records, cell(concurrency))
    valid = [r for r in records if r.valid]
    delivered = sum(r.n_out or 0 for r in valid)
    if figures.throughput_tok_s is not None and figures.steady_s is not None:
        assert 0 <= figures.throughput_tok_s * figures.steady_s <= delivered * (1 + 1e-9)
    if figures.output_tokens is not None:
        assert figures.output_tokens == delivered
        assert all(r.n_out is not None for r in valid)
    if figures.effective_concurrency is not None:
        assert figures.effective_concurrency <= len(records) + 1e-9
    assert figures.requests.valid + sum(figures.requests.failed.values()) == len(records)
    for spread in (figures.ttft_s, figures.decode_tok_s, figures.e2e_s, figures.chunk_gap_s, figures.itl_s):
        assert (spread.p50 is None) == (spread.n == 0)
        if spread.p50 is not None and spread.p90 is not None and spread.p99 is not None:
            assert spread.p50 <= spread.p90 <= spread.p99


@settings(max_examples=100, deadline=None)
@given(some_records(), st.integers(1, 3))
def test_failed_requests_give_no_tokens(records: list[RequestRecord], concurrency: int) -> None:
    """What a failed request delivered is in no figure: changing it changes nothing but times."""
    emptied = [
        r if r.valid else msgspec.structs.replace(r, n_out=10**6, verify_steps=7, correct_drafts=7) for r in records
    ]
    assert measure_cell(emptied, cell(concurrency)) == measure_cell(records, cell(concurrency))


def test_a_cell_stopped_by_number_has_no_tail_mistake() -> None:
    """A slow last request alone does not enter the headline."""
    records = [*two_slots(), evenly(33.0, 1.0, 101.0, 101, slot=0)]
    figures = measure_cell(records, cell(2, max_tokens=101, stop=Stop(requests=7)), speculative=False)
    assert figures.throughput_tok_s == pytest.approx(604 / 32)
    assert figures.tail_s == pytest.approx(101.0)
