"""Acceptance from the best source, and from one source only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.cell_acceptance import acceptance, acceptance_length, add_histograms, plausible, survival_of
from loadgen.figures import ServerWindow
from loadgen.records import AcceptanceSource, RequestRecord
from tests.loadgen.records import failed, ok

EVERYTHING = ServerWindow(drafts=100.0, accepted=250.0, generated=500.0, verify_calls=100.0, lifetime_acceptance=7.0)


def spec(steps: int | None, correct: int | None, tokens: int | None = 50, **changes: object) -> RequestRecord:
    return ok(0.0, (0.1, 1), n_out=tokens, verify_steps=steps, correct_drafts=correct, **changes)


def test_requests_come_before_anything_the_server_sums_up() -> None:
    found = acceptance([spec(10, 30), spec(30, 10)], EVERYTHING)
    assert (found.length, found.source) == (2.0, AcceptanceSource.PER_REQUEST)
    assert (found.verify_steps, found.committed_tokens, found.requests) == (40.0, 80.0, 2)


def test_order_of_the_servers_own_sources() -> None:
    none = [spec(None, None)]
    assert acceptance(none, EVERYTHING).source is AcceptanceSource.COUNTERS
    assert acceptance(none, EVERYTHING).length == 3.5
    without = ServerWindow(generated=500.0, verify_calls=100.0, lifetime_acceptance=7.0)
    assert acceptance(none, without).length == 5.0
    assert acceptance(none, ServerWindow(lifetime_acceptance=7.0)).source is AcceptanceSource.LIFETIME
    assert acceptance(none, ServerWindow()).source is None
    assert acceptance(none).length is None


def test_counters_that_started_again_leave_the_lifetime_mean() -> None:
    again = ServerWindow(drafts=100.0, accepted=250.0, counters_reset=True, lifetime_acceptance=7.0)
    assert acceptance([spec(None, None)], again).length == 7.0


@pytest.mark.parametrize("drafts", [None, 0.0, -3.0])
def test_counters_that_did_not_move_say_nothing(drafts: float | None) -> None:
    assert acceptance([], ServerWindow(drafts=drafts, accepted=10.0)).length is None
    assert acceptance([], ServerWindow(generated=10.0, verify_calls=drafts)).length is None


def test_one_way_of_counting_for_all_requests() -> None:
    """A request without draft counts makes all count by their tokens, first token taken off."""
    found = acceptance([spec(10, 30, tokens=41), spec(10, None, tokens=21)])
    assert found.source is AcceptanceSource.PER_REQUEST_TOKENS
    assert found.length == pytest.approx((40 + 20) / 20)


def test_failed_requests_do_not_count() -> None:
    broken = failed(0.0, 1.0, verify_steps=1000, correct_drafts=0)
    assert acceptance([spec(10, 30), broken]).length == 4.0
    assert acceptance_length([spec(10, 30), broken]) == 4.0
    assert acceptance_length([broken]) is None


def test_positions_from_counters() -> None:
    window = ServerWindow(drafts=100.0, accepted=150.0, accepted_per_position=(90.0, 60.0))
    assert acceptance([], window).survival == (0.9, 0.6)


def test_histograms_add_up_and_one_missing_leaves_none() -> None:
    both = acceptance([spec(3, 3, accepted_histogram=(1, 1, 1)), spec(2, 1, accepted_histogram=(1, 1))])
    assert both.histogram == (2, 2, 1)
    assert both.survival == (0.6, 0.2)
    assert acceptance([spec(3, 3, accepted_histogram=(1, 1, 1)), spec(2, 1)]).histogram is None


def test_rate_for_chains_only() -> None:
    one = spec(10, 30, proposed_drafts=70)
    assert acceptance([one], chain=True).rate == pytest.approx(30 / 70)
    assert acceptance([one]).rate is None
    assert acceptance([one, spec(10, 30)], chain=True).rate is None


@pytest.mark.parametrize("told", [None, 0.0, 0.99, math.nan, math.inf, -1.0])
def test_what_cannot_be_an_acceptance_length(told: float | None) -> None:
    assert plausible(told) is None


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), min_size=1, max_size=8))
def test_survival_agrees_with_the_mean(histograms: list[list[int]]) -> None:
    total = add_histograms(histograms)
    survival = survival_of(total)
    if sum(total) == 0:
        assert survival is None
        return
    assert survival is not None
    assert list(survival) == sorted(survival, reverse=True)
    mean = sum(k * steps for k, steps in enumerate(total)) / sum(total)
    assert math.fsum(survival) == pytest.approx(mean)
