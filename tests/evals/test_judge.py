"""From a saved answer to a verdict with words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.errors import AnswerFileError
from evals.fairness import fair
from evals.judge import SavedAnswer, judge_answer, load_answer, load_tests, verdict_of_run
from evals.program import RunResult
from evals.sandbox import Sandbox
from evals.testcode import runnable, runs_something
from evals.verdicts import Extraction, Judgement, Verdict
from tests.needs import needs

TESTS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0\n"
F = "```"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(parallel=1) as sandbox:
        yield sandbox


def judged(sandbox: Sandbox, content: str, finish: str = "stop", **options: Any) -> Judgement:
    answer = SavedAnswer(content=content, finish_reason=finish)
    return asyncio.run(judge_answer(answer, TESTS, "add", sandbox=sandbox, **options))


@needs("bwrap")
@pytest.mark.parametrize(
    ("content", "finish", "verdict", "words"),
    [
        (f"{F}python\ndef add(a, b):\n    return a + b\n{F}", "stop", "pass", ""),
        (
            f"{F}python\ndef add(a, b):\n    return a - b\n{F}",
            "stop",
            "fail",
            "AssertionError at: assert add(2, 3) == 5",
        ),
        (
            f"{F}python\ndef add(a, b):\n    return c\n{F}",
            "stop",
            "fail",
            "NameError: name 'c' is not defined at: assert",
        ),
        (f"{F}python\ndef plus(a, b):\n    return a + b\n{F}", "stop", "fail", "does not define add"),
        (f"{F}python\nimport nonesuch\ndef add(a, b):\n    pass\n{F}", "stop", "error", "ModuleNotFoundError"),
        (f"{F}python\ndef add(a, b:\n    pass\n{F}", "stop", "error", "SyntaxError"),
        (
            f"{F}python\ndef add(a, b):\n    while True: pass\n{F}",
            "stop",
            "timeout",
            "no result after 0.5 s, in the tests",
        ),
        ("I would rather not.", "stop", "no_code", "no code"),
        ("", "stop", "no_answer", "empty"),
        (f"{F}python\ndef add(a, b):\n    return a +", "length", "truncated", "middle of the code"),
        (f"{F}python\ndef add(a, b):\n    total = a", "length", "truncated", "what there was: AssertionError"),
        ("Let me think about", "length", "truncated", "cut at the token limit"),
        ("<think>\nLet me think about", "length", "truncated_in_thinking", "still thinking"),
        ("<think>\nLet me think about", "stop", "no_answer", "never closed"),
    ],
)
def test_verdicts(sandbox: Sandbox, content: str, finish: str, verdict: str, words: str) -> None:
    judgement = judged(sandbox, content, finish, timeout_s=0.5)
    assert judgement.verdict == verdict, judgement
    assert words in judgement.detail
    assert judgement.sandbox == "bwrap"
    assert (judgement.run_s is None) == (
        verdict in {"no_code", "no_answer", "truncated_in_thinking"} or "cut" in words or "middle" in words
    )


@needs("bwrap")
def test_details_are_safe_for_a_screen(sandbox: Sandbox) -> None:
    code = "def add(a, b):\n    raise ValueError('\\x1b[31mred\\x07' + 'y' * 5000)\n"
    judgement = judged(sandbox, f"{F}python\n{code}{F}")
    assert "\x1b" not in judgement.detail and "\x07" not in judgement.detail
    assert "·[31mred·" in judgement.detail
    assert len(judgement.detail) <= 500


@needs("bwrap")
def test_output_is_kept_with_the_verdict(sandbox: Sandbox) -> None:
    judgement = judged(sandbox, f"{F}python\ndef add(a, b):\n    print('got', a)\n    return a + b\n{F}")
    assert judgement.output == "got 2\ngot -1\n"
    long = judged(sandbox, f"{F}python\ndef add(a, b):\n    print('z' * 9000)\n    return a + b\n{F}")
    assert long.output.startswith("[the last 4000 characters of 18002 bytes of output]\n")


def test_a_broken_sandbox_says_nothing_of_the_answer() -> None:
    extraction = Extraction(code="x", channel="content", origin="", why="")
    result = RunResult(status="sandbox", message="the sandbox did not start", output="bwrap: no namespaces\n")
    verdict, detail = verdict_of_run(result, extraction, TESTS)
    assert verdict is Verdict.SANDBOX
    assert "no namespaces" in detail


@needs("bwrap")
def test_it_can_be_repeated_from_a_file(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    saved = {
        "content": "x\n</think>\n```python\ndef add(a, b):\n    return a + b\n```",
        "finish_reason": "stop",
        "id": 7,
    }
    path.write_text(json.dumps(saved))
    tests = tmp_path / "tests.py"
    tests.write_text(TESTS)
    answer = load_answer(path)
    assert answer.reasoning_content is None
    judgement = asyncio.run(judge_answer(answer, load_tests(tests), "add", sandbox=sandbox))
    assert judgement.verdict == "pass"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object with the key content, found list"),
        ('{"text": "x"}', "the key content is missing (found: text)"),
        ("{}", "found: none"),
        ('{"content": 5}', "Expected `str | null`, got `int` - at `$.content`"),
        ('{"content": "x", "finish_reason": ["stop"]}', "at `$.finish_reason`"),
        ('{"content": "x", "reasoning_content": 1}', "at `$.reasoning_content`"),
    ],
)
def test_bad_answers_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "answer.json"
    path.write_text(text)
    with pytest.raises(AnswerFileError) as caught:
        load_answer(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_older_name_of_the_reasoning_channel(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text('{"content": null, "reasoning": "hm"}')
    assert load_answer(path) == SavedAnswer(content=None, reasoning_content="hm")


def test_missing_and_bad_files_of_tests(tmp_path: Path) -> None:
    with pytest.raises(AnswerFileError, match="cannot be read"):
        load_answer(tmp_path / "none.json")
    with pytest.raises(AnswerFileError, match="cannot be read"):
        load_tests(tmp_path / "none.py")
    path = tmp_path / "tests.py"
    path.write_text("assert add(1, 2 == 3\n")
    with pytest.raises(AnswerFileError, match=r"does not compile|not Python that compiles \(line 1\)"):
        load_tests(path)
    path.write_text("\n")
    with pytest.raises(AnswerFileError, match="every answer would pass"):
        load_tests(path)


@needs("bwrap")
def test_tests_may_be_a_function_check(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(2, 3) == 5\n"
    answer = SavedAnswer(content=f"{F}python\ndef add(a, b):\n    return a - b\n{F}", finish_reason="stop")
    assert asyncio.run(judge_answer(answer, tests, "add", sandbox=sandbox)).verdict == "fail"
    with pytest.raises(AnswerFileError, match="name the entry point"):
        asyncio.run(judge_answer(answer, tests, None, sandbox=sandbox))


@pytest.mark.parametrize(
    ("tests", "runs"),
    [
        ("assert f()", True),
        ("for x in (1, 2):\n    assert f(x)", True),
        ("import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        assert f()", False),
        ("def test_f():\n    assert f()\n", False),
        ("def test_f():\n    assert f()\ntest_f()\n", True),
        ("'words'\nX = 3\npass", False),
    ],
)
def test_tests_that_run_nothing_are_known(tests: str, runs: bool) -> None:
    assert runs_something(tests) is runs


def test_check_is_called_once() -> None:
    check = "def check(candidate):\n    assert candidate()\n"
    assert runnable(check, "f").endswith("check(f)\n")
    assert runnable(check + "check(f)\n", "f").count("check(f)") == 1
    assert runnable("assert f()", "f") == "assert f()"


def test_fair_tests_keep_their_lines_and_their_meaning() -> None:
    tests = (
        "values = [f(x) for x in (1, 2) if x > 0]\n"
        'assert f(1) == 2, f"{f(1) == 2}"\n'
        "assert (f(2)\n    < 5 <= 7) == True\n"
        "assert f('é') == 'é' and f(3) != 4 and f(3) in (4,)\n"
    )
    changed = fair(tests)
    assert changed.count("\n") == tests.count("\n")
    assert "__fair__((f(1))) == 2" in changed
    seen: list[object] = []

    def guard(value: object) -> object:
        seen.append(value)
        return value

    def f(x: object) -> object:
        return x if isinstance(x, str) else {1: 2, 2: 4, 3: 5}.get(x)  # type: ignore[call-overload]

    tests_without_last = changed.replace("and f(3) in (4,)", "and f(3) in (5,)")
    exec(compile(tests_without_last, "t", "exec"), {"f": f, "__fair__": guard})
    assert 2 in seen and "é" in seen
    assert fair("assert (") == "assert ("


ANYTHING = "type('A', (), {'__eq__': lambda self, other: True})()"


@needs("bwrap")
@pytest.mark.parametrize(
    ("result", "expected"), [(ANYTHING, "5"), (f"[{ANYTHING}]", "[5]"), (f"{{1: {ANYTHING}}}", "{1: 5}")]
)
def test_answers_that_equal_everything_fail(sandbox: Sandbox, result: str, expected: str) -> None:
    answer = SavedAnswer(content=f"{F}python\ndef f():\n    return {result}\n{F}", finish_reason="stop")
    judgement = asyncio.run(judge_answer(answer, f"assert f() == {expected}\n", "f", sandbox=sandbox))
    assert judgement.verdict == "fail"
    assert "compares with anything" in judgement.detail
