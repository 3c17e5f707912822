"""When requests start, and when it is enough."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.arrival import StopRule, due_times
from loadgen.spec import Arrival, ClosedLoop, Constant, Poisson, Ramp, Stop
from tests.loadgen.records import failed, ok


def first(arrival: Arrival, n: int, seed: int = 0) -> list[float]:
    return list(itertools.islice(due_times(arrival, seed), n))


def test_constant_is_evenly_spaced() -> None:
    assert first(Constant(rate=4.0), 4) == [0.0, 0.25, 0.5, 0.75]


def test_poisson_gaps_have_the_mean_and_the_scatter() -> None:
    times = first(Poisson(rate=5.0), 4001, seed=1)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps))
    assert mean == pytest.approx(0.2, rel=0.05)
    assert deviation == pytest.approx(0.2, rel=0.08)
    assert times == first(Poisson(rate=5.0), 4001, seed=1)
    assert times != first(Poisson(rate=5.0), 4001, seed=2)


def test_ramp_reaches_its_rate_and_keeps_it() -> None:
    times = first(Ramp(start_rate=0.0, end_rate=10.0, over_s=10.0), 200)
    assert sum(1 for t in times if t < 10.0) == 50  # half of 10 a second over 10 s
    late = [t for t in times if t > 11.0]
    assert [b - a for a, b in itertools.pairwise(late)] == pytest.approx([0.1] * (len(late) - 1))


@pytest.mark.parametrize("start", [0.5, 10.0, 4.0])
def test_ramp_up_down_and_level(start: float) -> None:
    times = first(Ramp(start_rate=start, end_rate=4.0, over_s=5.0), 60)
    in_ramp = (start + 4.0) / 2 * 5.0
    assert sum(1 for t in times if t < 5.0) == math.ceil(in_ramp)
    assert times == sorted(times)


@given(
    st.one_of(
        st.builds(Constant, rate=st.floats(0.01, 1e4)),
        st.builds(Poisson, rate=st.floats(0.01, 1e4)),
        st.builds(
            Ramp, start_rate=st.floats(0.0, 100.0), end_rate=st.floats(0.01, 100.0), over_s=st.floats(0.01, 100.0)
        ),
    )
)
def test_due_times_start_now_and_never_go_back(arrival: Arrival) -> None:
    times = first(arrival, 100)
    assert times[0] == 0.0
    assert all(math.isfinite(t) and a <= t for a, t in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("arrival", "words"),
    [
        (ClosedLoop(), "no due times"),
        (Constant(rate=0.0), "above 0"),
        (Poisson(rate=-1.0), "above 0"),
        (Constant(rate=math.nan), "above 0"),
        (Ramp(start_rate=0.0, end_rate=0.0, over_s=1.0), "above 0"),
        (Ramp(start_rate=1.0, end_rate=1.0, over_s=0.0), "length above 0"),
    ],
)
def test_arrivals_that_cannot_be(arrival: Arrival, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        due_times(arrival)


def test_stop_by_number() -> None:
    rule = StopRule(Stop(requests=3))
    assert [rule.may_start(n, 1e9) for n in range(5)] == [True, True, True, False, False]
    assert rule.total == 3
    assert rule.share_done(1, 100.0) == pytest.approx(1 / 3)


def test_stop_by_duration() -> None:
    rule = StopRule(Stop(duration_s=2.0))
    assert rule.may_start(0, 99.0)  # the fewest there must be
    assert rule.may_start(500, 1.99)
    assert not rule.may_start(500, 2.0)
    assert rule.total is None


def test_whichever_comes_first_but_not_before_the_fewest() -> None:
    rule = StopRule(Stop(requests=10, duration_s=2.0, min_requests=4))
    assert not rule.may_start(10, 0.1)
    assert not rule.may_start(5, 2.5)
    assert rule.may_start(3, 2.5)
    assert StopRule(Stop(requests=2, min_requests=4)).may_start(3, 0.0)
    assert StopRule(Stop(requests=2, min_requests=4)).total == 4


def test_stop_when_the_interval_is_narrow() -> None:
    rule = StopRule(Stop(interval_share=0.05))
    for i in range(7):
        rule.note(ok(float(i), (0.1, 1), (1.0, 99)))
    assert rule.interval_share == pytest.approx(0.0)
    assert rule.may_start(7, 7.0)  # seven are too few to believe it
    rule.note(ok(8.0, (0.1, 1), (1.0, 99)))
    assert not rule.may_start(8, 8.0)
    assert rule.share_done(8, 8.0) <= 1.0


def test_scatter_and_failures_keep_a_cell_going() -> None:
    rule = StopRule(Stop(interval_share=0.05))
    for i in range(10):
        rule.note(ok(float(i), (0.1, 1), (1.0 + i % 3, 99)))
        rule.note(failed(float(i), i + 0.5))
        rule.note(ok(float(i), (0.1, 1), (1.0, 99), purpose="warmup"))
    assert rule.interval_share is not None
    assert rule.interval_share > 0.05
    assert rule.may_start(20, 20.0)


@pytest.mark.parametrize("stop", [Stop(), Stop(requests=0), Stop(duration_s=0.0)])
def test_stops_that_cannot_be(stop: Stop) -> None:
    with pytest.raises(ValueError, match="a cell"):
        StopRule(stop)
