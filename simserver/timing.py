"""How long a forward pass takes on the simulated machine. Pure functions; milliseconds in, seconds out."""

from __future__ import annotations

import math

from simserver.acceptance import Verification
from simserver.profiles import StepCost

_CONTEXT_UNIT = 16384.0


def decode_seconds(
    cost: StepCost, verification: Verification, running: int, context_sum: int, draft_context_sum: int
) -> float:
    """Returns the time of one decode or verify step.

    Args:
        cost: the machine.
        verification: what a verify step looks at.
        running: requests in the batch.
        context_sum: tokens of context over the batch.
        draft_context_sum: tokens that the drafter attends over, summed over the batch.
    """
    width = verification.width
    rows = running * width
    milliseconds = cost.base + cost.root * math.sqrt(rows) + cost.linear * rows
    context = (
        cost.context_step * context_sum / running + cost.context_row * context_sum * width**cost.context_width_power
    )
    milliseconds += context / _CONTEXT_UNIT
    if verification.kind != "none":
        milliseconds += cost.draft + cost.draft_row * running
        milliseconds += cost.draft_context * draft_context_sum / _CONTEXT_UNIT
    if verification.kind == "tree":
        milliseconds += cost.tree + cost.tree_row * running
    return float(milliseconds / 1000.0)


def prefill_seconds(cost: StepCost, chunks: list[tuple[int, int]]) -> float:
    """Returns the time of one prefill pass.

    Args:
        cost: the machine.
        chunks: for each request in the pass, new tokens and tokens of context before them.
    """
    milliseconds = cost.prefill_base
    for new, before in chunks:
        milliseconds += cost.prefill_token * new + cost.prefill_square * new * (before + new / 2.0)
    return milliseconds / 1000.0
