"""`spectop judge`: repeats the verdict of one saved answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def judge(
    answer: Annotated[Path, Parameter(help="JSON with content, reasoning_content, finish_reason.")],
    *,
    tests: Annotated[Path, Parameter(help="Python file of tests, or of a check(candidate) function.")],
    entry_point: Annotated[str | None, Parameter(help="The function that the tests call.")] = None,
    json: Annotated[bool, Parameter(negative="", help="Print the judgement as JSON.")] = False,
    timeout: Annotated[float, Parameter(help="Seconds that the program may run.")] = 10.0,
    unsafe_exec: Annotated[bool, Parameter(negative="", help="Run the code without a sandbox.")] = False,
) -> int:
    """Judge one saved answer: extraction, sandbox, verdict. Exit status 0 only for a pass."""
    import asyncio
    import sys

    import msgspec

    from evals.errors import AnswerFileError
    from evals.judge import judge_answer, load_answer, load_tests
    from evals.sandbox import Sandbox
    from evals.verdicts import Verdict

    if timeout <= 0:
        raise AnswerFileError(f"--timeout takes seconds above 0, found {timeout:g}")
    saved, program = load_answer(answer), load_tests(tests)
    with Sandbox(unsafe=unsafe_exec) as sandbox:
        judgement = asyncio.run(judge_answer(saved, program, entry_point, sandbox=sandbox, timeout_s=timeout))
    if json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(judgement)) + b"\n")
    else:
        from tui.judged import judged_words

        sys.stdout.write(judged_words(judgement))
    return 0 if judgement.verdict is Verdict.PASS else 1
