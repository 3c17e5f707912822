"""What the suspicion rules are given: the session's state in their words."""

from __future__ import annotations

from evals.evidence import CellEvidence, Evidence, PresetEvidence
from reconfig.presets import Preset
from sessions.state import PresetState, SessionState
from sessions.sweep import Sweep


def evidence_of(state: SessionState, sweep: Sweep) -> Evidence:
    """Returns what is known of every preset so far."""
    return Evidence(
        presets=tuple(_of(state, preset, sweep) for preset in state.presets.values()), reference=state.reference
    )


def _of(state: SessionState, preset: PresetState, sweep: Sweep) -> PresetEvidence:
    asked = preset.preset
    return PresetEvidence(
        preset=asked.name,
        speculative=asked.speculative,
        budget=asked.budget,
        family=_family(asked),
        coding=preset.evals[-1] if preset.evals else None,
        judgements=preset.judgements,
        cells=tuple(
            CellEvidence(
                context=c.key.context,
                concurrency=c.key.concurrency,
                temperature=c.key.temperature,
                repetition=c.key.repetition,
                figures=c.figures,
            )
            for c in state.cells.values()
            if c.key.preset == asked.name and c.figures is not None
        ),
        lossless=preset.lossless,
        max_tokens=sweep.evals.max_tokens,
    )


def _family(preset: Preset) -> str:
    """Everything that sets a preset apart but its budget."""
    parts = [preset.algorithm, f"topk {preset.topk}", f"window {preset.window}", f"block {preset.block_size}"]
    return " ".join([*parts, *preset.flags, *(f"{k}={v}" for k, v in sorted(preset.env.items()))])
