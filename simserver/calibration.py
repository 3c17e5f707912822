"""The published figures that the simulation is held to, and what it makes of them.

`python -m simserver.calibration` prints both side by side; the manual's table is its output, and the tests hold the
difference.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simserver.acceptance import Drafter, Verification
from simserver.profiles import KIMI_K26, QWEN3_8B, DraftQuality, Profile
from simserver.timing import decode_seconds, prefill_seconds

MATH_500_CHAIN = 7.79
MATH_500_BUDGETS = {16: 8.61, 32: 9.27, 64: 9.75, 128: 10.20, 256: 10.43, 512: 10.73, 1024: 10.97}
MATH_500_CHAIN_SHARES = (10.3, 11.9, 10.0, 8.2, 7.0, 5.5, 4.5, 4.1, 3.6, 3.3, 3.0, 2.8, 2.6, 2.4, 2.3, 18.6)
MATH_500_SPEEDUPS = {16: 6.09, 32: 6.60, 64: 6.97, 128: 7.33, 256: 7.43, 512: 7.52, 1024: 6.82}
MATH_500_CHAIN_SPEEDUP = 5.56
QWEN_CHAINS = {
    "HumanEval": ("code", 6.61),
    "MBPP": ("snippets", 5.99),
    "MT-Bench": ("chat", 4.28),
    "Alpaca": ("prose", 3.12),
}
KIMI_CHAINS = {
    "GSM8K": ("math", 5.3),
    "MATH-500": ("math", 5.5),
    "HumanEval": ("code", 5.3),
    "MBPP": ("snippets", 4.5),
    "MT-Bench": ("chat", 3.7),
}
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
PLAIN_TOK_S = {
    0: (92.4, 151.3, 239.5, 350.9, 636.2, 957.7, 1497.0, 2223.0),
    16384: (81.5, 134.9, 207.2, 298.9, 489.5),
    32768: (73.4, 123.3, 183.2, 261.8),
    65536: (60.5, 106.2, 149.3),
    131072: (46.1, 83.6),
}
EAGLE_TOK_S = {
    0: (122.0, 176.6, 337.7, 492.6, 754.0, 1129.0, 1675.0, 2246.0),
    16384: (103.8, 171.9, 254.7, 351.7, 484.6),
    65536: (74.6, 115.8, 155.1),
    131072: (58.3, 78.7),
}
PREFILL_TOK_S = {8192: 7971.0, 65536: 4918.0}
_EAGLE = Verification("chain", 3)


@dataclass(frozen=True)
class Comparison:
    """One published figure and the simulation's."""

    what: str
    published: float
    simulated: float

    @property
    def difference(self) -> float:
        """Relative difference of the simulated figure."""
        return self.simulated / self.published - 1.0


def acceptance_length(
    profile: Profile, quality: DraftQuality, verification: Verification, steps: int, seed: int = 0
) -> float:
    """Returns tokens a verify step, bonus included, as a ratio of sums over requests of 50 steps.

    Args:
        profile: whose drafter.
        quality: its quality on one kind of content.
        verification: chain or tree.
        steps: verify steps to draw.
        seed: makes the draw reproducible.
    """
    histogram = accepted_histogram(profile, quality, verification, steps, seed)
    return sum((k + 1) * count for k, count in enumerate(histogram)) / sum(histogram)


def accepted_histogram(
    profile: Profile, quality: DraftQuality, verification: Verification, steps: int, seed: int = 0
) -> list[int]:
    """Returns how many steps accepted 0, 1, ... drafts; arguments as for `acceptance_length`."""
    rng = random.Random(seed)
    histogram = [0] * (verification.depth + 1)
    for _ in range(max(1, steps // 50)):
        drafter = Drafter(verification, quality, profile.ranks, random.Random(rng.getrandbits(64)))
        for _ in range(50):
            histogram[drafter.step()] += 1
    return histogram


def acceptance(steps: int) -> Iterator[Comparison]:
    """Returns acceptance lengths beside the published ones."""
    math_500 = QWEN3_8B.quality["math"]
    chain = Verification("chain", 15)
    yield Comparison(
        "qwen3-8b, MATH-500, chain of 16", MATH_500_CHAIN, acceptance_length(QWEN3_8B, math_500, chain, steps)
    )
    for budget, published in MATH_500_BUDGETS.items():
        tree = Verification("tree", 15, budget, QWEN3_8B.ranks)
        found = acceptance_length(QWEN3_8B, math_500, tree, steps)
        yield Comparison(f"qwen3-8b, MATH-500, tree of {budget}", published, found)
    for name, (kind, published) in QWEN_CHAINS.items():
        found = acceptance_length(QWEN3_8B, QWEN3_8B.quality[kind], chain, steps)
        yield Comparison(f"qwen3-8b, {name} ({kind}), chain of 16", published, found)
    for name, (kind, published) in KIMI_CHAINS.items():
        found = acceptance_length(KIMI_K26, KIMI_K26.quality[kind], Verification("chain", 7), steps)
        yield Comparison(f"kimi-k26, {name} ({kind}), chain of 8", published, found)


def _throughput(verification: Verification, running: int, context: int, tokens_a_step: float) -> float:
    total = running * context
    return running * tokens_a_step / decode_seconds(KIMI_K26.cost, verification, running, total, total)


def timing(steps: int) -> Iterator[Comparison]:
    """Returns throughput on the 8-GPU machine beside the published rows, tokens a second."""
    plain = Verification("none")
    for context, row in PLAIN_TOK_S.items():
        for running, published in zip(CONCURRENCIES, row, strict=False):
            found = _throughput(plain, running, context, 1.0)
            yield Comparison(f"kimi-k26, no speculation, context {context}, {running} streams", published, found)
    tau = acceptance_length(KIMI_K26, KIMI_K26.eagle, _EAGLE, steps)
    for context, row in EAGLE_TOK_S.items():
        for running, published in zip(CONCURRENCIES, row, strict=False):
            found = _throughput(_EAGLE, running, context, tau)
            yield Comparison(f"kimi-k26, EAGLE3 k=3, context {context}, {running} streams", published, found)
    for tokens, published in PREFILL_TOK_S.items():
        found = tokens / prefill_seconds(KIMI_K26.cost, [(tokens, 0)])
        yield Comparison(f"kimi-k26, prefill of {tokens} tokens", published, found)


def speedups(steps: int) -> Iterator[Comparison]:
    """Returns the paper's speed-ups over plain decoding at batch 1 beside the simulation's."""
    cost, math_500 = QWEN3_8B.cost, QWEN3_8B.quality["math"]
    one = decode_seconds(cost, Verification("none"), 1, 500, 500)
    shapes = [("chain of 16", Verification("chain", 15), MATH_500_CHAIN_SPEEDUP)]
    shapes += [
        (f"tree of {budget}", Verification("tree", 15, budget, QWEN3_8B.ranks), published)
        for budget, published in MATH_500_SPEEDUPS.items()
    ]
    for name, verification, published in shapes:
        tau = acceptance_length(QWEN3_8B, math_500, verification, steps)
        found = tau * one / decode_seconds(cost, verification, 1, 500, 500)
        yield Comparison(f"qwen3-8b, MATH-500, speed-up of {name}", published, found)


TABLES: dict[str, Callable[[int], Iterator[Comparison]]] = {
    "Acceptance length": acceptance,
    "Speed-up": speedups,
    "Throughput (tok/s)": timing,
}


def main() -> int:
    """Prints all tables in Markdown."""
    for title, table in TABLES.items():
        sys.stdout.write(f"| {title} | published | simulated | difference |\n|---|---|---|---|\n")
        for row in table(20_000):
            sys.stdout.write(f"| {row.what} | {row.published:g} | {row.simulated:.4g} | {row.difference:+.1%} |\n")
        sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
