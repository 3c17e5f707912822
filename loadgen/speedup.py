"""One cell against the same cell without speculation: did it pay, and what does a step cost?"""

from __future__ import annotations

from loadgen.figures import CellFigures


def speedup(cell: CellFigures, baseline: CellFigures) -> float | None:
    """Throughput of a cell / that of the same cell under the baseline preset; `None` where either has none.

    Acceptance has no part in it: a long acceptance length that costs more than it saves is a slow-down.
    """
    if cell.throughput_tok_s is None or not baseline.throughput_tok_s:
        return None
    return cell.throughput_tok_s / baseline.throughput_tok_s


def step_time_s(cell: CellFigures) -> float | None:
    """Seconds of one decode (or verify) step: tokens a step x running requests / throughput.

    Without an acceptance length a step gives one token; waiting for prefills is part of it.
    """
    if not cell.throughput_tok_s or cell.effective_concurrency is None:
        return None
    tokens_a_step = 1.0 if cell.acceptance_length is None else cell.acceptance_length
    return tokens_a_step * cell.effective_concurrency / cell.throughput_tok_s
