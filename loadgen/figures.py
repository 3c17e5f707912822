"""The figures of one cell, as every view, report and comparison reads them: the contract of `show --json`.

Computed only in `loadgen/measure.py`. Units: seconds, tokens, bytes, joules. Absent is `None` (JSON `null`), never 0.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class MarkKind(StrEnum):
    """Reasons to doubt a cell's figures (the definitions of `docs/metrics.md`)."""

    NOT_IN_EFFECT = "not-in-effect"
    CLIENT_BOUND = "client-bound"
    UNDER_RUN = "under-run"
    QUEUED = "queued"
    CACHE_HITS = "cache-hits"
    SHORT_OUTPUT = "short-output"
    SHORT_STEADY = "short-steady"
    COLD = "cold"
    THROTTLED = "throttled"
    ERRORS = "errors"
    UNMEASURED = "unmeasured"
    DRAFTS_REJECTED = "drafts-rejected"
    NO_SPECULATION = "no-speculation"
    TAU_DROP = "tau-drop"
    DIVERGED = "diverged"
    FEW_SAMPLES = "few-samples"
    GPU_LOST = "gpu-lost"
    GRAPH_MISSED = "graph-missed"
    SERVER_UNDER_RUN = "server-under-run"


class Mark(msgspec.Struct, frozen=True):
    """One reason to doubt a figure.

    Attributes:
        kind: which.
        reason: one sentence for the operator, with the number behind it.
        value: that number, where there is one; `limit`: what it was held against.
    """

    kind: MarkKind
    reason: str
    value: float | None = None
    limit: float | None = None


class Percentiles(msgspec.Struct, frozen=True):
    """p50, p90 and p99 by linear interpolation; `p99_is_max` with fewer than 100 samples."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    n: int = 0
    p99_is_max: bool = False


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """A 95 % confidence interval."""

    lo: float
    hi: float


class RequestCounts(msgspec.Struct, frozen=True):
    """Valid requests, and failed ones by kind."""

    valid: int = 0
    failed: dict[str, int] = msgspec.field(default_factory=dict)


class ClientFigures(msgspec.Struct, frozen=True):
    """The load generator's own health in the cell.

    Attributes:
        engine_lag_p99_s: 99th percentile of how late the event loop of the process was that runs the session and
            serves the terminals; it reads no stream, so this tells of its health and not of the figures'.
    """

    loop_lag_p99_s: float | None = None
    cpu_share: float | None = None
    streams_open_max: int | None = None
    start_lateness_p99_s: float | None = None
    engine_lag_p99_s: float | None = None


class CategoryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one content category inside a mixed cell."""

    category: str
    requests: int
    output_tokens: int | None
    acceptance_length: float | None
    decode_tok_s_p50: float | None


class ServerWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own view over the steady window, as telemetry gathered it; every field may be absent.

    Attributes:
        running_mean: time average of running requests; `running_median`: of the readings.
        waiting_max: most requests seen waiting.
        waiting_share: share of the samples in which some waited; a request that came in a moment ago waits too.
        drafts: counter delta of verify steps over the whole cell (vLLM drafts, SGLang verify calls).
        accepted: counter delta of accepted drafts (vLLM).
        generated: counter delta of generated tokens of finished requests.
        lifetime_acceptance: mean acceptance length since the last flush.
    """

    running_mean: float | None = None
    running_median: float | None = None
    waiting_max: int | None = None
    waiting_share: float | None = None
    token_usage_max: float | None = None
    drafts: float | None = None
    accepted: float | None = None
    generated: float | None = None
    verify_calls: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    lifetime_acceptance: float | None = None
    counters_reset: bool = False


class GoodputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must keep to count for goodput, in seconds; a limit not given does not bind."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class GpuWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's GPUs did over the steady window; lists are by GPU.

    Attributes:
        energy_j: joules of all GPUs over `energy_span_s`, from the energy counters; interpolated to the window.
        memory_peak_bytes: highest used memory in the whole cell.
        throttle_reasons: clock event reasons seen, other than idle and application clocks.
        lost_gpus: indices of our GPUs that could not be read at some time in the cell.
    """

    energy_j: float | None = None
    energy_span_s: float | None = None
    memory_peak_bytes: tuple[int | None, ...] = ()
    power_mean_w: float | None = None
    utilisation_mean: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    lost_gpus: tuple[int, ...] = ()


class CellFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a cell; keys of `show --json`'s `cells` (see `docs/metrics.md` for each definition).

    Attributes:
        throughput_tok_s: output tokens delivered in the steady window / its length; the headline.
        whole_run_throughput_tok_s: all valid output tokens / (last token - first send).
        decode_tok_s: per-user speed; `tpot_s` its inverse; `chunk_gap_s` times between token-bearing chunks.
        acceptance_length: tokens a verify step, bonus included; ratio of sums.
        effective_concurrency: time-average number of running requests over the steady window, client side.
        verify_steps, committed_tokens: the two sums whose ratio `acceptance_length` is, where the source has them.
        accepted_histogram: steps by number of accepted drafts, from 0; `survival`: share of steps that accepted at
            least 1, 2, ... drafts.
        step_s: seconds of one step of the server as a stream sees it: decode time / verify steps; without
            speculation / tokens.
        unmeasured: valid requests without a token count.
    """

    prompt_tokens_mean: float | None = None
    throughput_tok_s: float | None = None
    throughput_ci95: Interval | None = None
    whole_run_throughput_tok_s: float | None = None
    decode_tok_s: Percentiles = Percentiles()
    ttft_s: Percentiles = Percentiles()
    ttfo_s: Percentiles = Percentiles()
    tpot_s: Percentiles = Percentiles()
    e2e_s: Percentiles = Percentiles()
    chunk_gap_s: Percentiles = Percentiles()
    itl_s: Percentiles = Percentiles()
    decode_ci95: Interval | None = None
    ttft_ci95: Interval | None = None
    acceptance_ci95: Interval | None = None
    acceptance_length: float | None = None
    acceptance_source: str | None = None
    accept_rate: float | None = None
    verify_steps: float | None = None
    committed_tokens: float | None = None
    accepted_histogram: tuple[int, ...] | None = None
    survival: tuple[float, ...] | None = None
    step_s: float | None = None
    effective_concurrency: float | None = None
    server_running_mean: float | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    ramp_s: float | None = None
    steady_s: float | None = None
    tail_s: float | None = None
    steady_start_t: float | None = None
    steady_end_t: float | None = None
    requests: RequestCounts = RequestCounts()
    unmeasured: int = 0
    goodput: float | None = None
    cached_token_share: float | None = None
    energy_j_per_tok: float | None = None
    gpu_memory_peak_bytes: tuple[int | None, ...] | None = None
    gpu_power_mean_w: float | None = None
    gpu_utilisation_mean: float | None = None
    client: ClientFigures = ClientFigures()
    categories: tuple[CategoryFigures, ...] = ()
    marks: tuple[Mark, ...] = ()
