"""The verdict of one answer: extraction, one run in the sandbox, and the words for what happened.

The same function judges during a session and afterwards from a saved answer, so a verdict can be repeated.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from evals import source
from evals.errors import AnswerFileError
from evals.extract import extract
from evals.fairness import fair
from evals.program import Program, RunResult
from evals.sandbox import TIMEOUT_S, Sandbox
from evals.testcode import runnable, runs_something
from evals.verdicts import Extraction, Judgement, Verdict

_OUTPUT_SHOWN = 4_000
_DETAIL_SHOWN = 500


class SavedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as a server gave it: the input of a verdict."""

    content: str | None = None
    reasoning_content: str | None = None
    finish_reason: str | None = None


def load_answer(path: Path) -> SavedAnswer:
    """Reads a saved answer: a JSON object with `content`, and optionally `reasoning_content` and `finish_reason`.

    Raises:
        AnswerFileError: the file cannot be read, is not JSON, or a key is missing or of another type.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise AnswerFileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise AnswerFileError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise AnswerFileError(f"{path}: must be a JSON object with the key content, found {type(found).__name__}")
    if "content" not in found:
        keys = ", ".join(sorted(map(str, found))) or "none"
        raise AnswerFileError(f"{path}: the key content is missing (found: {keys})")
    if "reasoning" in found and "reasoning_content" not in found:
        found["reasoning_content"] = found["reasoning"]
    try:
        return msgspec.convert(found, SavedAnswer)
    except msgspec.ValidationError as error:
        raise AnswerFileError(f"{path}: {error}") from error


def load_tests(path: Path) -> str:
    """Reads a file of tests.

    Raises:
        AnswerFileError: the file cannot be read, is empty, or does not compile.
    """
    try:
        tests = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AnswerFileError(f"{path}: cannot be read: {error}") from error
    if source.parse(tests) is None:
        line = source.syntax_error_line(tests)
        raise AnswerFileError(f"{path}: not Python that compiles{f' (line {line})' if line else ''}")
    if not runs_something(runnable(tests, "any_entry_point")):
        raise AnswerFileError(
            f"{path}: the tests run nothing, so every answer would pass: write assertions, or check(candidate)"
        )
    return tests


async def judge_answer(
    answer: SavedAnswer,
    tests: str,
    entry_point: str | None,
    *,
    sandbox: Sandbox,
    timeout_s: float = TIMEOUT_S,
    preamble: str = "",
    opened_by_prompt: bool = False,
) -> Judgement:
    """Judges one answer.

    Args:
        answer: what the server gave.
        tests: source of the tests; run after the answer's code, with its names.
        entry_point: name that the answer must define, where one is known.
        sandbox: where the code runs.
        timeout_s: wall seconds for loading and tests.
        preamble: source that stands before the answer's code in its module.
        opened_by_prompt: see `evals.extract.extract`.

    Raises:
        AnswerFileError: the tests are a function `check(candidate)`, and no entry point is named.
    """
    tests = runnable(tests, entry_point)
    if not runs_something(tests):
        raise AnswerFileError("the tests run nothing: name the entry point with which check(candidate) is to be called")
    extraction = extract(
        answer.content,
        answer.reasoning_content,
        finish_reason=answer.finish_reason,
        entry_point=entry_point,
        opened_by_prompt=opened_by_prompt,
    )
    without_run = verdict_without_run(extraction)
    if without_run is not None:
        verdict, detail = without_run
        return Judgement(
            verdict=verdict,
            extraction=extraction,
            detail=detail,
            sandbox=sandbox.level.name,
            finish_reason=answer.finish_reason,
        )
    program = Program(code=extraction.code or "", tests=fair(tests), entry_point=entry_point or "", preamble=preamble)
    result = await sandbox.run(program, timeout_s=timeout_s)
    verdict, detail = verdict_of_run(result, extraction, tests)
    return Judgement(
        verdict=verdict,
        extraction=extraction,
        detail=detail,
        output=_shown_output(result),
        sandbox=sandbox.level.name,
        run_s=result.wall_s,
        finish_reason=answer.finish_reason,
    )


def verdict_without_run(extraction: Extraction) -> tuple[Verdict, str] | None:
    """Returns verdict and detail where there is nothing that could be run, else `None`."""
    if extraction.code is None:
        if extraction.in_thinking and extraction.truncated:
            return Verdict.TRUNCATED_IN_THINKING, "cut at the token limit while still thinking: no answer"
        if extraction.truncated:
            return Verdict.TRUNCATED, f"cut at the token limit: {extraction.why}"
        if extraction.channel == "none":
            return Verdict.NO_ANSWER, extraction.why
        return Verdict.NO_CODE, extraction.why
    if extraction.truncated and source.parse(extraction.code) is None:
        return Verdict.TRUNCATED, "truncated at the token limit in the middle of the code"
    return None


def verdict_of_run(result: RunResult, extraction: Extraction, tests: str) -> tuple[Verdict, str]:
    """Returns verdict and detail of a run."""
    match result.status:
        case "passed":
            return Verdict.PASS, ""
        case "sandbox":
            return Verdict.SANDBOX, _clipped(" ".join(filter(None, (result.error, result.message, result.output))))
        case "timeout":
            verdict, detail = Verdict.TIMEOUT, result.message
        case "exited":
            verdict, detail = Verdict.ERROR, result.message
        case "load_failed" if result.error == "NameError" and result.line is None:
            verdict, detail = Verdict.FAIL, result.message
        case "load_failed":
            verdict, detail = Verdict.ERROR, f"{_raised(result)}, when the answer's code was loaded"
        case _:
            verdict, detail = Verdict.FAIL, f"{_raised(result)}{_test_line(result, tests)}"
    if extraction.truncated:
        return Verdict.TRUNCATED, _clipped(f"truncated at the token limit; what there was: {detail}")
    return verdict, _clipped(detail)


def _raised(result: RunResult) -> str:
    return f"{result.error}: {result.message}" if result.message else result.error


def _test_line(result: RunResult, tests: str) -> str:
    lines = tests.splitlines()
    if result.line is None or not 0 < result.line <= len(lines):
        return ""
    return f" at: {lines[result.line - 1].strip()}"


def _clipped(text: str) -> str:
    printable = "".join(character if character.isprintable() or character == "\n" else "·" for character in text)
    return printable if len(printable) <= _DETAIL_SHOWN else printable[: _DETAIL_SHOWN - 1] + "…"


def _shown_output(result: RunResult) -> str:
    tail = result.output[-_OUTPUT_SHOWN:]
    if result.output_capped or len(result.output) > _OUTPUT_SHOWN:
        return f"[the last {len(tail)} characters of {result.output_bytes} bytes of output]\n{tail}"
    return tail
