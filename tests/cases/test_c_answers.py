"""Field cases of kind C: which text of an answer is graded, and what its verdict is."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from evals.judge import SavedAnswer, judge_answer, load_answer, load_tests
from evals.sandbox import Sandbox
from evals.verdicts import Judgement
from tests.needs import needs

DATA = Path(__file__).parent / "data"
SINGLE = ["F46", "F47", "F48", "F49", "F50", "F51", "F52", "F55", "F56", "F57", "F65", "F66"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def read(case: str, name: str) -> Any:
    return json.loads((DATA / case / name).read_text(encoding="utf-8"))


def judged(sandbox: Sandbox, case: str, answer: SavedAnswer, timeout_s: float = 10.0) -> Judgement:
    tests = load_tests(DATA / case / "tests.py")
    entry_point = read(case, "task.json")["entry_point"]
    return asyncio.run(judge_answer(answer, tests, entry_point, sandbox=sandbox, timeout_s=timeout_s))


def many(case: str) -> list[tuple[str, SavedAnswer]]:
    return [(key, SavedAnswer(**value)) for key, value in read(case, "answers.json").items()]


@needs("bwrap")
@pytest.mark.parametrize("case", SINGLE)
def test_single_answer(sandbox: Sandbox, case: str) -> None:
    expected = read(case, "expected.json")
    judgement = judged(sandbox, case, load_answer(DATA / case / "answer.json"))
    assert judgement.verdict == expected["verdict"], judgement
    assert judgement.verdict not in expected.get("must_not", [])
    if "right_code" in expected:
        assert (judgement.extraction.code or "").strip() == expected["right_code"].strip()
    if "blocks_seen" in expected:
        assert judgement.extraction.origin == f"content, block 2 of {expected['blocks_seen']}"


@needs("bwrap")
@pytest.mark.parametrize("case", ["F53", "F64"])
def test_every_way_to_write_it(sandbox: Sandbox, case: str) -> None:
    expected = read(case, "expected.json")["verdicts"]
    assert {key: str(judged(sandbox, case, answer).verdict) for key, answer in many(case)} == expected


def test_f48_says_truncated(sandbox: Sandbox) -> None:
    judgement = judged(sandbox, "F48", load_answer(DATA / "F48" / "answer.json"))
    assert judgement.run_s is None, "half a function must not be run"
    assert "truncated" in judgement.detail


@needs("bwrap")
def test_f57_keeps_prompts_of_a_docstring(sandbox: Sandbox) -> None:
    judgement = judged(sandbox, "F57", load_answer(DATA / "F57" / "answer2.json"))
    assert judgement.verdict == "pass"
    assert ">>> add(2, 3)" in (judgement.extraction.code or "")


@needs("bwrap")
def test_f58_demo_never_waits_for_a_terminal(sandbox: Sandbox) -> None:
    guarded = judged(sandbox, "F58", load_answer(DATA / "F58" / "answer_guarded.json"))
    assert guarded.verdict == "pass"
    assert "class Acc" in (guarded.extraction.code or "")
    unguarded = judged(sandbox, "F58", load_answer(DATA / "F58" / "answer_unguarded.json"))
    assert unguarded.verdict == "error"
    assert "EOFError" in unguarded.detail
    assert "class Acc" in (unguarded.extraction.code or "")


@needs("bwrap")
def test_f59_endless_output_is_cut_and_ends(sandbox: Sandbox) -> None:
    expected = read("F59", "expected.json")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Descendants() as descendants:
        judgement = judged(sandbox, "F59", load_answer(DATA / "F59" / "answer.json"), timeout_s=2.0)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert judgement.verdict == expected["verdict"]
    assert len(judgement.output) < 64 << 10
    assert "bytes of output" in judgement.output
    assert grown_mb < expected["monitor_memory_growth_mb_max"]
    assert len(descendants.seen) >= 2, "the run was not seen"
    assert len(descendants.alive()) == expected["leftover_processes"]


@needs("bwrap")
def test_f61_forged_success(sandbox: Sandbox) -> None:
    judgement = judged(sandbox, "F61", load_answer(DATA / "F61" / "answer.json"))
    assert judgement.verdict in read("F61", "expected.json")["verdict_in"]
    assert "PASSED" in judgement.output


@needs("bwrap")
def test_f62_recursion_and_a_child(sandbox: Sandbox) -> None:
    expected = read("F62", "expected.json")
    judgement = judged(sandbox, "F62", load_answer(DATA / "F62" / "answer.json"))
    assert judgement.verdict == expected["verdict"]
    assert expected["contains"] in judgement.detail
    with Descendants() as descendants:
        child = judged(sandbox, "F62", load_answer(DATA / "F62" / "answer_child.json"))
    assert child.verdict in expected["child"]["verdict_in"]
    assert len(descendants.alive()) == expected["child"]["leftover_processes"]


class Descendants:
    """Notes every process that runs under this one while the block lasts; afterwards `alive` waits for their end."""

    def __init__(self) -> None:
        self.seen: set[psutil.Process] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.seen.update(psutil.Process().children(recursive=True))

    def __enter__(self) -> Descendants:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def alive(self) -> list[psutil.Process]:
        return psutil.wait_procs(self.seen, timeout=5)[1]
