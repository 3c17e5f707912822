"""Learns how a server counts prompt tokens, so that prompts have the length that was asked for.

With `/tokenize` every piece of a prompt is counted once; without it, a scale is fitted to the usage of a few
generations of two lengths. What the server's chat template adds is known only from a real generation.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean

import msgspec

from loadgen.records import GenerationRequest, Generator
from loadgen.spec import Calibration, CellSpec, Stop, Target, Workload
from loadgen.target import Prober, count_with
from loadgen.workload import PromptSource, background_pieces, contents_of, part_key
from loadgen.workload_filler import estimate_tokens
from loadgen.workload_tasks import TASKS

CountTokens = Callable[[Sequence[str]], Awaitable[Sequence[int | None]]]

SHORT_CONTEXT = 120
SHORT_PROBES = 5
"""Prompts of one length that are asked: a short one's words are few, and not like those of the others."""

LONG_CONTEXT = 2048
"""From here on one prompt says enough, and takes long enough."""

_PROBE_INDEX = 2_000_000_000  # prompts that no cell asks


async def calibrate_target(
    spec: CellSpec, target: Target, generator: Generator, known: Calibration | None = None
) -> Calibration:
    """Learns how a server counts the prompts of a cell; see `calibrate`.

    Args:
        spec: the cell: its workload and context.
        target: the server, asked at `/tokenize`.
        generator: runs a few generations of one token.
        known: of an earlier cell of the same server.

    Raises:
        TargetUnreachable: nothing answers.
        TargetRefused: the key is missing or wrong.
    """
    async with Prober(target.base_url, target.api_key) as prober:

        async def count(texts: Sequence[str]) -> Sequence[int | None]:
            return await count_with(prober, target, texts)

        return await calibrate(spec, generator, count, known)


async def calibrate(
    spec: CellSpec,
    generator: Generator,
    count_tokens: CountTokens | None = None,
    known: Calibration | None = None,
) -> Calibration:
    """Learns what is not known yet of how the server counts the prompts of a cell.

    Args:
        spec: the cell: its workload and context.
        generator: runs a few generations of one token.
        count_tokens: counts raw texts by the server's tokenizer, `None` where it cannot; not asked again then.
        known: of an earlier cell of the same server; only missing pieces are counted.

    Returns:
        The calibration for `CellSpec.calibration`, good for smaller contexts of the same workload too. For the
        operator's own prompts, which are sent as long as they are, it is the one that came in, or an empty one.
    """
    parts = await asyncio.to_thread(_parts, spec)  # reads many files the first time
    if not parts:
        return known or Calibration()
    missing = [text for text in parts if known is None or part_key(text) not in known.counts]
    if known is not None and (not missing or not known.counts):
        return known
    special = None if count_tokens is None else await _special_tokens(missing[0], count_tokens)
    if special is None or count_tokens is None:
        return known or await _fit_to_usage(spec, generator)
    counted = await _count_all(missing, special, count_tokens)
    counts = ({} if known is None else known.counts) | counted
    told = [text for text in parts if part_key(text) in counts]
    if not told:
        return known or await _fit_to_usage(spec, generator)
    total = sum(counts[part_key(text)] for text in told)
    found = Calibration(
        counts=counts,
        scale=total / sum(estimate_tokens(text) for text in told),
        overhead=0.0 if known is None else known.overhead,
    )
    if known is not None:
        return found
    overhead = await _template_tokens(spec, found, special, generator, count_tokens)
    return msgspec.structs.replace(found, overhead=overhead)


def _parts(spec: CellSpec) -> list[str]:
    """Every piece of text that the prompts of the cell may be made of."""
    found: list[str] = []
    for content in contents_of(spec.workload.kind):
        given = TASKS[content]
        found += [given.intro, given.bridge, *given.tasks, *given.refinements]
        found += background_pieces(content, spec.context)
    return list(dict.fromkeys(found))


async def _special_tokens(text: str, count_tokens: CountTokens) -> int | None:
    """How many special tokens the server's tokenizer puts before a text: a text repeated shows them.

    Returns:
        Their number; `None` where the server does not count.
    """
    once, twice = await count_tokens([text, text + text])
    return None if once is None or twice is None else max(0, 2 * once - twice)


async def _count_all(texts: Sequence[str], special: int, count_tokens: CountTokens) -> dict[int, float]:
    """Tokens of each text without special ones; a text that the server did not count is left out."""
    counts = await count_tokens(texts)
    return {part_key(text): float(max(1, n - special)) for text, n in zip(texts, counts, strict=True) if n is not None}


async def _template_tokens(
    spec: CellSpec, found: Calibration, special: int, generator: Generator, count_tokens: CountTokens
) -> float:
    """What the server adds to a prompt, from one short generation; the guess of `Calibration` where it fails."""
    asked = _probe(spec, SHORT_CONTEXT, found, 0)
    actual, (body,) = await _prompt_tokens(asked, generator), await count_tokens([_text_of(asked)])
    if actual is None or body is None:
        return Calibration().overhead
    return float(actual - (body - special))


async def _fit_to_usage(spec: CellSpec, generator: Generator) -> Calibration:
    """Scale and overhead from the prompt tokens of short and of long prompts, by their means."""
    short = min(spec.context, SHORT_CONTEXT)
    long = max(spec.context, 4 * SHORT_CONTEXT)
    contexts = [short] * SHORT_PROBES + [long] * (SHORT_PROBES if long < LONG_CONTEXT else 1)
    asked = [_probe(spec, context, Calibration(), i) for i, context in enumerate(contexts)]
    told: list[int] = []
    for request in asked:
        tokens = await _prompt_tokens(request, generator)
        if tokens is None:
            return Calibration()
        told.append(tokens)
    guessed = [estimate_tokens(_text_of(request)) for request in asked]
    short_tokens, long_tokens = fmean(told[:SHORT_PROBES]), fmean(told[SHORT_PROBES:])
    short_guess, long_guess = fmean(guessed[:SHORT_PROBES]), fmean(guessed[SHORT_PROBES:])
    scale = (long_tokens - short_tokens) / (long_guess - short_guess)
    if scale <= 0:
        return Calibration()
    return Calibration(scale=scale, overhead=max(0.0, short_tokens - scale * short_guess))


def _probe(spec: CellSpec, context: int, calibration: Calibration, number: int) -> GenerationRequest:
    """A one-token request of about that context, which no cell asks."""
    plain = CellSpec(
        cell="calibration",
        context=context,
        concurrency=1,
        max_tokens=1,
        stop=Stop(requests=1),
        workload=Workload(kind=spec.workload.kind),
        route=spec.route,
        seed=secrets.randbits(32),
        request_timeout_s=spec.request_timeout_s,
    )
    asked = PromptSource(plain, calibration).request(_PROBE_INDEX + number)
    return msgspec.structs.replace(asked, purpose="probe")


def _text_of(request: GenerationRequest) -> str:
    return request.text if request.text is not None else "".join(m.content for m in request.messages)


async def _prompt_tokens(request: GenerationRequest, generator: Generator) -> int | None:
    return (await generator.generate(request)).record.prompt_tokens
