"""All figures of a cell, as pure functions of its request records: the one implementation that every view uses.

`docs/metrics.md` defines each figure. What the server did not report stays absent.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from loadgen import stats
from loadgen.cell_acceptance import acceptance, acceptance_length
from loadgen.figures import (
    CategoryFigures,
    CellFigures,
    ClientFigures,
    GoodputLimits,
    GpuWindow,
    Interval,
    RequestCounts,
    ServerWindow,
)
from loadgen.marks import cell_marks
from loadgen.phases import Phases, counted, cut_phases, working_end
from loadgen.records import RequestRecord
from loadgen.request_figures import chunk_gaps_s, decode_tok_s, token_gaps_s, tokens_inside, tpot_s
from loadgen.spec import CellSpec, ClosedLoop, WorkerHealth


def measure_cell(
    records: Sequence[RequestRecord],
    spec: CellSpec,
    *,
    health: WorkerHealth | None = None,
    server: ServerWindow | None = None,
    gpus: GpuWindow | None = None,
    speculative: bool = True,
    chain: bool = False,
    goodput_limits: GoodputLimits | None = None,
) -> CellFigures:
    """Measures one repetition of a cell.

    Args:
        records: all records of the cell, in any order; only those of purpose "cell" count.
        spec: what was asked for.
        health: how the load generator fared.
        server: the server's own view of the steady window.
        gpus: the GPUs over the steady window.
        speculative: whether the preset asked for speculation.
        chain: whether drafts are verified as a chain; only then is an accept rate given.
        goodput_limits: what a request must keep for goodput.

    Returns:
        The figures with their marks.
    """
    requests = counted(records)
    valid = [r for r in requests if r.valid]
    phases = cut_phases(requests, spec)
    seed = zlib.crc32(f"{spec.cell} {spec.seed}".encode())
    taken = acceptance(valid, server, chain=chain, seed=seed)
    decode = [speed for r in valid if (speed := decode_tok_s(r)) is not None]
    ttft = [r.ttft for r in valid if r.ttft is not None]
    token_gaps = [gap for r in valid for gap in token_gaps_s(r)]
    output_tokens = _total_output(valid)
    window_tokens = None if phases is None else _steady_tokens(valid, phases)
    throughput = None if phases is None else _per_second(window_tokens, phases.steady_s)
    figures = CellFigures(
        prompt_tokens_mean=_mean([r.prompt_tokens for r in valid if r.prompt_tokens is not None]),
        throughput_tok_s=throughput,
        throughput_ci95=None
        if throughput is None or phases is None
        else _throughput_interval(requests, phases, spec, seed),
        whole_run_throughput_tok_s=_whole_run(requests, output_tokens),
        decode_tok_s=stats.percentiles(decode),
        ttft_s=stats.percentiles(ttft),
        ttfo_s=stats.percentiles([r.ttfo for r in valid if r.ttfo is not None]),
        tpot_s=stats.percentiles([time for r in valid if (time := tpot_s(r)) is not None]),
        e2e_s=stats.percentiles([r.e2e for r in valid if r.e2e is not None]),
        chunk_gap_s=stats.percentiles([gap for r in valid for gap in chunk_gaps_s(r)]),
        itl_s=stats.percentiles([g for g, _ in token_gaps], repeats=[n for _, n in token_gaps]),
        decode_ci95=stats.bootstrap_median(decode, seed=seed),
        ttft_ci95=stats.bootstrap_median(ttft, seed=seed),
        acceptance_ci95=taken.interval,
        acceptance_length=taken.length,
        acceptance_source=None if taken.source is None else taken.source.value,
        accept_rate=taken.rate,
        verify_steps=taken.verify_steps,
        committed_tokens=taken.committed_tokens,
        accepted_histogram=taken.histogram,
        survival=taken.survival,
        step_s=_step_s(valid),
        effective_concurrency=None if phases is None else _effective_concurrency(requests, phases),
        server_running_mean=None if server is None else server.running_mean,
        output_tokens=output_tokens,
        reasoning_tokens=_sum_or_none([r.reasoning_tokens for r in valid if r.reasoning_tokens is not None]),
        ramp_s=None if phases is None else phases.ramp_s,
        steady_s=None if phases is None else phases.steady_s,
        tail_s=None if phases is None else phases.tail_s,
        steady_start_t=None if phases is None else phases.steady_start,
        steady_end_t=None if phases is None else phases.steady_end,
        requests=RequestCounts(
            valid=len(valid),
            failed=dict(sorted(Counter(r.outcome.value for r in requests if not r.valid).items())),
        ),
        unmeasured=sum(1 for r in valid if r.n_out is None),
        goodput=None if goodput_limits is None else _goodput(valid, goodput_limits),
        cached_token_share=_cached_share(valid),
        energy_j_per_tok=_energy_per_token(gpus, phases, window_tokens),
        gpu_memory_peak_bytes=(gpus.memory_peak_bytes or None) if gpus is not None else None,
        gpu_power_mean_w=None if gpus is None else gpus.power_mean_w,
        gpu_utilisation_mean=None if gpus is None else gpus.utilisation_mean,
        client=_client(health),
        categories=_categories(valid),
    )
    marks = cell_marks(requests, spec, figures, taken, health=health, server=server, gpus=gpus, speculative=speculative)
    return msgspec.structs.replace(figures, marks=marks)


def _total_output(valid: Sequence[RequestRecord]) -> int | None:
    """All output tokens; `None` when one count is missing, since the rest is not the total."""
    counts = [r.n_out for r in valid if r.n_out is not None]
    return sum(counts) if counts and len(counts) == len(valid) else None


def _steady_tokens(valid: Sequence[RequestRecord], phases: Phases) -> float | None:
    """Output tokens of valid requests that arrived in the steady window; `None` when some were not counted."""
    window = phases.steady
    if window is None or not valid:
        return None
    inside = [tokens_inside(r, window) for r in valid]
    known = [n for n in inside if n is not None]
    return math.fsum(known) if len(known) == len(inside) else None


def _per_second(tokens: float | None, seconds: float | None) -> float | None:
    return None if tokens is None or not seconds else tokens / seconds


def _whole_run(requests: Sequence[RequestRecord], output_tokens: int | None) -> float | None:
    last_tokens = [r.t_send + r.e2e for r in requests if r.valid and r.e2e is not None]
    if not last_tokens:
        return None
    return _per_second(output_tokens, max(last_tokens) - min(r.t_send for r in requests))


def _inside_s(record: RequestRecord, window: tuple[float, float]) -> float:
    """Seconds of a request inside the window."""
    return max(0.0, min(working_end(record), window[1]) - max(record.t_send, window[0]))


def _effective_concurrency(requests: Sequence[RequestRecord], phases: Phases) -> float | None:
    window = phases.steady
    if window is None:
        return None
    return math.fsum(_inside_s(r, window) for r in requests) / (window[1] - window[0])


def _throughput_interval(
    requests: Sequence[RequestRecord], phases: Phases, spec: CellSpec, seed: int
) -> Interval | None:
    """Interval of the throughput by bootstrap over the requests that ran in the steady window.

    Closed loop: the slots are full whatever is drawn, so the tokens a request gave are held against the seconds it
    took: throughput = running requests x (sum of tokens / sum of seconds). Open loop: arrivals decide, so the sum of
    tokens is held against the window. A failed request took its time and gave nothing.
    """
    window = phases.steady
    if window is None:
        return None
    length = window[1] - window[0]
    seconds, tokens = [], []
    for request in requests:
        spent = _inside_s(request, window)
        if spent > 0:
            seconds.append(spent)
            tokens.append((tokens_inside(request, window) or 0.0) if request.valid else 0.0)
    if isinstance(spec.arrival, ClosedLoop):
        return stats.bootstrap_ratio(tokens, seconds, scale=math.fsum(seconds) / length, seed=seed)
    return stats.bootstrap_ratio(tokens, [length / len(tokens)] * len(tokens), seed=seed) if tokens else None


def _step_s(valid: Sequence[RequestRecord]) -> float | None:
    """Seconds of one step, as a ratio of sums: decode time / verify steps.

    Without any verify steps every token is a step; where only some requests told theirs, the others are left out.
    """
    timed = [(r, r.e2e - r.ttft) for r in valid if r.ttft is not None and r.e2e is not None and r.e2e > r.ttft]
    verified = [(seconds, r.verify_steps) for r, seconds in timed if r.verify_steps]
    plain = [(seconds, r.n_out - 1) for r, seconds in timed if r.n_out is not None and r.n_out > 1]
    told = verified or plain
    return math.fsum(seconds for seconds, _ in told) / sum(steps for _, steps in told) if told else None


def _goodput(valid: Sequence[RequestRecord], limits: GoodputLimits) -> float | None:
    """Share of valid requests that kept every limit; a figure a request does not have breaks none."""
    if not valid:
        return None
    kept = sum(
        1
        for r in valid
        if _within(r.ttft, limits.ttft_s) and _within(tpot_s(r), limits.tpot_s) and _within(r.e2e, limits.e2e_s)
    )
    return kept / len(valid)


def _within(value: float | None, limit: float | None) -> bool:
    return value is None or limit is None or value <= limit


def _cached_share(valid: Sequence[RequestRecord]) -> float | None:
    told = [(r.cached_tokens, r.prompt_tokens) for r in valid if r.cached_tokens is not None and r.prompt_tokens]
    return sum(cached for cached, _ in told) / sum(prompt for _, prompt in told) if told else None


def _energy_per_token(gpus: GpuWindow | None, phases: Phases | None, window_tokens: float | None) -> float | None:
    """Joules of all GPUs a token, both over the steady window."""
    steady_s = None if phases is None else phases.steady_s
    if gpus is None or gpus.energy_j is None or not steady_s or not window_tokens:
        return None
    span_s = gpus.energy_span_s or steady_s
    return gpus.energy_j * (steady_s / span_s) / window_tokens


def _client(health: WorkerHealth | None) -> ClientFigures:
    if health is None:
        return ClientFigures()
    return ClientFigures(
        loop_lag_p99_s=health.loop_lag_p99_s,
        cpu_share=health.cpu_share,
        streams_open_max=health.streams_open_max,
        start_lateness_p99_s=health.start_lateness_p99_s,
    )


def _categories(valid: Sequence[RequestRecord]) -> tuple[CategoryFigures, ...]:
    """Figures by content, where a cell mixes several."""
    names = sorted({r.category for r in valid if r.category})
    if len(names) < 2:
        return ()
    found = []
    for name in names:
        own = [r for r in valid if r.category == name]
        speeds = [speed for r in own if (speed := decode_tok_s(r)) is not None]
        found.append(
            CategoryFigures(
                category=name,
                requests=len(own),
                output_tokens=_total_output(own),
                acceptance_length=acceptance_length(own),
                decode_tok_s_p50=stats.percentiles(speeds).p50,
            )
        )
    return tuple(found)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _sum_or_none(values: Sequence[int]) -> int | None:
    return sum(values) if values else None
