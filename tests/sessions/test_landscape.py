"""Comparisons and recommendations on the simulated server's own landscape, where the truth can be computed.

The cells are what the simulated machine would deliver: its drafter's luck request by request, its step times; only the
sockets are left out, so that a busy test machine has no say in it.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from pathlib import Path

import pytest

from loadgen.figures import CellFigures, RequestCounts
from loadgen.stats import bootstrap_ratio
from reconfig.presets import Preset
from sessions import events as ev
from sessions.compare import Side, compare
from sessions.events import CellKey
from sessions.folder import create, describe_host
from sessions.log import SessionLog
from sessions.recommend import recommend
from sessions.review import open_session
from simserver.acceptance import Drafter, Verification, context_penalty
from simserver.profiles import KIMI_K26
from simserver.timing import decode_seconds

PRESETS = (
    Preset(name="none", algorithm="NONE"),
    *(
        Preset(name=f"b{b}t{t}-w{w}", algorithm="DDTREE", budget=b, topk=t, window=w)
        for b, t in ((4, 4), (16, 4), (48, 6))
        for w in ((2048, "none") if b == 16 else (2048,))
    ),
)
POINTS = [(context, concurrency) for context in (60, 1024, 4096, 8192) for concurrency in (1, 8, 32, 64)]
REPEATS = 3
MAX_TOKENS = 256
REQUESTS = 24
TRAINED = 2048


def verification(preset: Preset) -> Verification:
    if not preset.speculative:
        return Verification("none")
    assert preset.budget is not None
    assert preset.topk is not None
    return Verification("tree", 7, preset.budget, preset.topk)


def steps_of(preset: Preset, context: int, rng: random.Random) -> int:
    """Draws how many verify steps one answer of `MAX_TOKENS` tokens takes."""
    if not preset.speculative:
        return MAX_TOKENS
    window = preset.window if isinstance(preset.window, int) else None
    quality = KIMI_K26.quality["code"]
    penalty = context_penalty(context, window, TRAINED)
    drafter = Drafter(verification(preset), quality, KIMI_K26.ranks, rng, penalty=penalty)
    tokens = steps = 0
    while tokens < MAX_TOKENS:
        tokens += drafter.step() + 1
        steps += 1
    return steps


def step_seconds(preset: Preset, context: int, concurrency: int) -> float:
    total = context * concurrency
    seen = total if preset.window in (None, "none") else min(context, int(preset.window or 0)) * concurrency
    return decode_seconds(KIMI_K26.cost, verification(preset), concurrency, total, seen)


@functools.cache
def steps_on_average(name: str, context: int) -> float:
    preset = next(p for p in PRESETS if p.name == name)
    rng = random.Random(99)
    return sum(steps_of(preset, context, rng) for _ in range(400)) / 400


def truth(preset: Preset, context: int, concurrency: int) -> float:
    """Tokens a second that a very long cell would show."""
    steps = steps_on_average(preset.name, context)
    return concurrency * MAX_TOKENS / steps / step_seconds(preset, context, concurrency)


def measured(key: CellKey, preset: Preset, slower: float, rng: random.Random) -> CellFigures:
    """One repetition of a cell, as the simulated machine would have it."""
    steps = [float(steps_of(preset, key.context, rng)) for _ in range(REQUESTS)]
    seconds = step_seconds(preset, key.context, key.concurrency) * (1 + rng.gauss(0, 0.003)) * slower
    tokens = [float(MAX_TOKENS)] * REQUESTS
    scale = key.concurrency / seconds
    noisy = [s * (1 + rng.gauss(0, 0.005)) for s in steps]
    return CellFigures(
        throughput_tok_s=scale * sum(tokens) / sum(noisy),
        throughput_ci95=bootstrap_ratio(tokens, noisy, scale=scale, seed=rng.getrandbits(32)),
        acceptance_length=None if not preset.speculative else sum(tokens) / sum(steps),
        acceptance_source=None if not preset.speculative else "per-request",
        requests=RequestCounts(valid=REQUESTS),
    )


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> functools._lru_cache_wrapper[Path]:
    root = tmp_path_factory.mktemp("landscape")

    @functools.lru_cache
    def made(seed: int, slower: float = 1.0, repeats: int = REPEATS) -> Path:
        rng = random.Random(seed)
        folder = create(root, f"seed-{seed}", describe_host("landscape"))
        keys = [
            CellKey(preset=p.name, context=x, concurrency=c, repetition=r)
            for p in PRESETS
            for r in range(1, repeats + 1)
            for x, c in POINTS
        ]
        by_name = {p.name: p for p in PRESETS}
        with SessionLog(folder) as log:
            log.append(
                ev.SessionStarted(
                    t=0.0,
                    label="landscape",
                    session=folder.name,
                    base_url="http://sim",
                    model="kimi",
                    presets=PRESETS,
                    cells=tuple(keys),
                    reference="none",
                    repeats=repeats,
                    simulated=True,
                )
            )
            for t, key in enumerate(keys, 1):
                found = measured(key, by_name[key.preset], slower, rng)
                log.append(ev.CellEnded(t=t, cell=key, run=key.text, outcome="measured", figures=found))
            log.append(ev.SessionEnded(t=len(keys) + 1.0, status="finished"))
        return folder

    return made


def verdicts(a: Path, b: Path) -> Counter[str]:
    return Counter(compare(Side(open_session(a)), Side(open_session(b))).counts)


@pytest.mark.parametrize("repeats", [REPEATS, 1])
def test_the_same_server_twice_is_the_same(make: functools._lru_cache_wrapper[Path], repeats: int) -> None:
    found = verdicts(make(1, 1.0, repeats), make(2, 1.0, repeats)) + verdicts(
        make(3, 1.0, repeats), make(4, 1.0, repeats)
    )
    assert found.total() == 2 * len(POINTS) * len(PRESETS)
    assert found["same"] >= 0.95 * found.total()


def test_a_server_slower_by_5_percent_is_worse_where_the_interval_allows(
    make: functools._lru_cache_wrapper[Path],
) -> None:
    found = compare(Side(open_session(make(1))), Side(open_session(make(5, 1.05))))
    for cell in found.cells:
        throughput = cell.metrics[0]
        assert throughput.interval is not None
        assert throughput.verdict == ("worse" if throughput.interval.hi < 1 else "same")
    assert found.counts["worse"] > 0.6 * len(found.cells)
    assert found.summary[0].verdict == "worse"
    assert found.summary[0].interval is not None
    assert found.summary[0].interval.lo < 1 / 1.05 < found.summary[0].interval.hi


@pytest.mark.parametrize("seed", [1, 2])
def test_the_best_preset_of_every_cell_is_found(make: functools._lru_cache_wrapper[Path], seed: int) -> None:
    found = recommend(open_session(make(seed)).state)
    by_name = {p.name: p for p in PRESETS}
    picked = set()
    for choice in found.choices:
        point = (choice.point.context, choice.point.concurrency)
        best = max(PRESETS, key=lambda p: truth(p, *point))
        assert choice.preset is not None
        assert best.name in (choice.preset, *choice.equal)
        assert truth(by_name[choice.preset], *point) > 0.97 * truth(best, *point)
        picked.add(choice.preset)
    assert len(picked) > 1  # no preset is the best everywhere: that is what a policy is for

    def overall(preset: Preset) -> float:
        product = 1.0
        for point in POINTS:
            product *= truth(preset, *point) / truth(PRESETS[0], *point)
        return float(product ** (1 / len(POINTS)))

    best_overall = max(PRESETS, key=overall)
    assert best_overall.name in (found.overall, *found.equal)
    for standing in found.standings:
        assert standing.ratio == pytest.approx(overall(by_name[standing.preset]), rel=0.03)
