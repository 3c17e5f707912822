"""Finds the fenced code blocks of an answer: every way in which models write, nest, indent and forget a fence.

CommonMark's rules where models keep them, and the nearest sensible reading where they do not: a fence with a language
inside an open block means that the block before it was never closed; a fence glued to the end of a code line closes.
"""

from __future__ import annotations

import re

import msgspec

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(
    r"(?P<lead>[ \t]*(?:>[ \t]?)*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
)
_QUOTE = re.compile(r"^[ \t]*(?:>[ \t]?)+")
_TAB = 4
_DEEPEST_EXTRA_INDENT = 3
_NESTING = frozenset({"markdown", "md"})


class Block(msgspec.Struct, frozen=True):
    r"""A fenced block.

    Attributes:
        language: first word of the fence's info string in lower case, without braces and dots; "" for none.
        code: the body with the fence's indentation and quote marks taken off and line ends as `\n`.
        start, end: character offsets of the raw body in the text.
        closed: whether a closing fence was found.
    """

    language: str
    code: str
    start: int
    end: int
    closed: bool


class Scan(msgspec.Struct, frozen=True):
    """All blocks of a text in their order, and the offsets at which its fence lines begin and end."""

    blocks: tuple[Block, ...]
    fence_lines: tuple[tuple[int, int], ...]


class _Open(msgspec.Struct):
    lead: str
    fence: str
    language: str
    body_start: int


def _width(lead: str) -> int:
    return len(lead.expandtabs(_TAB))


def language_of(info: str) -> str:
    """Returns the language that an info string names: `{.python .numberLines}`, `Python title="a"`, `py:add.py`."""
    word = info.strip().strip("{").strip().split(" ")[0].split("\t")[0]
    return re.split(r"[,:;={}(]", word.lstrip(".").lower(), maxsplit=1)[0].rstrip("}")


def body_text(raw: str, lead: str) -> str:
    """Takes the indentation (and quote marks) of the opening fence off every line of a block's body.

    Where a line is indented less than the fence, only so much is taken off all: relative indentation stays.
    """
    quoted = ">" in lead
    width = _width(_QUOTE.sub("", lead) if quoted else lead)
    lines = []
    for line in raw.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        text = _QUOTE.sub("", line) if quoted else line
        indent = len(text) - len(text.lstrip(" \t"))
        lines.append((text[:indent].expandtabs(_TAB) if width else text[:indent], text[indent:]))
    width = min([width, *(len(indent) for indent, text in lines if text)])
    return "\n".join(indent[width:] + text if text else "" for indent, text in lines)


def scan(text: str) -> Scan:
    """Finds the fenced blocks of a text, from its beginning; see the module's docstring for the rules."""
    blocks: list[Block] = []
    fence_lines: list[tuple[int, int]] = []
    current: _Open | None = None

    def finish(end: int, *, closed: bool) -> None:
        if current is not None:
            raw = text[current.body_start : end]
            blocks.extend(_block(raw, current, end, closed=closed))

    for line in _LINE.finditer(text):
        match = _FENCE.fullmatch(line.group().rstrip("\r\n"))
        if current is None:
            if match and not (match["fence"][0] == "`" and "`" in match["info"]):
                fence_lines.append(line.span())
                current = _opened(match, line.end())
            continue
        if match is None:
            if _closes_at_end_of_line(line.group(), current):
                cut = line.start() + line.group().rstrip().rindex(current.fence)
                fence_lines.append((cut, line.end()))
                finish(cut, closed=True)
                current = None
            continue
        if not _same_family(match, current):
            continue
        fence_lines.append(line.span())
        info = match["info"].strip()
        if info and ("`" in info or len(match["fence"]) != len(current.fence)):
            fence_lines.pop()
            continue
        finish(line.start(), closed=not info)
        current = _opened(match, line.end()) if info else None
    finish(len(text), closed=False)
    return Scan(tuple(blocks), tuple(fence_lines))


def _opened(match: re.Match[str], body_start: int) -> _Open:
    return _Open(match["lead"], match["fence"], language_of(match["info"]), body_start)


def _same_family(match: re.Match[str], current: _Open) -> bool:
    if match["fence"][0] != current.fence[0] or len(match["fence"]) < len(current.fence):
        return False
    return _width(match["lead"]) <= _width(current.lead) + _DEEPEST_EXTRA_INDENT


def _closes_at_end_of_line(line: str, current: _Open) -> bool:
    stripped = line.rstrip()
    if not stripped.endswith(current.fence) or stripped.count(current.fence) != 1:
        return False
    return bool(stripped[: -len(current.fence)].strip("`~ "))


def _block(raw: str, opened: _Open, end: int, *, closed: bool) -> list[Block]:
    if opened.language in _NESTING:
        inner = scan(raw).blocks
        return [
            Block(
                language=block.language,
                code=block.code,
                start=block.start + opened.body_start,
                end=block.end + opened.body_start,
                closed=block.closed or closed,
            )
            for block in inner
        ]
    code = body_text(raw, opened.lead)
    return [Block(opened.language, code, opened.body_start, end, closed)]
