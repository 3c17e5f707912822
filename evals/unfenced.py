"""Code in an answer without fences: the run of lines that compiles and defines what was asked for."""

from __future__ import annotations

import re

import msgspec

from evals import source

_STARTS = re.compile(r"[ \t]*(?:(?:async[ \t]+)?def\b|class\b|import\b|from\b|@|[A-Za-z_]\w*[ \t]*(?::[^=\n]+)?=[^=])")
_PROMPT = re.compile(r"[ \t]*(?:>>>|\.\.\.|In \[\d+\]:|   +\.\.\.:)(?: |$)")
_FIRST_PROMPT = re.compile(r"[ \t]*(?:>>>|In \[\d+\]:)(?: |$)")
_LONGEST = 4_000
_MOST_STARTS = 80
_PARSED_CHARACTERS = 400_000
"""Characters parsed in the search for one run, all attempts together: about a second at worst."""


class Run(msgspec.Struct, frozen=True):
    """Consecutive lines of a text taken as code, with their character offsets in it."""

    code: str
    start: int
    end: int


def is_session(code: str) -> bool:
    """Tells whether text is a copy of an interactive session: its first line that is not blank starts with a prompt."""
    first = next((line for line in code.split("\n") if line.strip()), "")
    return bool(_FIRST_PROMPT.match(first))


def session_source(code: str) -> str:
    """Returns what was typed in an interactive session: prompts are stripped, outputs dropped."""
    typed = []
    for line in code.split("\n"):
        prompt = _PROMPT.match(line)
        if prompt:
            typed.append(line[prompt.end() :].rstrip() if line[prompt.end() :].strip() else "")
    return "\n".join(typed).rstrip("\n") + "\n"


def find(text: str, entry_point: str | None) -> Run | None:
    """Finds the largest run of lines that compiles and defines `entry_point` (or anything, when none is asked for).

    Sentences before and after are left out, also where a short one happens to compile. Where no run compiles, the
    text from the definition on is returned when it reaches the end of the text: an answer cut in its code.
    """
    offsets, lines = _lines(text)
    if len(lines) > _LONGEST:
        return None
    wanted = [
        number
        for number, line in enumerate(lines)
        if (source.seems_to_define(line, entry_point) if entry_point else re.match(r"(?:async )?def |class ", line))
    ]
    left = _PARSED_CHARACTERS
    for target in reversed(wanted):
        if left <= 0:
            break
        starts = [number for number in range(target + 1) if _STARTS.match(lines[number])][-_MOST_STARTS:]
        for start in starts:
            end, left = _longest_end(lines, start, target, left)
            if end is not None:
                return _run(text, offsets, lines, start, end, entry_point)
    if wanted and entry_point is not None:
        start = wanted[-1]
        return Run("\n".join(lines[start:]), offsets[start], len(text))
    return None


def _lines(text: str) -> tuple[list[int], list[str]]:
    offsets, lines, position = [], [], 0
    for line in text.split("\n"):
        offsets.append(position)
        lines.append(line.rstrip("\r"))
        position += len(line) + 1
    return offsets, lines


def _dedented(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip(" \t"))
    if not indent:
        return "\n".join(lines) + "\n"
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines) + "\n"


def _longest_end(lines: list[str], start: int, target: int, left: int) -> tuple[int | None, int]:
    """Returns the largest end for which `lines[start:end]` compiles and holds line `target`, and the characters left.

    Args:
        lines: of the whole text.
        start: first line.
        target: line that must be in it.
        left: characters that may still be parsed.
    """
    end = len(lines)
    while end > target and left > 0:
        code = _dedented(lines[start:end])
        left -= len(code)
        if source.parse(code) is not None:
            return end, left
        bad = source.syntax_error_line(code)
        shrunk = start + bad - 1 if bad else end - 1
        end = min(end - 1, max(shrunk, target)) if shrunk < end else end - 1
    return None, left


def _run(text: str, offsets: list[int], lines: list[str], start: int, end: int, entry_point: str | None) -> Run:
    tree = source.parse(_dedented(lines[start:end]))
    body = list(tree.body) if tree else []
    first, last = 0, len(body) - 1
    while first < last and source.is_prose_like(body[first]):
        first += 1
    while last > first and source.is_prose_like(body[last]):
        last -= 1
    if body:
        decorators = [node.lineno for node in getattr(body[first], "decorator_list", [])]
        top = min([body[first].lineno, *decorators])
        bottom = body[last].end_lineno or body[last].lineno
        start, end = start + top - 1, start + bottom
    stop = min(offsets[end - 1] + len(lines[end - 1]), len(text))
    return Run(_dedented(lines[start:end]), offsets[start], stop)
