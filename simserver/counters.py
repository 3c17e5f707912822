"""What the server counts: lifetime counters, the last log window's gauges, and histograms for `/metrics`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

TTFT_BUCKETS = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
)  # fmt: skip
ITL_BUCKETS = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
E2E_BUCKETS = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0, 600.0, 1200.0,
    1800.0, 2400.0,
)  # fmt: skip
QUEUE_BUCKETS = (
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0,
    1800.0, 2000.0, 2500.0, 3000.0,
)  # fmt: skip


class Histogram:
    """A Prometheus histogram with cumulative buckets."""

    def __init__(self, limits: tuple[float, ...]) -> None:
        self.limits = limits
        self.sum = 0.0
        self.count = 0
        self._counts = [0] * (len(limits) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Adds a value."""
        self.sum += value * times
        self.count += times
        self._counts[bisect_left(self.limits, value)] += times

    def cumulative(self) -> list[tuple[str, int]]:
        """Returns each bucket's upper limit and how many values are at or below it."""
        total, out = 0, []
        for limit, count in zip((*self.limits, None), self._counts, strict=True):
            total += count
            out.append(("+Inf" if limit is None else str(limit), total))
        return out


@dataclass
class Window:
    """Decode steps since the last log line; the line's figures are these."""

    steps: int = 0
    tokens: int = 0
    rows: int = 0
    correct: int = 0
    since: float = 0.0


@dataclass
class StreamCounters:
    """Counters that are split by whether the request streams; they move when a request ends."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS))
    per_token: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS))


@dataclass
class Counters:
    """All counters and gauges of the server.

    Attributes:
        lifetime_correct, lifetime_rows: advanced when a log line fires, reset by `/flush_cache`.
        accept_length, accept_rate: of the last log window; they stay when the server is idle.
        last_throughput: tokens a second of the last window, never zeroed; `gen_throughput`: the gauge, 0 when idle.
        shown_running, shown_waiting: gauges as last reported.
    """

    streams: dict[bool, StreamCounters] = field(
        default_factory=lambda: {False: StreamCounters(), True: StreamCounters()}
    )
    cached_tokens: int = 0
    aborted: int = 0
    verify_calls: int = 0
    decode_tokens: int = 0
    prefill_computed: int = 0
    prefill_cached: int = 0
    prefill_passes: int = 0
    decode_passes: int = 0
    prefill_busy_us: int = 0
    window: Window = field(default_factory=Window)
    lifetime_correct: int = 0
    lifetime_rows: int = 0
    accept_length: float = 0.0
    accept_rate: float = 0.0
    last_throughput: float = 0.0
    gen_throughput: float = 0.0
    cache_hit_rate: float = 0.0
    shown_running: int = 0
    shown_waiting: int = 0
    shown_used: int = 0
    queue: Histogram = field(default_factory=lambda: Histogram(QUEUE_BUCKETS))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS))
    http_requests: dict[tuple[str, str], int] = field(default_factory=dict)
    http_active: dict[tuple[str, str], int] = field(default_factory=dict)
    http_responses: dict[tuple[str, str, int], int] = field(default_factory=dict)

    @property
    def lifetime_accept_length(self) -> float | None:
        """Mean tokens a verify step since start or last flush, bonus included; `None` before the first log line."""
        if not self.lifetime_rows:
            return None
        return (self.lifetime_correct + self.lifetime_rows) / self.lifetime_rows

    def reset_acceptance(self) -> None:
        """Forgets the lifetime acceptance, as a flush does."""
        self.lifetime_correct = self.lifetime_rows = 0
        self.window = Window(since=self.window.since)
