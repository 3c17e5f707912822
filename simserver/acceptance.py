"""How many drafted tokens a verify step accepts: a drafter whose uncertainty differs from position to position.

At each drafted position the drafter is confident or unsure; its first candidate is right with the probability that
belongs to that state, ranks 2, 3, ... share the rest in a geometric series, and something is left outside. A chain
accepts until the first candidate is wrong. A tree holds the `budget` most probable nodes (best-first over products of
candidate probabilities, at most `topk` ranks a position); the accepted path is the longest prefix of the target's ranks
inside it.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from simserver.profiles import DraftQuality

_MISS = -1


@dataclass(frozen=True)
class Verification:
    """What a verify step looks at.

    Attributes:
        kind: nothing, a chain, or a tree.
        depth: drafted positions (block size minus the anchor slot).
        budget: nodes of the tree; `topk`: ranks a position; both 0 outside trees.
    """

    kind: Literal["none", "chain", "tree"]
    depth: int = 0
    budget: int = 0
    topk: int = 0

    @property
    def width(self) -> int:
        """Rows a request takes in a verify pass, the anchor included."""
        return 1 + (self.budget if self.kind == "tree" else self.depth)

    @property
    def proposed(self) -> int:
        """Drafted tokens a step, as the server counts them."""
        return self.width - 1


class TreeShape:
    """Which nodes are inside the tree, for one setting and every pattern of confident and unsure positions."""

    def __init__(self, verification: Verification, quality: DraftQuality, ranks: int) -> None:
        self._depth = verification.depth
        self._budget = verification.budget
        count = min(verification.topk, ranks)
        self.confident = _log_ranks(quality.hit, quality.ratio, count)
        self.unsure = _log_ranks(quality.unsure_hit, quality.ratio, count)
        self._thresholds: dict[int, tuple[float, float]] = {}

    def threshold(self, pattern: int) -> tuple[float, float]:
        """Returns the log probability of the least probable node inside, and the share of such nodes that fit in.

        Args:
            pattern: bit i set where position i is confident.
        """
        found = self._thresholds.get(pattern)
        if found is None:
            found = self._thresholds[pattern] = self._search(pattern)
        return found

    def _search(self, pattern: int) -> tuple[float, float]:
        # Nodes of one depth and one probability are taken together, so that the search is short at any budget.
        groups: dict[tuple[int, int], int] = {(0, 0): 1}
        queue: list[tuple[int, int]] = [(0, 0)]
        left = self._budget
        while queue:
            cost, depth = heapq.heappop(queue)
            nodes = groups.pop((depth, cost))
            if depth:
                if nodes >= left:
                    return -cost / _GRID, left / nodes
                left -= nodes
            if depth < self._depth:
                for log_p in self.confident if pattern >> depth & 1 else self.unsure:
                    child = (depth + 1, cost + round(-log_p * _GRID))
                    if child in groups:
                        groups[child] += nodes
                    else:
                        groups[child] = nodes
                        heapq.heappush(queue, (child[1], child[0]))
        return -math.inf, 1.0


_GRID = 1_000_000


def _log_ranks(hit: float, ratio: float, count: int) -> tuple[float, ...]:
    shares = [hit] + [(1.0 - hit) * (1.0 - ratio) * ratio**i for i in range(count - 1)]
    return tuple(math.log(share) for share in shares)


class Drafter:
    """The drafter of one request: its quality drifts slowly along the answer, its luck is its own seeded stream."""

    _shapes: ClassVar[dict[tuple[Verification, float, float, float, int], TreeShape]] = {}

    def __init__(
        self,
        verification: Verification,
        quality: DraftQuality,
        ranks: int,
        rng: random.Random,
        *,
        penalty: float = 0.0,
        corrupt: bool = False,
    ) -> None:
        """Draws this prompt's own quality around the content's.

        Args:
            verification: what a verify step looks at.
            quality: how good the drafter is on this kind of content.
            ranks: candidates that the drafter offers a position at most.
            rng: this request's own luck.
            penalty: what context and window take away from the share of confident positions.
            corrupt: the tree mask is broken: drafts deep in the tree are looked at wrongly.
        """
        self._verification = verification
        self._rng = rng
        self._corrupt = corrupt
        self._mean = quality.confident + rng.uniform(-0.035, 0.035) * (0 < quality.confident < 1)
        self._drift = 0.0
        self._penalty = penalty
        self._quality = quality
        self._steps = 0
        self._ranks = ranks
        self._shape: TreeShape | None = None
        if verification.kind == "tree":
            key = (verification, quality.hit, quality.unsure_hit, quality.ratio, ranks)
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = TreeShape(verification, quality, ranks)
            self._shape = shape

    def set_penalty(self, penalty: float) -> None:
        """Tells what context and window take away now; the context grows along the answer."""
        self._penalty = penalty

    def step(self) -> int:
        """Returns how many drafted tokens one verify step accepts (the bonus token not counted)."""
        self._steps += 1
        if self._steps % 8 == 0:
            self._drift = 0.8 * self._drift + self._rng.gauss(0.0, 0.015)
        confident = min(1.0, max(0.05, self._mean + self._drift - self._penalty))
        if self._quality.confident >= 1.0:
            confident = 1.0
        accepted = self._chain(confident) if self._shape is None else self._tree(self._shape, confident)
        if self._corrupt and accepted:
            draw = self._rng.random
            accepted = next((i for i in range(accepted) if draw() < 0.28), accepted)
        return accepted

    def _chain(self, confident: float) -> int:
        draw = self._rng.random
        hit, unsure_hit = self._quality.hit, self._quality.unsure_hit
        for position in range(self._verification.depth):
            if draw() >= (hit if draw() < confident else unsure_hit):
                return position
        return self._verification.depth

    def _tree(self, shape: TreeShape, confident: float) -> int:
        draw = self._rng.random
        depth = self._verification.depth
        pattern = 0
        for position in range(depth):
            if draw() < confident:
                pattern |= 1 << position
        threshold, share = shape.threshold(pattern)
        border = threshold + 1e-5
        log_p = 0.0
        for position in range(depth):
            known = pattern >> position & 1
            rank = self._target_rank(self._quality.hit if known else self._quality.unsure_hit, len(shape.unsure))
            if rank == _MISS:
                return position
            log_p += (shape.confident if known else shape.unsure)[rank]
            if log_p < border and (log_p < threshold - 1e-5 or draw() >= share):
                return position
        return depth

    def _target_rank(self, hit: float, count: int) -> int:
        draw = self._rng.random()
        if draw < hit:
            return 0
        left = (draw - hit) / (1.0 - hit)
        mass = 1.0 - self._quality.ratio
        for rank in range(1, count):
            if left < mass:
                return rank
            left -= mass
            mass *= self._quality.ratio
        return _MISS


def sampled(quality: DraftQuality, temperature: float) -> DraftQuality:
    """Returns the quality at a temperature: sampling from the target agrees less often with the drafter."""
    if temperature <= 0:
        return quality
    loss = 0.030 * min(temperature, 1.5)
    return replace(quality, hit=quality.hit - loss * 0.5, unsure_hit=quality.unsure_hit * (1.0 - 2.0 * loss))


def context_penalty(context: int, window: int | None, trained: int) -> float:
    """Returns what context and draft window take from the share of confident positions.

    Beyond the trained context the drafter is out of its distribution; a window smaller than the trained one hides what
    it was trained to see.

    Args:
        context: tokens before the drafted position.
        window: draft window in tokens, `None` for none.
        trained: tokens of context the drafter was trained on.
    """
    seen = context if window is None else min(context, window)
    penalty = 0.0
    if seen > trained:
        penalty += 0.10 * math.log2(seen / trained)
    wanted = min(context, trained)
    if seen < wanted:
        penalty += 0.07 * math.log2(wanted / seen)
    return min(penalty, 0.5)
