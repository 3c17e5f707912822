"""Rules of suspicion about speculation itself: what drafts and trees must not do."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from evals.evidence import Evidence, PresetEvidence
from evals.verdicts import Suspicion
from loadgen.figures import CellFigures, MarkKind


def drafts_refused(evidence: Evidence) -> Iterator[Suspicion]:
    """Acceptance length of exactly 1: every draft is refused."""
    for preset in evidence.presets:
        lengths = [length for c in preset.cells if (length := c.figures.acceptance_length) is not None]
        if not preset.speculative or not lengths or any(length != 1.0 for length in lengths):
            continue
        yield Suspicion(
            rule="drafts-refused",
            suspect="speculation",
            preset=preset.preset,
            words="acceptance is exactly 1.0: every draft is refused, so speculation costs and brings nothing",
            evidence=f"acceptance length 1.0 in all {len(lengths)} cells that report it",
            look_at="does the drafter belong to this target model, and is its checkpoint loaded? The server's log "
            "of the start says which",
        )


def wider_accepts_less(evidence: Evidence) -> Iterator[Suspicion]:
    """A wider tree holds every path of a narrower one, so it must not accept less."""
    for smaller, larger in _budget_pairs(evidence):
        drops = []
        for cell in larger.cells:
            twin = next((c for c in smaller.cells if c.point == cell.point), None)
            if twin is not None and _accepts_less(cell.figures, twin.figures):
                drops.append((cell, twin))
        if not drops:
            continue
        cell, twin = drops[0]
        yield Suspicion(
            rule="wider-accepts-less",
            suspect="server",
            preset=larger.preset,
            words=f"the wider tree accepts less than {smaller.preset}: it may be broken",
            evidence=f"acceptance length {cell.figures.acceptance_length:.2f} with budget {larger.budget}, "
            f"{twin.figures.acceptance_length:.2f} with budget {smaller.budget}, at context {cell.context} "
            f"x {cell.concurrency}; so in {len(drops)} of {len(larger.cells)} cells",
            look_at="the tree's attention mask: run the lossless check of this preset; a corrupted mask changes "
            "greedy text as well",
        )


def text_differs_when_wide(evidence: Evidence) -> Iterator[Suspicion]:
    """Greedy text differs for wide trees only: their verification is wrong."""
    checked = [p for p in evidence.presets if p.budget is not None and p.lossless is not None and p.lossless.compared]
    diverged = [p for p in checked if p.lossless is not None and p.lossless.diverged]
    equal = [p for p in checked if p not in diverged]
    if not diverged or not equal:
        return
    narrowest = min(p.budget or 0 for p in diverged)
    if any((p.budget or 0) >= narrowest for p in equal):
        return
    for preset in diverged:
        yield Suspicion(
            rule="wide-trees-differ",
            suspect="server",
            preset=preset.preset,
            words="greedy text differs from the reference for wide trees only: the tree's verification is wrong",
            evidence=f"{_lossless_words(preset)}; budgets up to {max(p.budget or 0 for p in equal)} agree with the "
            "reference",
            look_at="the custom attention mask for this budget, and the first text that differs, side by side",
        )


def text_differs_everywhere(evidence: Evidence) -> Iterator[Suspicion]:
    """Greedy text differs under every speculative preset: not the tree, but what they share, or the reference."""
    checked = [p for p in evidence.presets if p.speculative and p.lossless is not None and p.lossless.compared]
    if len(checked) < 2 or not all(p.lossless is not None and p.lossless.diverged for p in checked):
        return
    yield Suspicion(
        rule="all-differ",
        suspect="server",
        preset=None,
        words="greedy text differs from the reference under every speculative preset",
        evidence="; ".join(f"{p.preset}: {_lossless_words(p)}" for p in checked),
        look_at="whether the reference gives the same text twice (kernels that depend on the batch, a sampling default "
        "that overrides temperature 0), then what the presets share: the drafter, the verification's kernels",
    )


def _budget_pairs(evidence: Evidence) -> Iterator[tuple[PresetEvidence, PresetEvidence]]:
    families: dict[str, list[PresetEvidence]] = defaultdict(list)
    for preset in evidence.presets:
        if preset.budget is not None:
            families[preset.family].append(preset)
    for members in families.values():
        ordered: Sequence[PresetEvidence] = sorted(members, key=lambda p: p.budget or 0)
        yield from ((a, b) for a, b in itertools.pairwise(ordered) if (a.budget or 0) < (b.budget or 0))


def _accepts_less(wide: CellFigures, narrow: CellFigures) -> bool:
    if any(mark.kind is MarkKind.TAU_DROP for mark in wide.marks):
        return True
    if wide.acceptance_source != narrow.acceptance_source:
        return False
    if wide.acceptance_length is None or narrow.acceptance_length is None:
        return False
    if wide.acceptance_ci95 is None or narrow.acceptance_ci95 is None:
        return False
    return wide.acceptance_ci95.hi < narrow.acceptance_ci95.lo


def _lossless_words(preset: PresetEvidence) -> str:
    summary = preset.lossless
    if summary is None:
        return ""
    where = "" if summary.median_first_difference is None else f", median first {summary.median_first_difference:g}"
    return f"{summary.identical} of {summary.compared} texts identical{where} {summary.unit}".rstrip()
