"""Cuts a cell into ramp, steady and tail. The one place that answers "when was the load the one asked for?".

Times are seconds since the session's start, as in the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from loadgen.records import RequestRecord
from loadgen.spec import CellSpec, ClosedLoop

SAME_STEP_SHARE = 0.25  # of the usual time between chunks: what arrives closer than that was handed out together


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """The three phases of a cell; a phase that never came has no times.

    Attributes:
        start: the first request was sent.
        steady_start: ramp ends and the steady window begins; `None` when the load asked for was never reached.
        steady_end: the steady window ends; `None` likewise.
        end: the last request was over.
    """

    start: float
    steady_start: float | None
    steady_end: float | None
    end: float

    @property
    def steady(self) -> tuple[float, float] | None:
        """The steady window, open at its start and closed at its end, where there is one."""
        if self.steady_start is None or self.steady_end is None:
            return None
        return self.steady_start, self.steady_end

    @property
    def ramp_s(self) -> float:
        """Length of the ramp in seconds; the whole cell where no steady window followed."""
        return (self.end if self.steady_start is None else self.steady_start) - self.start

    @property
    def steady_s(self) -> float | None:
        """Length of the steady window in seconds."""
        window = self.steady
        return None if window is None else window[1] - window[0]

    @property
    def tail_s(self) -> float:
        """Length of the tail in seconds."""
        return 0.0 if self.steady_end is None else self.end - self.steady_end


def counted(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """The records that count for a cell (never warm-up, probe or eval), in the order in which they were sent."""
    return sorted((r for r in records if r.purpose == "cell"), key=lambda r: (r.t_send, r.rid))


def working_end(record: RequestRecord) -> float:
    """When the server stopped working on a request: its last token; for a failed one, when it was over."""
    if record.valid and record.e2e is not None:
        return record.t_send + record.e2e
    return max(record.t, record.t_send)


def cut_phases(records: Sequence[RequestRecord], spec: CellSpec) -> Phases | None:
    """Cuts the records of one cell into its phases.

    Args:
        records: of one cell, in any order; those that do not count are left out.
        spec: the cell's concurrency and arrival.

    Returns:
        The phases, or `None` when no request was made.
    """
    requests = counted(records)
    if not requests:
        return None
    start = requests[0].t_send
    end = max(working_end(r) for r in requests)
    if isinstance(spec.arrival, ClosedLoop):
        steady_start = _all_slots_answering(requests, spec.concurrency)
        steady_end = _end_of_step(requests, _first_idle_slot(requests, spec.concurrency))
    else:
        steady_start = _start_forgotten(requests)
        steady_end = requests[-1].t_send
    if steady_start is None or steady_end is None or steady_end <= steady_start:
        return Phases(start=start, steady_start=None, steady_end=None, end=end)
    return Phases(start=start, steady_start=steady_start, steady_end=steady_end, end=end)


def steady_window(records: Sequence[RequestRecord], spec: CellSpec) -> tuple[float, float] | None:
    """The steady window (start, end] of a cell in seconds since the session's start, where there is one."""
    phases = cut_phases(records, spec)
    return None if phases is None else phases.steady


def _all_slots_answering(requests: Sequence[RequestRecord], concurrency: int) -> float | None:
    """When as many requests as there are slots had delivered a first token."""
    first_tokens = sorted(r.t_send + r.ttft for r in requests if r.ttft is not None)
    return first_tokens[concurrency - 1] if len(first_tokens) >= concurrency else None


def _first_idle_slot(requests: Sequence[RequestRecord], concurrency: int) -> float | None:
    """When the first slot ended its last request; `None` when there were never requests for all slots."""
    if len(requests) < concurrency:
        return None
    last_of_slot: dict[int, float] = {}
    for request in requests:
        last_of_slot[request.slot] = max(last_of_slot.get(request.slot, 0.0), working_end(request))
    if len(last_of_slot) < concurrency:
        return None
    return min(last_of_slot.values())


def _end_of_step(requests: Sequence[RequestRecord], end: float | None) -> float | None:
    """The last chunk that belongs to the same step of the server as the one that ended the first slot's work.

    A server hands out the tokens of a step to all streams at once, and they are read one after the other. Without this
    the window would have that step's time and, of its tokens, whatever happened to be read first.
    """
    if end is None:
        return None
    running = [r for r in requests if r.t_send < end and r.chunks and r.t_send + r.chunks[-1].t >= end]
    gaps = [gap for r in running for gap in _gaps(r)]
    if not gaps:
        return end
    limit = end + SAME_STEP_SHARE * median(gaps)
    arrivals = (r.t_send + c.t for r in running for c in r.chunks)
    return max((t for t in arrivals if end <= t <= limit), default=end)


def _gaps(record: RequestRecord) -> list[float]:
    return [b.t - a.t for a, b in pairwise(record.chunks)]


def _start_forgotten(requests: Sequence[RequestRecord]) -> float | None:
    """When an open loop no longer shows that it began with an idle server: one median answer time after the start."""
    took = [r.e2e for r in requests if r.valid and r.e2e is not None]
    return requests[0].t_send + median(took) if took else None
