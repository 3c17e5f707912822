"""Several repetitions of a cell as one."""

from __future__ import annotations

import pytest

from loadgen.figures import (
    CategoryFigures,
    CellFigures,
    ClientFigures,
    Interval,
    Mark,
    MarkKind,
    Percentiles,
    RequestCounts,
)
from loadgen.measure import measure_cell
from loadgen.repetitions import combine_repetitions
from tests.loadgen.records import cell, evenly


def repetition(throughput: float | None, **changes: object) -> CellFigures:
    return CellFigures(throughput_tok_s=throughput, **changes)  # type: ignore[arg-type]


def test_interval_over_three_repetitions_is_students() -> None:
    found = combine_repetitions([repetition(t) for t in (90.0, 100.0, 110.0)])
    assert found.throughput_tok_s == pytest.approx(100.0)
    assert found.throughput_ci95 is not None
    assert found.throughput_ci95.hi == pytest.approx(100 + 4.3027 * 10 / 3**0.5)
    assert found.repetitions == 3


def test_two_repetitions_put_their_own_intervals_together() -> None:
    found = combine_repetitions(
        [
            repetition(90.0, throughput_ci95=Interval(87.0, 93.0)),
            repetition(110.0, throughput_ci95=Interval(106.0, 114.0)),
        ]
    )
    assert found.throughput_ci95 is not None
    assert (found.throughput_ci95.lo, found.throughput_ci95.hi) == pytest.approx((97.5, 102.5))


def test_two_repetitions_without_intervals_have_none() -> None:
    assert combine_repetitions([repetition(90.0), repetition(110.0)]).throughput_ci95 is None


def test_one_repetition_is_itself() -> None:
    only = repetition(5.0)
    assert combine_repetitions([only]) is only
    with pytest.raises(ValueError, match="no repetitions"):
        combine_repetitions([])


def test_acceptance_stays_a_ratio_of_sums() -> None:
    def one(steps: float, committed: float, histogram: tuple[int, ...]) -> CellFigures:
        return CellFigures(
            acceptance_length=committed / steps,
            acceptance_source="per-request",
            verify_steps=steps,
            committed_tokens=committed,
            accepted_histogram=histogram,
        )

    found = combine_repetitions([one(10, 20, (5, 0, 5)), one(30, 120, (0, 0, 0, 30))])
    assert found.acceptance_length == pytest.approx(140 / 40)
    assert found.accepted_histogram == (5, 0, 5, 30)
    assert found.survival == pytest.approx((35 / 40, 35 / 40, 30 / 40))


def test_acceptance_of_different_sources_is_never_averaged() -> None:
    found = combine_repetitions(
        [
            CellFigures(acceptance_length=3.0, acceptance_source="per-request", accepted_histogram=(1, 1)),
            CellFigures(acceptance_length=4.0, acceptance_source="lifetime-mean"),
        ]
    )
    assert found.acceptance_length is None
    assert found.acceptance_source is None
    assert found.accepted_histogram is None


def test_counts_are_added_and_an_unknown_total_stays_unknown() -> None:
    found = combine_repetitions(
        [
            CellFigures(requests=RequestCounts(4, {"connect": 1}), output_tokens=100, unmeasured=1),
            CellFigures(requests=RequestCounts(3, {"connect": 1, "timeout": 1}), output_tokens=None),
        ]
    )
    assert found.requests == RequestCounts(7, {"connect": 2, "timeout": 1})
    assert found.output_tokens is None
    assert found.unmeasured == 1


def test_repetition_without_a_headline_leaves_the_others() -> None:
    found = combine_repetitions([repetition(None), repetition(10.0), repetition(20.0)])
    assert found.throughput_tok_s == pytest.approx(15.0)


def test_categories_are_put_together_by_name() -> None:
    def code(requests: int, tokens: int | None, length: float) -> CategoryFigures:
        return CategoryFigures(
            category="code", requests=requests, output_tokens=tokens, acceptance_length=length, decode_tok_s_p50=None
        )

    prose = CategoryFigures(category="prose", requests=1, output_tokens=9, acceptance_length=None, decode_tok_s_p50=7.0)
    found = combine_repetitions(
        [CellFigures(categories=(code(2, 20, 4.0), prose)), CellFigures(categories=(code(3, 30, 5.0),))]
    )
    assert found.categories == (code(5, 50, 4.5), prose)


def test_worst_of_the_client_and_highest_memory() -> None:
    found = combine_repetitions(
        [
            CellFigures(client=ClientFigures(loop_lag_p99_s=0.001, cpu_share=0.9), gpu_memory_peak_bytes=(5, None)),
            CellFigures(client=ClientFigures(loop_lag_p99_s=0.004, cpu_share=0.2), gpu_memory_peak_bytes=(4, None)),
        ]
    )
    assert (found.client.loop_lag_p99_s, found.client.cpu_share) == (0.004, 0.9)
    assert found.gpu_memory_peak_bytes == (5, None)


def test_marks_are_kept_once_with_how_many_have_them() -> None:
    cold, queued = Mark(MarkKind.COLD, "slow start"), Mark(MarkKind.QUEUED, "3 waited")
    found = combine_repetitions([CellFigures(marks=(cold, queued)), CellFigures(marks=(queued,)), CellFigures()])
    assert [m.reason for m in found.marks] == ["slow start (1 of 3 repetitions)", "3 waited (2 of 3 repetitions)"]


def test_percentiles_are_means_over_repetitions() -> None:
    found = combine_repetitions(
        [
            CellFigures(ttft_s=Percentiles(1.0, 2.0, 3.0, 50, True)),
            CellFigures(ttft_s=Percentiles(3.0, 4.0, 5.0, 150, False)),
            CellFigures(),
        ]
    )
    assert found.ttft_s == Percentiles(2.0, 3.0, 4.0, 200, True)


def test_repetitions_of_a_real_cell_keep_every_figure() -> None:
    records = [
        evenly(11.0 * (i // 2), 1.0, 11.0, 101, slot=i % 2, verify_steps=25, correct_drafts=75) for i in range(6)
    ]
    one = measure_cell(records, cell(2, max_tokens=101))
    three = combine_repetitions([one, one, one])
    moments = {"steady_start_t", "steady_end_t"}  # of one repetition only
    for name in set(CellFigures.__struct_fields__) - moments:
        if getattr(one, name) is not None:
            assert getattr(three, name) is not None, name
    assert three.throughput_tok_s == pytest.approx(one.throughput_tok_s)
    assert three.acceptance_length == pytest.approx(4.0)
