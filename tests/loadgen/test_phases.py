"""Ramp, steady and tail."""

from __future__ import annotations

import pytest

from loadgen.phases import cut_phases, steady_window
from loadgen.records import Outcome
from loadgen.spec import Constant, Stop
from tests.loadgen.records import cell, failed, ok


def test_ramp_lasts_until_every_slot_has_answered() -> None:
    records = [
        ok(0.0, (1.0, 1), (4.0, 9), slot=0),
        ok(0.0, (2.5, 1), (5.0, 9), slot=1),
        ok(4.0, (1.0, 1), (3.0, 9), slot=0),
    ]
    phases = cut_phases(records, cell(2))
    assert phases is not None
    assert phases.steady == (2.5, 5.0)
    assert (phases.ramp_s, phases.steady_s, phases.tail_s) == pytest.approx((2.5, 2.5, 2.0))


def test_steady_ends_with_the_first_slot_that_has_nothing_more_to_do() -> None:
    """Slot 1 ends its last request while slot 0 goes on to start others."""
    records = [ok(10.0 * i, (1.0, 1), (10.0, 9), slot=0) for i in range(4)]
    records += [ok(0.0, (1.0, 1), (12.0, 9), slot=1)]
    assert steady_window(records, cell(2)) == (1.0, 12.0)


def test_a_request_works_until_its_last_token_not_until_its_usage() -> None:
    records = [ok(0.0, (1.0, 1), (4.0, 9), t=4.5)]
    assert steady_window(records, cell(1)) == (1.0, 4.0)


def test_fewer_requests_than_slots_never_are_steady() -> None:
    phases = cut_phases([ok(0.0, (1.0, 1), (4.0, 9), slot=i) for i in range(3)], cell(4))
    assert phases is not None
    assert phases.steady is None
    assert phases.steady_s is None
    assert phases.ramp_s == 4.0
    assert phases.tail_s == 0.0


def test_a_slot_whose_requests_all_fail_is_busy_with_failing() -> None:
    records = [ok(0.0, (1.0, 1), (9.0, 9), slot=0), ok(9.0, (1.0, 1), (9.0, 9), slot=0)]
    records += [failed(i * 1.0, i + 1.0, Outcome.CONNECT, slot=1, rid=f"f{i}") for i in range(12)]
    window = steady_window(records, cell(2))
    assert window == (10.0, 12.0)  # two requests had a first token at 10 s, slot 1 ended its last at 12 s


def test_warm_up_is_not_the_start() -> None:
    records = [ok(0.0, (1.0, 1), (4.0, 9), purpose="warmup"), ok(5.0, (1.0, 1), (4.0, 9))]
    phases = cut_phases(records, cell(1))
    assert phases is not None
    assert phases.start == 5.0


def test_open_loop_leaves_out_a_median_answer_and_what_follows_the_arrivals() -> None:
    spec = cell(64, arrival=Constant(rate=1.0), stop=Stop(duration_s=10.0))
    records = [ok(float(i), (0.5, 1), (2.0, 9), slot=i) for i in range(10)]
    assert steady_window(records, spec) == (2.0, 9.0)
    assert steady_window([failed(0.0, 1.0), failed(1.0, 2.0)], spec) is None


def test_no_request_no_phase() -> None:
    assert cut_phases([], cell(1)) is None
    assert steady_window([], cell(1)) is None


def test_chunks_of_the_same_step_belong_to_the_window() -> None:
    """Both streams get their chunks at the same time; the other one's is read a moment after the end."""
    ended = ok(0.0, (1.0, 1), (2.0, 3), (3.0, 3), slot=0)
    going_on = ok(0.0, (1.0, 1), (2.001, 3), (3.001, 3), (4.001, 3), slot=1)
    assert steady_window([ended, going_on], cell(2)) == (1.0, 3.001)
    later = ok(0.0, (1.0, 1), (2.4, 3), (3.4, 3), (4.4, 3), slot=1)
    assert steady_window([ended, later], cell(2)) == (1.0, 3.0)
