"""The evals against the simulated server: right answers, thinking in two channels, and a broken tree mask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.coding import run_coding_eval
from evals.evidence import CellEvidence, Evidence, PresetEvidence
from evals.lossless import GreedyText, compare, fixed_prompts, run_lossless
from evals.problems import load_problem_set
from evals.sandbox import Sandbox
from evals.suspicion import suspicions
from evals.verdicts import EvalSummary, Judgement
from loadgen.cell_acceptance import acceptance
from loadgen.client import LocalGenerator
from loadgen.figures import CellFigures
from loadgen.records import Generation, RequestRecord
from loadgen.spec import Target
from tests.needs import needs
from tests.simserver.support import Sim, running

CORE_5 = load_problem_set("core-5")
PROMPTS = fixed_prompts(12)
FAST = ("--sim-speed", "200", "--served-model-name", "kimi-k2.6")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(parallel=2) as sandbox:
        yield sandbox


def generator_for(sim: Sim) -> LocalGenerator:
    target = Target(base_url=f"http://127.0.0.1:{sim.port}", model="kimi-k2.6")
    return LocalGenerator(target, time.perf_counter_ns())


def evaluated(sim: Sim, sandbox: Sandbox) -> tuple[EvalSummary, list[Judgement], list[Generation]]:
    kept: list[Generation] = []

    async def evaluate() -> tuple[EvalSummary, list[Judgement]]:
        generator = generator_for(sim)
        try:
            return await run_coding_eval(
                CORE_5,
                generator=generator,
                sandbox=sandbox,
                preset="p",
                on_generation=lambda problem, sample, done: kept.append(done),
            )
        finally:
            await generator.close()

    summary, judgements = asyncio.run(evaluate())
    return summary, judgements, kept


@needs("bwrap")
@pytest.mark.parametrize("parser", [(), ("--reasoning-parser", "kimi_k2")], ids=["one channel", "two channels"])
def test_five_of_five_with_and_without_a_reasoning_parser(
    tmp_path: Path, sandbox: Sandbox, parser: tuple[str, ...]
) -> None:
    with running(tmp_path, *FAST, *parser) as sim:
        summary, judgements, kept = evaluated(sim, sandbox)
    assert [(j.task_id, j.verdict, j.detail) for j in judgements if j.verdict != "pass"] == []
    assert (summary.passed, summary.judged) == (5, 5)
    assert summary.throughput_tok_s is not None and summary.throughput_tok_s > 0
    if parser:
        assert all(done.reasoning and "</think>" not in done.content for done in kept)
    else:
        assert all("</think>" in done.content and not done.reasoning for done in kept)
        assert all("after </think>" in judgement.extraction.why for judgement in judgements)


@needs("bwrap")
def test_wrong_answers_are_wrong_and_nobody_elses_fault(tmp_path: Path, sandbox: Sandbox) -> None:
    with running(tmp_path, *FAST, "--sim-eval-pass-rate", "0") as sim:
        summary, judgements, _ = evaluated(sim, sandbox)
    assert summary.verdicts == {"fail": 5}
    assert all(judgement.detail for judgement in judgements)


def measured(tmp_path: Path, *flags: str) -> tuple[dict[int, GreedyText], CellFigures]:
    """Greedy texts under one preset, and the acceptance of the same requests."""
    records: list[RequestRecord] = []

    async def ask(sim: Sim) -> dict[int, GreedyText]:
        generator = generator_for(sim)
        try:
            return await run_lossless(
                PROMPTS, generator, max_tokens=200, on_generation=lambda _, done: records.append(done.record)
            )
        finally:
            await generator.close()

    with running(tmp_path, *FAST, *flags) as sim:
        texts = asyncio.run(ask(sim))
    found = acceptance(records)
    figures = CellFigures(
        acceptance_length=found.length, acceptance_ci95=found.interval, acceptance_source=found.source
    )
    return texts, figures


def tree(budget: int) -> tuple[str, ...]:
    return (
        "--speculative-algorithm",
        "DDTREE",
        "--speculative-ddtree-budget",
        str(budget),
        "--speculative-ddtree-topk",
        "4",
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, GreedyText]:
    return measured(tmp_path_factory.mktemp("reference"))[0]


def evidence(tmp_path: Path, reference: dict[int, GreedyText], budgets: tuple[int, ...], *faults: str) -> Evidence:
    presets = [PresetEvidence(preset="none", speculative=False)]
    for budget in budgets:
        texts, figures = measured(tmp_path, *tree(budget), *faults)
        name = f"b{budget}t4"
        presets.append(
            PresetEvidence(
                preset=name,
                budget=budget,
                family="DDTREE t4",
                lossless=compare(reference, texts, preset=name, reference="none", prompts=len(PROMPTS)),
                cells=(CellEvidence(context=60, concurrency=4, figures=figures),),
            )
        )
    return Evidence(presets=tuple(presets), reference="none")


def test_a_corrupted_mask_is_found_at_the_wide_trees_only(tmp_path: Path, reference: dict[int, GreedyText]) -> None:
    found = evidence(tmp_path, reference, (4, 8, 16, 32), "--sim-fault", "mask-corruption")
    diverged = {p.preset: p.lossless.diverged for p in found.presets if p.lossless is not None}
    assert diverged == {"b4t4": False, "b8t4": False, "b16t4": True, "b32t4": True}
    raised = [(suspicion.rule, suspicion.preset) for suspicion in suspicions(found)]
    assert ("wider-accepts-less", "b16t4") in raised
    assert ("wide-trees-differ", "b16t4") in raised
    assert ("wide-trees-differ", "b32t4") in raised
    assert {preset for _, preset in raised} <= {"b16t4", "b32t4"}


def test_a_sound_server_is_not_suspected(tmp_path: Path, reference: dict[int, GreedyText]) -> None:
    found = evidence(tmp_path, reference, (8, 16))
    assert [p.lossless.identical for p in found.presets if p.lossless is not None] == [len(PROMPTS)] * 2
    assert suspicions(found) == []
