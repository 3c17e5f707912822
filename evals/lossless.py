"""The lossless check: greedy text under a preset must be the reference preset's text.

Speculation proposes and the target decides, so it may change speed and nothing else. A few late differences come from
kernels whose rounding depends on the batch; many early ones mean that something decides wrongly.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evals.lossless_prompts import PROMPTS
from evals.together import together
from evals.verdicts import LosslessDifference, LosslessSummary
from loadgen.records import Generation, GenerationRequest, Generator, Message, Route

TOKENS = "tokens (from characters a token)"
WORDS = "words"


class GreedyText(msgspec.Struct, frozen=True, kw_only=True):
    """What the server gave for one prompt at temperature 0: thinking and answer, and its tokens where it told them."""

    text: str
    tokens: int | None = None


class LosslessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When texts count as diverged: fewer than `share` identical, and the median first difference within `position`."""

    share: float = 0.8
    position: int = 64


def fixed_prompts(count: int) -> tuple[str, ...]:
    """Returns the first `count` prompts of the fixed set; beyond its size they are numbered variations of the same."""
    return tuple(
        PROMPTS[number % len(PROMPTS)]
        + (f"\n\n(Variation {number // len(PROMPTS)}.)" if number >= len(PROMPTS) else "")
        for number in range(count)
    )


def greedy_text(generation: Generation) -> GreedyText | None:
    """Returns the text that the check compares, or `None` where the request failed."""
    if not generation.record.valid:
        return None
    parts = [part for part in (generation.reasoning, generation.content) if part]
    return GreedyText(text="\n".join(parts), tokens=generation.record.n_out)


def _ignore(*_: object) -> None:
    pass


async def run_lossless(
    prompts: Sequence[str],
    generator: Generator,
    *,
    max_tokens: int = 256,
    concurrency: int = 4,
    rid_prefix: str = "lossless",
    route: Route = "chat",
    on_generation: Callable[[int, Generation], None] = _ignore,
) -> dict[int, GreedyText]:
    """Asks every prompt at temperature 0 under the preset that is in effect.

    Args:
        prompts: what is asked; the same under every preset.
        generator: runs the generations.
        max_tokens: limit of output tokens.
        concurrency: generations open at once; the same under every preset, since batches may change rounding.
        rid_prefix: beginning of every request id.
        route: the server's route.
        on_generation: told each prompt's index and generation as soon as it has ended.

    Returns:
        The texts by prompt index; prompts whose request failed are missing.
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(index: int, prompt: str) -> tuple[int, GreedyText | None]:
        request = GenerationRequest(
            rid=f"{rid_prefix}-{index:03d}",
            messages=(Message("user", prompt),) if route == "chat" else (),
            text=None if route == "chat" else prompt,
            max_tokens=max_tokens,
            temperature=0.0,
            purpose="lossless",
            route=route,
            keep_text=True,
        )
        async with gate:
            generation = await generator.generate(request)
        on_generation(index, generation)
        return index, greedy_text(generation)

    found = dict(await together(one(index, prompt) for index, prompt in enumerate(prompts)))
    return {index: text for index, text in found.items() if text is not None}


def compare(
    reference_texts: Mapping[int, GreedyText],
    texts: Mapping[int, GreedyText],
    *,
    preset: str,
    reference: str,
    prompts: int | None = None,
    limits: LosslessLimits | None = None,
) -> LosslessSummary:
    """Compares the texts of a preset with the reference preset's.

    The position of a first difference is given in tokens, from the reference text's own characters a token; where a
    server does not tell token counts, in words of all texts alike. `unit` of the summary says which.

    Args:
        reference_texts: by prompt index, from `run_lossless` under the reference preset.
        texts: the same under the preset.
        preset: name of the preset.
        reference: name of the reference preset.
        prompts: how many were asked; the indices of both together when not given.
        limits: when the texts count as diverged.
    """
    limits = limits or LosslessLimits()
    both = sorted(set(reference_texts) & set(texts))
    unit = TOKENS if all(reference_texts[index].tokens for index in both) else WORDS
    differences = tuple(
        LosslessDifference(
            prompt=index,
            identical=False,
            first_difference=_position(reference_texts[index], texts[index].text, unit),
            reference_text=reference_texts[index].text,
            text=texts[index].text,
        )
        for index in both
        if reference_texts[index].text != texts[index].text
    )
    identical = len(both) - len(differences)
    share = identical / len(both) if both else None
    positions = [d.first_difference for d in differences if d.first_difference is not None]
    median = float(statistics.median(positions)) if positions else None
    diverged = share is not None and median is not None and share < limits.share and median <= limits.position
    return LosslessSummary(
        preset=preset,
        reference=reference,
        prompts=prompts if prompts is not None else len(set(reference_texts) | set(texts)),
        compared=len(both),
        identical=identical,
        identical_share=share,
        median_first_difference=median,
        diverged=diverged,
        unit=unit,
        differences=differences,
    )


def first_differing_character(reference: str, text: str) -> int | None:
    """Returns the index of the first character in which two texts differ, or `None` when they are equal."""
    if reference == text:
        return None
    pairs = enumerate(zip(reference, text, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(reference), len(text)))


def _position(reference: GreedyText, text: str, unit: str) -> int:
    at = first_differing_character(reference.text, text) or 0
    if unit == TOKENS and reference.tokens and reference.text:
        return int(at * reference.tokens / len(reference.text))
    return len(reference.text[:at].split())


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """The first prompt that differs, around its first difference: what came before, and how each text goes on."""

    prompt: int
    position: int | None
    unit: str
    before: str
    reference: str
    text: str


def side_by_side(summary: LosslessSummary, *, before: int = 80, after: int = 200) -> SideBySide | None:
    """Returns the first difference of a summary for a screen, or `None` when all texts are equal.

    Args:
        summary: from `compare`.
        before: characters of common text shown.
        after: characters of each text shown from the difference on.
    """
    if not summary.differences:
        return None
    difference = summary.differences[0]
    at = first_differing_character(difference.reference_text, difference.text) or 0
    return SideBySide(
        prompt=difference.prompt,
        position=difference.first_difference,
        unit=summary.unit,
        before=difference.reference_text[max(0, at - before) : at],
        reference=difference.reference_text[at : at + after],
        text=difference.text[at : at + after],
    )
