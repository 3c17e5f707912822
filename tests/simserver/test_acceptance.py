"""The drafter and the tree: against the published figures, and against the definition written out in full."""

from __future__ import annotations

import heapq
import itertools
import math
import random

import pytest

from simserver import calibration
from simserver.acceptance import Drafter, TreeShape, Verification, context_penalty, sampled
from simserver.profiles import KIMI_K26, QWEN3_8B, DraftQuality

STEPS = 5000


@pytest.mark.parametrize("row", list(calibration.acceptance(STEPS)), ids=lambda row: row.what)
def test_acceptance_is_within_ten_percent_of_the_published(row: calibration.Comparison) -> None:
    assert abs(row.difference) < 0.10, f"{row.simulated:.2f} for a published {row.published}"


@pytest.mark.parametrize("row", list(calibration.timing(STEPS)), ids=lambda row: row.what)
def test_throughput_is_near_the_published_rows(row: calibration.Comparison) -> None:
    assert abs(row.difference) < 0.13, f"{row.simulated:.0f} tok/s for a published {row.published}"


@pytest.mark.parametrize("row", list(calibration.speedups(STEPS)), ids=lambda row: row.what)
def test_speedups_are_within_ten_percent_of_the_published(row: calibration.Comparison) -> None:
    assert abs(row.difference) < 0.10


def test_the_chains_histogram_has_the_published_shape() -> None:
    chain = Verification("chain", 15)
    counts = calibration.accepted_histogram(QWEN3_8B, QWEN3_8B.quality["math"], chain, 20_000)
    shares = [100 * count / sum(counts) for count in counts]
    published = calibration.MATH_500_CHAIN_SHARES
    assert shares[0] == pytest.approx(published[0], abs=2.5)
    assert shares[15] == pytest.approx(published[15], abs=2.5)
    assert max(shares[1:15]) < shares[15], "the spike is at the full block"


def brute_force(verification: Verification, quality: DraftQuality, ranks: int, pattern: int) -> list[float]:
    """Log probabilities of the nodes inside, by best-first search over single nodes."""
    shape = TreeShape(verification, quality, ranks)
    queue: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    order = itertools.count(1)
    inside: list[float] = []
    while queue and len(inside) < verification.budget:
        cost, _, depth = heapq.heappop(queue)
        if depth:
            inside.append(-cost)
        if depth < verification.depth:
            for log_p in shape.confident if pattern >> depth & 1 else shape.unsure:
                heapq.heappush(queue, (cost - log_p, next(order), depth + 1))
    return inside


@pytest.mark.parametrize("pattern", [0, 0b1111111, 0b0101010, 0b0011100])
@pytest.mark.parametrize(("budget", "topk"), [(1, 1), (4, 4), (8, 2), (16, 4), (200, 3)])
def test_the_threshold_is_that_of_the_best_first_tree(pattern: int, budget: int, topk: int) -> None:
    verification, quality = Verification("tree", 7, budget, topk), KIMI_K26.quality["code"]
    threshold, share = TreeShape(verification, quality, 8).threshold(pattern)
    inside = brute_force(verification, quality, 8, pattern)
    if len(inside) < budget:
        assert threshold == -math.inf
        return
    assert threshold == pytest.approx(inside[-1], abs=1e-4)
    assert 0 < share <= 1


def tau(verification: Verification, quality: DraftQuality, *, corrupt: bool = False, penalty: float = 0.0) -> float:
    steps = correct = 0
    rng = random.Random(5)
    for _ in range(60):
        drafter = Drafter(
            verification, quality, 8, random.Random(rng.getrandbits(60)), corrupt=corrupt, penalty=penalty
        )
        for _ in range(60):
            correct += drafter.step()
            steps += 1
    return (correct + steps) / steps


def test_a_wider_tree_accepts_more_and_a_budget_below_the_block_loses_to_the_chain() -> None:
    quality = KIMI_K26.quality["snippets"]
    lengths = [tau(Verification("tree", 7, budget, 4), quality) for budget in (4, 8, 12, 16, 32)]
    assert lengths == sorted(lengths)
    assert lengths[0] < tau(Verification("chain", 7), quality) < lengths[-1]


def test_more_candidates_a_position_accept_more_where_the_budget_allows() -> None:
    quality = KIMI_K26.quality["snippets"]
    assert tau(Verification("tree", 7, 32, 1), quality) < tau(Verification("tree", 7, 32, 4), quality)


def test_a_corrupt_mask_makes_a_wide_tree_accept_less_than_a_narrow_one() -> None:
    quality = KIMI_K26.quality["code"]
    assert tau(Verification("tree", 7, 16, 4), quality, corrupt=True) < tau(Verification("tree", 7, 8, 4), quality)


def test_sampling_accepts_less() -> None:
    quality, chain = KIMI_K26.quality["code"], Verification("chain", 7)
    loss = 1 - tau(chain, sampled(quality, 1.0)) / tau(chain, quality)
    assert 0.05 < loss < 0.35


@pytest.mark.parametrize(
    ("context", "window", "better"),
    [(8192, None, 2048), (65536, None, 2048), (8192, 512, 2048), (8192, 8192, 2048), (65536, 16384, 4096)],
)
def test_windows_other_than_the_trained_one_hurt_at_long_context(context: int, window: int | None, better: int) -> None:
    assert context_penalty(context, window, 2048) > context_penalty(context, better, 2048) >= 0


def test_a_short_context_does_not_care_about_the_window() -> None:
    assert context_penalty(1000, None, 2048) == context_penalty(1000, 2048, 2048) == 0


def test_a_penalty_lowers_the_acceptance_and_the_same_seed_repeats_it() -> None:
    quality, chain = KIMI_K26.quality["code"], Verification("chain", 7)
    assert tau(chain, quality, penalty=0.2) < 0.9 * tau(chain, quality)
    assert tau(chain, quality) == tau(chain, quality)
