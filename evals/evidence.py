"""What the rules of suspicion look at: a session's results, preset by preset."""

from __future__ import annotations

import msgspec

from evals.verdicts import EvalSummary, Judgement, LosslessSummary
from loadgen.figures import CellFigures


class CellEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One measured cell: its point of the matrix, and its figures."""

    context: int
    concurrency: int
    figures: CellFigures
    temperature: float = 0.0
    repetition: int = 1

    @property
    def point(self) -> tuple[int, int, float, int]:
        """What the same cell of another preset has in common with it."""
        return self.context, self.concurrency, self.temperature, self.repetition


class PresetEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one preset so far.

    Attributes:
        preset: its name; `speculative`: whether it asks for speculation.
        budget: nodes of its tree, `None` for chains and without speculation.
        family: everything else that sets it apart, as text: presets of one family differ in budget alone.
        coding: summary of the coding eval; `judgements`: its answers.
        cells: its measured cells.
        lossless: the lossless check against the reference.
        max_tokens: limit of the eval's answers.
    """

    preset: str
    speculative: bool = True
    budget: int | None = None
    family: str = ""
    coding: EvalSummary | None = None
    judgements: tuple[Judgement, ...] = ()
    cells: tuple[CellEvidence, ...] = ()
    lossless: LosslessSummary | None = None
    max_tokens: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session so far; `reference` names the reference preset."""

    presets: tuple[PresetEvidence, ...]
    reference: str | None = None
