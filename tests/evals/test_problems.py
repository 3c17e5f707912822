"""Problem sets: references pass, wrong solutions of the kind that models write fail, bad files are refused in words."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.errors import ProblemSetError
from evals.judge import SavedAnswer, judge_answer
from evals.problems import Problem, ProblemSet, load_problem_set, statement_preamble
from evals.sandbox import Sandbox
from evals.verdicts import Judgement, Verdict
from tests.needs import needs

WRONG = [
    entry
    for path in sorted((Path(__file__).parent / "wrong").glob("*.toml"))
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["wrong"]
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(parallel=2) as sandbox:
        yield sandbox


def judged(sandbox: Sandbox, pairs: list[tuple[Problem, str]], timeout_s: float | None = None) -> list[Judgement]:
    async def all_of_them() -> list[Judgement]:
        return await asyncio.gather(
            *(
                judge_answer(
                    SavedAnswer(content=f"```python\n{code}\n```", finish_reason="stop"),
                    problem.test,
                    problem.entry_point,
                    sandbox=sandbox,
                    timeout_s=timeout_s or problem.timeout_s or 10.0,
                    preamble=problem.preamble,
                )
                for problem, code in pairs
            )
        )

    return asyncio.run(all_of_them())


@needs("bwrap")
@pytest.mark.parametrize(("name", "count"), [("core-5", 5), ("core-40", 40)])
def test_references_pass(sandbox: Sandbox, name: str, count: int) -> None:
    problems = load_problem_set(name).problems
    assert len(problems) == count
    judgements = judged(sandbox, [(problem, problem.reference or "") for problem in problems])
    failed = {p.task_id: j.detail for p, j in zip(problems, judgements, strict=True) if j.verdict != "pass"}
    assert failed == {}


@needs("bwrap")
def test_wrong_solutions_fail(sandbox: Sandbox) -> None:
    problems = {problem.task_id: problem for problem in load_problem_set("core-40").problems}
    counts = Counter(entry["task_id"] for entry in WRONG)
    assert set(counts) == set(problems)
    assert min(counts.values()) >= 2
    judgements = judged(sandbox, [(problems[entry["task_id"]], entry["code"]) for entry in WRONG], timeout_s=2.0)
    wrongly = [
        (entry["task_id"], entry["why"], judgement.verdict, judgement.detail)
        for entry, judgement in zip(WRONG, judgements, strict=True)
        if judgement.verdict not in {Verdict.FAIL, Verdict.TIMEOUT}
    ]
    assert wrongly == []


def test_core_40_covers_its_topics() -> None:
    problems = load_problem_set("core-40").problems
    topics = Counter(problem.topic for problem in problems)
    assert topics == dict.fromkeys(
        ("strings", "lists", "dicts", "recursion", "classes", "parsing", "dates", "numbers"), 5
    )
    assert all(problem.entry_point in problem.prompt for problem in problems)
    assert len({problem.task_id for problem in problems}) == 40


def test_humaneval_is_read_from_its_package() -> None:
    humaneval = load_problem_set("humaneval")
    assert len(humaneval.problems) == 164
    helper = next(problem for problem in humaneval.problems if problem.task_id == "HumanEval/38")
    assert "def encode_cyclic" in helper.preamble
    assert "def decode_cyclic" not in helper.preamble
    assert "check(decode_cyclic)" in helper.test


@needs("bwrap")
def test_humaneval_sample_passes(sandbox: Sandbox) -> None:
    problems = load_problem_set("humaneval").problems[::12]
    judgements = judged(sandbox, [(problem, problem.reference or "") for problem in problems])
    assert [str(judgement.verdict) for judgement in judgements] == ["pass"] * len(problems)


@needs("bwrap")
def test_humaneval_answer_needs_no_imports_of_the_statement(sandbox: Sandbox) -> None:
    problem = load_problem_set("humaneval").problems[0]
    assert problem.entry_point == "has_close_elements"
    code = (
        "def has_close_elements(numbers: List[float], threshold: float) -> bool:\n"
        "    ordered = sorted(numbers)\n"
        "    return any(b - a < threshold for a, b in zip(ordered, ordered[1:]))\n"
    )
    (judgement,) = judged(sandbox, [(problem, code)])
    assert judgement.verdict == "pass", judgement


def test_statement_preamble() -> None:
    assert statement_preamble("import re\n\ndef f(x):\n    pass\n", "f") == "import re\n\n"
    assert statement_preamble("Write a function f.", "f") == ""
    assert statement_preamble("from x import (\n\ndef f(x):\n", "f") == ""


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "own.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


GOOD = {"task_id": "a/1", "prompt": "Write add(a, b).", "entry_point": "add", "test": "assert add(1, 2) == 3"}


@needs("bwrap")
def test_own_set(tmp_path: Path, sandbox: Sandbox) -> None:
    completion = {
        "task_id": 2,
        "prompt": "import math\n\ndef root(x):\n    '''Square root.'''\n",
        "canonical_solution": "    return math.sqrt(x)\n",
        "entry_point": "root",
        "test": "def check(candidate):\n    assert candidate(4) == 2\n",
    }
    problem_set = load_problem_set(written(tmp_path, GOOD, "", completion))
    assert (problem_set.name, len(problem_set.problems)) == ("own", 2)
    first, second = problem_set.problems
    assert first.prompt == GOOD["prompt"]
    assert second.task_id == "2"
    judgements = judged(
        sandbox, [(first, "def add(a, b):\n    return a + b"), (second, "def root(x):\n    return math.sqrt(x)")]
    )
    assert [str(judgement.verdict) for judgement in judgements] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([GOOD, "{not json"], "line 2: not JSON"),
        ([{k: v for k, v in GOOD.items() if k != "test"}], "line 1: Object missing required field `test`"),
        ([{**GOOD, "prompt": 3}], "line 1: Expected `str`, got `int` - at `$.prompt`"),
        ([{**GOOD, "entry_point": "a b"}], "entry_point 'a b' is not a name"),
        ([{**GOOD, "test": "assert ("}], "test is not Python"),
        ([{**GOOD, "test": " "}], "every answer would pass"),
        ([GOOD, GOOD], "line 2: task_id 'a/1' stands in line 1 already"),
        (["[1]"], "line 1: Expected `object`, got `array`"),
        ([], "no problems"),
    ],
)
def test_bad_sets_are_refused(tmp_path: Path, lines: list[Any], words: str) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(ProblemSetError) as caught:
        load_problem_set(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemSetError, match="core-5, core-40, humaneval"):
        load_problem_set("core-6")
    with pytest.raises(ProblemSetError, match="cannot be read"):
        load_problem_set(tmp_path / "missing.jsonl")


def test_every_set_is_a_problem_set() -> None:
    assert all(isinstance(load_problem_set(name), ProblemSet) for name in ("core-5", "core-40", "humaneval"))
