"""How many tokens a verify step gave. The one place that chooses between sources, and never mixes them.

Best first: counts of each request; counters of the server over the cell (vLLM's drafts and accepted drafts); generated
tokens over verify calls; the server's mean since its last flush.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from loadgen import stats
from loadgen.figures import Interval, ServerWindow
from loadgen.records import AcceptanceSource, RequestRecord

ALL_REJECTED_BELOW = 1.005  # reads as 1.00: no draft, or one in hundreds, was accepted


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance over a set of requests; everything `None` where nothing was reported.

    Attributes:
        length: tokens a verify step, bonus token included; a ratio of sums.
        source: where it is from.
        verify_steps, committed_tokens: the two sums, where the source has them.
        rate: correct / proposed drafts, for chains only.
        histogram: steps by number of accepted drafts, from 0.
        survival: share of steps that accepted at least 1, 2, ... drafts.
        interval: 95 % interval of `length` by bootstrap over requests, where counts are per request.
        requests: how many requests are behind it, where that is known.
    """

    length: float | None = None
    source: AcceptanceSource | None = None
    verify_steps: float | None = None
    committed_tokens: float | None = None
    rate: float | None = None
    histogram: tuple[int, ...] | None = None
    survival: tuple[float, ...] | None = None
    interval: Interval | None = None
    requests: int = 0

    @property
    def all_rejected(self) -> bool:
        """Whether the server verified drafts and accepted none.

        Generated tokens hold the first token of every request, which no verify step gave: taken off here.
        """
        if self.length is None:
            return False
        length = self.length
        if self.source is AcceptanceSource.TOKENS_PER_VERIFY and self.verify_steps and self.committed_tokens:
            length = (self.committed_tokens - self.requests) / self.verify_steps
        return length < ALL_REJECTED_BELOW


def acceptance(
    records: Sequence[RequestRecord],
    server: ServerWindow | None = None,
    *,
    chain: bool = False,
    intervals: bool = True,
    seed: int = 0,
) -> Acceptance:
    """Acceptance of one cell from the best source that reported.

    Args:
        records: the cell's requests; only valid ones are used.
        server: the server's counters over the cell.
        chain: whether drafts were verified as a chain; only then does an accept rate mean something.
        intervals: whether to compute the interval.
        seed: of the bootstrap.

    Returns:
        The figures; empty when no source reported.
    """
    valid = [r for r in records if r.valid]
    found = _from_requests(valid, chain=chain, intervals=intervals, seed=seed)
    if found is None and server is not None:
        found = _from_counters(server) or _from_verify_calls(server, len(valid)) or _from_lifetime(server)
    return found or Acceptance()


def acceptance_length(records: Iterable[RequestRecord]) -> float | None:
    """The acceptance length that the requests themselves told of, without interval or histogram: for live figures."""
    steps, committed, _ = _sums([r for r in records if r.valid and r.verify_steps])
    return sum(committed) / sum(steps) if steps else None


def add_histograms(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Adds histograms of different lengths, place by place."""
    total: list[int] = []
    for histogram in histograms:
        total.extend([0] * (len(histogram) - len(total)))
        for k, steps in enumerate(histogram):
            total[k] += steps
    return tuple(total)


def survival_of(histogram: Sequence[int]) -> tuple[float, ...] | None:
    """Share of steps that accepted at least 1, 2, ... drafts; `None` of no steps."""
    steps = sum(histogram)
    if steps == 0:
        return None
    return tuple(sum(histogram[k:]) / steps for k in range(1, len(histogram)))


def plausible(length: float | None) -> float | None:
    """An acceptance length a server reported, or `None` where it cannot be one.

    The bonus token alone gives 1, so 0.0 (and NaN) is how servers spell "not reported yet".
    """
    if length is None or not math.isfinite(length) or length < 1.0:
        return None
    return length


def _sums(reporting: Sequence[RequestRecord]) -> tuple[list[float], list[float], AcceptanceSource]:
    """Verify steps and committed tokens by request, and what the latter were counted from.

    One way of counting for all: drafts where every request told of them, otherwise output tokens without the first
    one, which came from prefill.
    """
    if all(r.correct_drafts is not None for r in reporting):
        pairs = [(r.verify_steps or 0, (r.correct_drafts or 0) + (r.verify_steps or 0)) for r in reporting]
        source = AcceptanceSource.PER_REQUEST
    else:
        pairs = [(r.verify_steps or 0, r.n_out - 1) for r in reporting if r.n_out is not None and r.n_out > 0]
        source = AcceptanceSource.PER_REQUEST_TOKENS
    return [float(s) for s, _ in pairs], [float(c) for _, c in pairs], source


def _from_requests(valid: Sequence[RequestRecord], *, chain: bool, intervals: bool, seed: int) -> Acceptance | None:
    reporting = [r for r in valid if r.verify_steps]
    steps, committed, source = _sums(reporting)
    if not steps:
        return None
    histograms = [r.accepted_histogram for r in reporting if r.accepted_histogram]
    histogram = add_histograms(histograms) if len(histograms) == len(reporting) else None
    rate = None
    if chain and all(r.proposed_drafts and r.correct_drafts is not None for r in reporting):
        rate = sum(r.correct_drafts or 0 for r in reporting) / sum(r.proposed_drafts or 0 for r in reporting)
    return Acceptance(
        length=sum(committed) / sum(steps),
        source=source,
        verify_steps=sum(steps),
        committed_tokens=sum(committed),
        rate=rate,
        histogram=histogram,
        survival=None if histogram is None else survival_of(histogram),
        interval=stats.bootstrap_ratio(committed, steps, seed=seed) if intervals else None,
        requests=len(steps),
    )


def _from_counters(server: ServerWindow) -> Acceptance | None:
    if server.counters_reset or not server.drafts or server.accepted is None:
        return None
    if server.drafts < 0 or server.accepted < 0:
        return None
    by_position = server.accepted_per_position
    return Acceptance(
        length=1.0 + server.accepted / server.drafts,
        source=AcceptanceSource.COUNTERS,
        verify_steps=server.drafts,
        committed_tokens=server.drafts + server.accepted,
        survival=None if by_position is None else tuple(n / server.drafts for n in by_position),
    )


def _from_verify_calls(server: ServerWindow, finished: int) -> Acceptance | None:
    if server.counters_reset or not server.generated or not server.verify_calls:
        return None
    if server.generated < 0 or server.verify_calls < 0:
        return None
    length = plausible(server.generated / server.verify_calls)
    if length is None:
        return None
    return Acceptance(
        length=length,
        source=AcceptanceSource.TOKENS_PER_VERIFY,
        verify_steps=server.verify_calls,
        committed_tokens=server.generated,
        requests=finished,
    )


def _from_lifetime(server: ServerWindow) -> Acceptance | None:
    length = plausible(server.lifetime_acceptance)
    return None if length is None else Acceptance(length=length, source=AcceptanceSource.LIFETIME)
