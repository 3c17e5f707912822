"""When the next request starts, and when it is enough: two questions, answered apart.

Arrival gives due times; stopping says whether one more request may start. Any arrival goes with any stopping.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from loadgen.records import RequestRecord
from loadgen.spec import Arrival, ClosedLoop, Constant, Poisson, Ramp, Stop
from loadgen.student import ratio_half_width

FEWEST_FOR_INTERVAL_STOP = 8  # finished requests before an interval is believed enough to stop on it


def due_times(arrival: Arrival, seed: int = 0) -> Iterator[float]:
    """Due times of an open loop, in seconds since the measured part began: endless, never decreasing.

    Args:
        arrival: constant, Poisson or ramp.
        seed: of the Poisson gaps.

    Raises:
        ValueError: for a closed loop, whose starts depend on the server, or a rate that is not above 0.
    """
    if isinstance(arrival, ClosedLoop):
        raise ValueError("a closed loop has no due times: a slot starts its next request when its last one ended")
    if isinstance(arrival, Constant):
        return _constant(_positive(arrival.rate))
    if isinstance(arrival, Poisson):
        return _poisson(_positive(arrival.rate), random.Random(seed))
    return _ramp(arrival)


def _positive(rate: float) -> float:
    if not math.isfinite(rate) or rate <= 0:
        raise ValueError(f"an arrival rate must be above 0 requests a second, not {rate:g}")
    return rate


def _constant(rate: float) -> Iterator[float]:
    index = 0
    while True:
        yield index / rate
        index += 1


def _poisson(rate: float, rng: random.Random) -> Iterator[float]:
    due = 0.0
    while True:
        yield due
        due += rng.expovariate(rate)


def _ramp(arrival: Ramp) -> Iterator[float]:
    """The n-th request is due when the integral of the rate reaches n; at the end rate from there on."""
    start, end, over = arrival.start_rate, arrival.end_rate, arrival.over_s
    if start < 0 or over <= 0:
        raise ValueError(f"a ramp needs a start rate of at least 0 and a length above 0 s, not {start:g} and {over:g}")
    _positive(end)
    return _ramp_times(start, end, over)


def _ramp_times(start: float, end: float, over: float) -> Iterator[float]:
    slope = (end - start) / over
    in_ramp = (start + end) / 2 * over
    index = 0
    while True:
        if index >= in_ramp:
            yield over + (index - in_ramp) / end
        elif slope == 0:
            yield index / start
        else:
            # The root of start * t + slope * t^2 / 2 = index that is the first to be reached.
            yield 2 * index / (start + math.sqrt(start * start + 2 * slope * index)) if index else 0.0
        index += 1


class StopRule:
    """Says whether one more request may start, for one cell.

    Whichever given limit comes first ends the cell, but never before the minimum number of requests.
    """

    def __init__(self, stop: Stop) -> None:
        """Takes the limits of a cell.

        Raises:
            ValueError: when no limit is given, or one that cannot be met.
        """
        if stop.requests is None and stop.duration_s is None and stop.interval_share is None:
            raise ValueError("a cell needs a number of requests, a duration or an interval to stop at")
        for name, limit in (("requests", stop.requests), ("duration_s", stop.duration_s)):
            if limit is not None and limit <= 0:
                raise ValueError(f"a cell's {name} must be above 0, not {limit:g}")
        self.stop = stop
        self._tokens: list[float] = []
        self._seconds: list[float] = []
        self._half_width: float | None = None

    @property
    def total(self) -> int | None:
        """How many requests the cell will have, where that is known beforehand."""
        if self.stop.requests is None or self.stop.duration_s is not None or self.stop.interval_share is not None:
            return None
        return max(self.stop.requests, self.stop.min_requests)

    @property
    def interval_share(self) -> float | None:
        """Width of the 95 % interval of throughput as a share of it, as far as it is known."""
        return None if self._half_width is None else 2 * self._half_width

    def note(self, record: RequestRecord) -> None:
        """Takes a finished request into account, for the interval."""
        if self.stop.interval_share is None or record.purpose != "cell":
            return
        took = record.e2e if record.valid else record.t - record.t_send
        if took is None or took <= 0:
            return
        self._seconds.append(took)
        self._tokens.append(float(record.n_out or 0) if record.valid else 0.0)
        self._half_width = ratio_half_width(self._tokens, self._seconds)

    def may_start(self, started: int, elapsed_s: float) -> bool:
        """Whether one more request may start.

        Args:
            started: measured requests started so far.
            elapsed_s: seconds since the measured part began; for an open loop the due time of the request.
        """
        stop = self.stop
        if started < stop.min_requests:
            return True
        if stop.requests is not None and started >= stop.requests:
            return False
        if stop.duration_s is not None and elapsed_s >= stop.duration_s:
            return False
        return not self._narrow_enough()

    def share_done(self, finished: int, elapsed_s: float) -> float:
        """How far the cell is, 0 to 1, by the limit that is nearest."""
        shares = [0.0]
        if self.stop.requests:
            shares.append(finished / self.stop.requests)
        if self.stop.duration_s:
            shares.append(elapsed_s / self.stop.duration_s)
        if self.stop.interval_share and self.interval_share:
            shares.append(self.stop.interval_share / self.interval_share)
        return min(1.0, max(shares))

    def _narrow_enough(self) -> bool:
        wanted, reached = self.stop.interval_share, self.interval_share
        if wanted is None or reached is None:
            return False
        return len(self._tokens) >= FEWEST_FOR_INTERVAL_STOP and reached <= wanted
