"""Reasons to doubt a figure: the right ones, and no others."""

from __future__ import annotations

import pytest

from loadgen.figures import CellFigures, GpuWindow, Interval, Mark, MarkKind, ServerWindow
from loadgen.marks import diverged, not_in_effect, tau_drop
from loadgen.measure import measure_cell
from loadgen.records import RequestRecord
from loadgen.spec import Calibration, Poisson, WorkerHealth, Workload
from tests.loadgen.records import cell, evenly, failed, ok

HEALTHY = WorkerHealth(loop_lag_p99_s=0.001, cpu_share=0.3, streams_open_max=2)


def good(n: int = 200, **changes: object) -> list[RequestRecord]:
    """Two slots without a blemish, enough for a true p99."""
    given = {"max_tokens": 11, "verify_steps": 4, "correct_drafts": 6, "prompt_tokens": 60, "cached_tokens": 1}
    return [evenly(1.0 * (i // 2), 0.1, 1.0, 11, slot=i % 2, **(given | changes)) for i in range(n)]


def marks(records: list[RequestRecord], concurrency: int = 2, **changes: object) -> dict[MarkKind, Mark]:
    asked = ("arrival", "workload", "calibration")
    spec = cell(concurrency, max_tokens=11, **{k: v for k, v in changes.items() if k in asked})
    others = {k: v for k, v in changes.items() if k not in asked}
    figures = measure_cell(records, spec, **({"health": HEALTHY} | others))  # type: ignore[arg-type]
    return {mark.kind: mark for mark in figures.marks}


def test_a_good_cell_has_no_mark() -> None:
    calm = {"server": ServerWindow(waiting_max=0), "gpus": GpuWindow()}
    assert marks(good(), **calm) == {}


@pytest.mark.parametrize(
    ("health", "word"),
    [
        (WorkerHealth(loop_lag_p99_s=0.0061, cpu_share=0.3, streams_open_max=2), "6.1 ms"),
        (WorkerHealth(loop_lag_p99_s=0.001, cpu_share=0.91, streams_open_max=2), "91%"),
    ],
)
def test_client_bound(health: WorkerHealth, word: str) -> None:
    assert word in marks(good(), health=health)[MarkKind.CLIENT_BOUND].reason


def test_limits_themselves_are_still_good() -> None:
    assert marks(good(), health=WorkerHealth(loop_lag_p99_s=0.005, cpu_share=0.85, streams_open_max=2)) == {}


def test_under_run_when_slots_were_idle() -> None:
    records = [evenly(2.0 * (i // 2), 0.1, 1.0, 11, slot=i % 2, verify_steps=4, correct_drafts=6) for i in range(200)]
    found = marks(records)
    assert set(found) == {MarkKind.UNDER_RUN}
    assert found[MarkKind.UNDER_RUN].value == pytest.approx(1.0, rel=0.02)


def test_under_run_when_there_were_fewer_requests_than_slots() -> None:
    assert "200 requests for 256 slots" in marks(good(), concurrency=256)[MarkKind.UNDER_RUN].reason
    assert MarkKind.SHORT_STEADY in marks(good(), concurrency=256)


def test_open_loop_has_no_wanted_concurrency() -> None:
    assert MarkKind.UNDER_RUN not in marks(good(), concurrency=256, arrival=Poisson(rate=2.0))


def test_queued() -> None:
    assert marks(good(), server=ServerWindow(waiting_max=3))[MarkKind.QUEUED].value == 3
    often = marks(good(), server=ServerWindow(waiting_max=3, waiting_share=0.6))
    assert "60% of the readings" in often[MarkKind.QUEUED].reason


def test_requests_that_wait_for_the_step_under_way_are_no_queue() -> None:
    assert marks(good(), server=ServerWindow(waiting_max=3, waiting_share=0.5)) == {}


def test_cache_hits_only_where_none_were_asked_for() -> None:
    cached = good(cached_tokens=40)
    assert marks(cached)[MarkKind.CACHE_HITS].value == pytest.approx(0.5)
    for wanted in (Workload(cache="warm"), Workload(cache="shared-prefix"), Workload(turns=3)):
        assert marks(cached, workload=wanted) == {}


def test_the_chat_template_is_always_cached_and_no_reason_to_doubt() -> None:
    cached = good(cached_tokens=24)
    assert marks(cached, calibration=Calibration(overhead=31.0)) == {}
    assert MarkKind.CACHE_HITS in marks(cached, calibration=Calibration(overhead=0.0))
    over = marks(good(cached_tokens=36), calibration=Calibration(overhead=31.0))[MarkKind.CACHE_HITS]
    assert over.value == pytest.approx(5 / 60)
    assert marks(good(cached_tokens=3)) == {}  # 5 % is allowed
    assert marks(good(cached_tokens=None)) == {}


def test_short_output() -> None:
    records = [evenly(float(i // 2), 0.1, 1.0, 5, slot=i % 2, verify_steps=2, correct_drafts=2) for i in range(200)]
    assert set(marks(records)) == {MarkKind.SHORT_OUTPUT}


def test_short_steady() -> None:
    found = marks(good(6))
    assert set(found) == {MarkKind.FEW_SAMPLES}
    assert MarkKind.SHORT_STEADY in marks(good(4))


def test_cold_first_request() -> None:
    cold = evenly(0.0, 4.0, 5.0, 11, slot=0, verify_steps=4, correct_drafts=6)
    records = [cold, *(r for r in good(220) if r.slot == 1 or r.t_send >= 5.0)]
    found = marks(records)
    assert set(found) == {MarkKind.COLD}
    assert "5.0 times" in found[MarkKind.COLD].reason


def test_a_first_request_with_a_long_answer_is_not_cold() -> None:
    long = evenly(0.0, 0.1, 5.0, 61, slot=0, verify_steps=24, correct_drafts=36)
    assert marks([long, *(r for r in good(220) if r.slot == 1 or r.t_send >= 5.0)]) == {}


def test_throttled_names_the_reasons() -> None:
    found = marks(good(), gpus=GpuWindow(throttle_reasons=("sw_power_cap", "hw_thermal_slowdown")))
    assert "sw_power_cap, hw_thermal_slowdown" in found[MarkKind.THROTTLED].reason


def test_a_server_that_ran_fewer_than_were_open_is_told() -> None:
    kinds = marks(good(220), server=ServerWindow(running_median=1.0))
    assert "1 of the 2 requests" in kinds[MarkKind.SERVER_UNDER_RUN].reason
    assert MarkKind.SERVER_UNDER_RUN not in marks(good(220), server=ServerWindow(running_median=2.0, running_mean=1.2))
    assert MarkKind.SERVER_UNDER_RUN not in marks(good(220), server=ServerWindow())


def test_a_lost_gpu_is_named() -> None:
    found = marks(good(), gpus=GpuWindow(lost_gpus=(3, 5)))
    assert found[MarkKind.GPU_LOST].reason.startswith("GPU 3, 5 could not be read")


def test_errors_above_one_in_a_hundred() -> None:
    one = [*good(198), failed(98.0, 99.0, slot=0), evenly(99.0, 0.1, 1.0, 11, slot=0)]
    two = [*good(196), failed(98.0, 99.0, slot=0), failed(98.0, 99.0, slot=1)]
    assert MarkKind.ERRORS not in marks([*one, *good(2)])
    assert marks([*two, failed(99.0, 99.5)])[MarkKind.ERRORS].reason.startswith("3 of 199 requests failed")


def test_unmeasured() -> None:
    records = [*good(), ok(100.0, (0.1, None), (1.0, None), n_out=None, slot=0)]
    assert marks(records)[MarkKind.UNMEASURED].reason.startswith("1 of 201")


def test_rejected_drafts_and_no_speculation_exclude_each_other() -> None:
    refused = good(correct_drafts=0)
    silent = good(verify_steps=None, correct_drafts=None)
    assert set(marks(refused)) == {MarkKind.DRAFTS_REJECTED}
    assert set(marks(silent)) == {MarkKind.NO_SPECULATION}
    assert marks(silent, speculative=False) == {}
    assert marks(silent, server=ServerWindow(lifetime_acceptance=3.0)) == {}


def test_few_samples() -> None:
    found = marks(good(60))
    assert set(found) == {MarkKind.FEW_SAMPLES}
    assert found[MarkKind.FEW_SAMPLES].value == 60


def accepted(length: float | None, lo: float, hi: float, source: str = "per-request") -> CellFigures:
    return CellFigures(acceptance_length=length, acceptance_ci95=Interval(lo, hi), acceptance_source=source)


def test_tau_drop_needs_intervals_apart_and_one_source() -> None:
    smaller = accepted(5.0, 4.8, 5.2)
    found = tau_drop(accepted(4.0, 3.8, 4.2), smaller)
    assert found is not None
    assert "4.00" in found.reason
    assert "5.00" in found.reason
    assert tau_drop(accepted(4.7, 4.5, 4.9), smaller) is None
    assert tau_drop(accepted(6.0, 5.8, 6.2), smaller) is None
    assert tau_drop(accepted(4.0, 3.8, 4.2, "counters"), smaller) is None
    assert tau_drop(CellFigures(acceptance_length=4.0, acceptance_source="per-request"), smaller) is None
    assert tau_drop(CellFigures(), CellFigures()) is None


def test_diverged_needs_many_and_early_differences() -> None:
    assert diverged(0.5, 20.0) is not None
    assert diverged(0.5, 200.0) is None
    assert diverged(0.9, 2.0) is None
    assert diverged(1.0, None) is None
    assert diverged(0.9, 100.0, share_limit=0.95, position_limit=128) is not None


def test_not_in_effect_says_what_was_asked_and_what_was_found() -> None:
    mark = not_in_effect("draft window", "2048", "none")
    assert mark.kind is MarkKind.NOT_IN_EFFECT
    assert "2048" in mark.reason
    assert "none" in mark.reason


def test_every_reason_is_one_sentence_with_a_number() -> None:
    found = marks(
        [*good(60, cached_tokens=40), failed(30.0, 31.0)],
        health=WorkerHealth(loop_lag_p99_s=0.1, cpu_share=0.1, streams_open_max=1),
        server=ServerWindow(waiting_max=9),
    )
    assert len(found) >= 5
    for mark in found.values():
        assert any(c.isdigit() for c in mark.reason), mark
        assert "\n" not in mark.reason
        assert not mark.reason.endswith(".")
