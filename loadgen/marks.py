"""Reasons to doubt a cell's figures, each a sentence with its number. The one place that says what is doubtful.

Marks that a cell alone decides come from `cell_marks`; those that need another cell, another preset or the readiness
proof come from the functions below it, called by whoever knows the neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from loadgen.cell_acceptance import Acceptance
from loadgen.figures import CellFigures, GpuWindow, Mark, MarkKind, ServerWindow
from loadgen.records import RequestRecord
from loadgen.spec import Calibration, CellSpec, ClosedLoop, WorkerHealth

LOOP_LAG_LIMIT_S = 0.005
CPU_SHARE_LIMIT = 0.85
CONCURRENCY_SHARE = 0.9
CACHED_SHARE_LIMIT = 0.05
OUTPUT_SHARE = 0.5
STEADY_ANSWERS = 2.0
COLD_FACTOR = 3.0
FAILED_SHARE_LIMIT = 0.01
WAITING_SHARE = 0.5  # every request waits a moment for the step under way: a queue is there most of the time
SERVER_SEEN_S = 5.0  # a gauge that is read once a second says little of a shorter window
FEWEST_FOR_COLD = 3  # with fewer, the first request is most of the median it is held against


def cell_marks(
    requests: Sequence[RequestRecord],
    spec: CellSpec,
    figures: CellFigures,
    taken: Acceptance,
    *,
    health: WorkerHealth | None = None,
    server: ServerWindow | None = None,
    gpus: GpuWindow | None = None,
    speculative: bool = True,
) -> tuple[Mark, ...]:
    """All marks that a cell alone decides, in the order of `MarkKind`.

    Args:
        requests: the counted requests, in the order in which they were sent.
        spec: what was asked.
        figures: the cell's figures, marks not yet among them.
        taken: the acceptance that the figures show.
        health: the load generator's own; no `client-bound` without it.
        server: the server's view of the steady window; no `queued` without it.
        gpus: the GPUs over the steady window; no `throttled` without it.
        speculative: whether the preset asked for speculation.
    """
    valid = [r for r in requests if r.valid]
    found = (
        None if health is None else client_bound(health),
        _under_run(requests, spec, figures),
        None if server is None else _queued(server),
        _cache_hits(valid, spec),
        _short_output(valid, spec),
        _short_steady(valid, figures),
        _cold(valid),
        None if gpus is None else _throttled(gpus),
        _errors(requests),
        _unmeasured(valid),
        _drafts_rejected(taken) if speculative else None,
        _no_speculation(valid, taken) if speculative else None,
        _few_samples(figures),
        None if gpus is None else _gpu_lost(gpus),
        None if server is None else _server_under_run(spec, figures, server),
    )
    return tuple(mark for mark in found if mark is not None)


def client_bound(health: WorkerHealth) -> Mark | None:
    """The load generator was at its limit, so its times may be late."""
    if health.loop_lag_p99_s > LOOP_LAG_LIMIT_S:
        return Mark(
            kind=MarkKind.CLIENT_BOUND,
            reason=f"the load generator's event loop was {health.loop_lag_p99_s * 1e3:.1f} ms late (p99; limit "
            f"{LOOP_LAG_LIMIT_S * 1e3:g} ms)",
            value=health.loop_lag_p99_s,
            limit=LOOP_LAG_LIMIT_S,
        )
    if health.cpu_share > CPU_SHARE_LIMIT:
        return Mark(
            kind=MarkKind.CLIENT_BOUND,
            reason=f"the load generator used {health.cpu_share:.0%} of a CPU core (limit {CPU_SHARE_LIMIT:.0%})",
            value=health.cpu_share,
            limit=CPU_SHARE_LIMIT,
        )
    return None


def _under_run(requests: Sequence[RequestRecord], spec: CellSpec, figures: CellFigures) -> Mark | None:
    if not isinstance(spec.arrival, ClosedLoop) or not requests:
        return None
    limit = CONCURRENCY_SHARE * spec.concurrency
    if len(requests) < spec.concurrency:
        return Mark(
            kind=MarkKind.UNDER_RUN,
            reason=f"only {len(requests)} requests for {spec.concurrency} slots",
            value=float(len(requests)),
            limit=float(spec.concurrency),
        )
    running = figures.effective_concurrency
    if running is None or running >= limit:
        return None
    return Mark(
        kind=MarkKind.UNDER_RUN,
        reason=f"{running:.1f} requests ran on average where {spec.concurrency} were asked for",
        value=running,
        limit=limit,
    )


def _queued(server: ServerWindow) -> Mark | None:
    if not server.waiting_max or (server.waiting_share is not None and server.waiting_share <= WAITING_SHARE):
        return None
    share = "" if server.waiting_share is None else f", and some in {server.waiting_share:.0%} of the readings"
    return Mark(
        kind=MarkKind.QUEUED,
        reason=f"the server had up to {server.waiting_max} requests waiting in the steady window{share}",
        value=float(server.waiting_max),
        limit=0.0,
    )


def _cache_hits(valid: Sequence[RequestRecord], spec: CellSpec) -> Mark | None:
    """The chat template's own tokens begin every prompt, are always cached, and are not what was asked to be new."""
    if spec.workload.cache != "unique" or spec.workload.turns > 1:
        return None
    template = (spec.calibration or Calibration()).overhead
    told = [(r.cached_tokens, r.prompt_tokens) for r in valid if r.cached_tokens is not None and r.prompt_tokens]
    prompt = sum(tokens for _, tokens in told)
    share = sum(max(0.0, cached - template) for cached, _ in told) / prompt if prompt else 0.0
    if share <= CACHED_SHARE_LIMIT:
        return None
    return Mark(
        kind=MarkKind.CACHE_HITS,
        reason=f"{share:.0%} of the prompt tokens, beyond the {template:.0f} of the chat template, came from the "
        "prefix cache, though every prompt was to be new",
        value=share,
        limit=CACHED_SHARE_LIMIT,
    )


def _short_output(valid: Sequence[RequestRecord], spec: CellSpec) -> Mark | None:
    lengths = [r.n_out for r in valid if r.n_out is not None]
    limit = OUTPUT_SHARE * spec.max_tokens
    if not lengths or (middle := median(lengths)) >= limit:
        return None
    return Mark(
        kind=MarkKind.SHORT_OUTPUT,
        reason=f"the median answer had {middle:g} of {spec.max_tokens} tokens asked for",
        value=float(middle),
        limit=limit,
    )


def _short_steady(valid: Sequence[RequestRecord], figures: CellFigures) -> Mark | None:
    took = [r.e2e for r in valid if r.e2e is not None]
    if not took:
        return None
    limit = STEADY_ANSWERS * median(took)
    if figures.steady_s is None:
        return Mark(
            kind=MarkKind.SHORT_STEADY,
            reason="there was no time at which all slots were answering",
            limit=limit,
        )
    if figures.steady_s >= limit:
        return None
    return Mark(
        kind=MarkKind.SHORT_STEADY,
        reason=f"the steady window lasted {figures.steady_s:.2f} s, less than two median answers ({limit:.2f} s)",
        value=figures.steady_s,
        limit=limit,
    )


def _cold(valid: Sequence[RequestRecord]) -> Mark | None:
    """The first request took much longer than its peers, and not because its answer was longer."""
    timed = [r for r in valid if r.e2e]
    if len(timed) < FEWEST_FOR_COLD or not valid[0].e2e:
        return None
    took = [r.e2e or 0.0 for r in timed]
    a_token = [(r.e2e or 0.0) / max(r.n_out or 1, 1) for r in timed]
    limit = COLD_FACTOR * median(took)
    if took[0] <= limit or a_token[0] <= COLD_FACTOR * median(a_token):
        return None
    return Mark(
        kind=MarkKind.COLD,
        reason=f"the first request took {took[0]:.2f} s, {took[0] / median(took):.1f} times the median",
        value=took[0],
        limit=limit,
    )


def _throttled(gpus: GpuWindow) -> Mark | None:
    if not gpus.throttle_reasons:
        return None
    return Mark(
        kind=MarkKind.THROTTLED,
        reason=f"GPU clocks were held down: {', '.join(gpus.throttle_reasons)}",
        value=float(len(gpus.throttle_reasons)),
        limit=0.0,
    )


def _server_under_run(spec: CellSpec, figures: CellFigures, server: ServerWindow) -> Mark | None:
    """The server itself ran fewer requests than were open here, in most readings: the others waited for it.

    The median is taken because the gauge runs behind: SGLang's is up to 15 steps late after each prefill.
    """
    ran, opened = server.running_median, figures.effective_concurrency
    if ran is None or opened is None or (figures.steady_s or 0.0) < SERVER_SEEN_S:
        return None
    if not isinstance(spec.arrival, ClosedLoop) or ran >= CONCURRENCY_SHARE * min(opened, spec.concurrency):
        return None
    return Mark(
        kind=MarkKind.SERVER_UNDER_RUN,
        reason=f"the server ran {ran:g} of the {spec.concurrency} requests (median of its readings): the others "
        "waited, or were being prefilled",
        value=ran,
        limit=CONCURRENCY_SHARE * spec.concurrency,
    )


def _gpu_lost(gpus: GpuWindow) -> Mark | None:
    if not gpus.lost_gpus:
        return None
    named = ", ".join(map(str, gpus.lost_gpus))
    return Mark(
        kind=MarkKind.GPU_LOST,
        reason=f"GPU {named} could not be read during the cell: its energy and memory are not known",
        value=float(len(gpus.lost_gpus)),
        limit=0.0,
    )


def _errors(requests: Sequence[RequestRecord]) -> Mark | None:
    failed = [r for r in requests if not r.valid]
    if not requests or len(failed) <= FAILED_SHARE_LIMIT * len(requests):
        return None
    kinds = sorted({r.outcome.value for r in failed})
    return Mark(
        kind=MarkKind.ERRORS,
        reason=f"{len(failed)} of {len(requests)} requests failed ({', '.join(kinds)})",
        value=len(failed) / len(requests),
        limit=FAILED_SHARE_LIMIT,
    )


def _unmeasured(valid: Sequence[RequestRecord]) -> Mark | None:
    missing = sum(1 for r in valid if r.n_out is None)
    if not missing:
        return None
    return Mark(
        kind=MarkKind.UNMEASURED,
        reason=f"{missing} of {len(valid)} answers came without a token count from the server",
        value=float(missing),
        limit=0.0,
    )


def _drafts_rejected(taken: Acceptance) -> Mark | None:
    if not taken.all_rejected:
        return None
    return Mark(
        kind=MarkKind.DRAFTS_REJECTED,
        reason="drafts were never accepted: acceptance length is 1.0, so speculation only costs time",
        value=taken.length,
        limit=1.0,
    )


def _no_speculation(valid: Sequence[RequestRecord], taken: Acceptance) -> Mark | None:
    if not valid or taken.length is not None:
        return None
    return Mark(
        kind=MarkKind.NO_SPECULATION,
        reason="speculation was asked for, but the server reported no speculative counts at all",
    )


def _few_samples(figures: CellFigures) -> Mark | None:
    shown = (figures.ttft_s, figures.tpot_s, figures.e2e_s)
    few = [p.n for p in shown if p.p99_is_max]
    if not few:
        return None
    return Mark(
        kind=MarkKind.FEW_SAMPLES,
        reason=f"p99 is the maximum: only {min(few)} requests behind it",
        value=float(min(few)),
        limit=100.0,
    )


def tau_drop(cell: CellFigures, smaller: CellFigures) -> Mark | None:
    """A larger budget accepts less than the next smaller one, by more than the intervals allow.

    Args:
        cell: of the larger budget.
        smaller: the same cell under the next smaller budget.
    """
    if cell.acceptance_source != smaller.acceptance_source:
        return None
    if cell.acceptance_length is None or smaller.acceptance_length is None:
        return None
    if cell.acceptance_ci95 is None or smaller.acceptance_ci95 is None:
        return None
    if cell.acceptance_ci95.hi >= smaller.acceptance_ci95.lo:
        return None
    return Mark(
        kind=MarkKind.TAU_DROP,
        reason=f"acceptance length {cell.acceptance_length:.2f} is below the {smaller.acceptance_length:.2f} of the "
        "next smaller budget: the tree may be broken",
        value=cell.acceptance_length,
        limit=smaller.acceptance_ci95.lo,
    )


def graph_missed(batch: int) -> Mark:
    """The server decoded without its captured graphs in this cell, though it has them for other batch sizes.

    Args:
        batch: the largest batch that ran without one.
    """
    return Mark(
        kind=MarkKind.GRAPH_MISSED,
        reason=f"the server decoded without a captured graph at {batch} running requests: the graphs were captured for "
        "other batch sizes, so this is not its speed",
        value=float(batch),
    )


def not_in_effect(setting: str, asked: str, found: str) -> Mark:
    """A preset's setting is not what the server runs with, so nothing was measured."""
    return Mark(
        kind=MarkKind.NOT_IN_EFFECT,
        reason=f"{setting} was to be {asked}, and the server runs with {found}",
    )


def diverged(
    identical_share: float,
    median_first_difference: float | None,
    *,
    share_limit: float = 0.8,
    position_limit: int = 64,
) -> Mark | None:
    """Greedy text differs from the reference preset's: in too many prompts, and early.

    Args:
        identical_share: share of prompts with identical text, 0 to 1.
        median_first_difference: median position of the first difference in tokens, over the prompts that differ.
        share_limit: fewer identical texts than this share are too few.
        position_limit: a median first difference within so many tokens is early.
    """
    if median_first_difference is None or identical_share >= share_limit:
        return None
    if median_first_difference > position_limit:
        return None
    return Mark(
        kind=MarkKind.DIVERGED,
        reason=f"only {identical_share:.0%} of greedy answers equal the reference's, and half of the others differ "
        f"within {median_first_difference:g} tokens",
        value=identical_share,
        limit=share_limit,
    )
