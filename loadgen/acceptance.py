"""Speculative counts of one request, from whichever of the servers' spellings they come in.

The one question answered here: what did the server really report? Zeros and empty lists that stand for "not reported"
become `None`.
"""

from __future__ import annotations

import msgspec

from loadgen.wire import LlamaTimings, SpecDetails, VllmSpeculation


class DraftCounts(msgspec.Struct, frozen=True):
    """What is known of a request's drafts; see `RequestRecord` for the fields."""

    verify_steps: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    accepted_histogram: tuple[int, ...] | None = None


NOTHING = DraftCounts()


def from_sglang(details: SpecDetails) -> DraftCounts:
    """Reads `sglext.spec_tokens_details` or `meta_info`.

    SGLang fills what it does not know with 0 and []; without a verify step nothing was reported at all, and a number
    of 0 correct drafts counts only beside a histogram or proposed drafts.
    """
    steps = details.spec_verify_ct
    if not steps or steps < 0:
        return NOTHING
    histogram = tuple(details.spec_correct_drafts_histogram or details.spec_accept_histogram or ())
    proposed = details.spec_num_proposed_drafts or details.spec_draft_token_num or None
    correct = details.spec_num_correct_drafts
    if correct is None:
        correct = details.spec_accept_token_num
    if correct == 0 and not histogram and proposed is None:
        correct = None
    if correct is None and histogram:
        correct = sum(accepted * count for accepted, count in enumerate(histogram))
    return DraftCounts(steps, correct, proposed, histogram or None)


def from_vllm(counts: VllmSpeculation) -> DraftCounts:
    """Reads `metrics.speculative_decoding`."""
    if not counts.num_spec_steps or counts.num_spec_steps < 0:
        return NOTHING
    return DraftCounts(
        counts.num_spec_steps,
        counts.num_accepted_draft_tokens,
        counts.num_draft_tokens or None,
        tuple(counts.acceptance_histogram or ()) or None,
    )


def from_llama(timings: LlamaTimings) -> DraftCounts:
    """Reads `timings`: drafts proposed and accepted; llama.cpp's server does not tell the number of steps."""
    if not timings.draft_n or timings.draft_n < 0:
        return NOTHING
    return DraftCounts(None, timings.draft_n_accepted, timings.draft_n, None)
