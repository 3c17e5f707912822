"""Parts a model's thinking from its answer, where both stand in one text.

A server without a reasoning parser sends both in `content`. The chat template often opens the thinking itself, so that
only a closing tag is seen: everything up to it is thinking. An opening tag that is never closed makes everything after
it thinking. Tags that an answer's code merely mentions are left alone.
"""

from __future__ import annotations

import re

import msgspec

from evals import fences

_NAMES = (
    r"(?:think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad|seed:think|antml:thinking|analysis)"
)
_OPEN = re.compile(
    rf"<{_NAMES}>|\[{_NAMES}\]|◁{_NAMES}▷|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    rf"</{_NAMES}>|\[/{_NAMES}\]|◁/{_NAMES}▷|<\|end_of_thought\|>|<\|END_THINKING\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
MOST_TAGS = 100
"""Tags looked at, from the end: a server that leaks them by the thousand must not stall whoever judges."""
_QUOTES = "'\"`"


class Parted(msgspec.Struct, frozen=True):
    """A text parted into thinking and answer.

    Attributes:
        answer: the text, as long as before, with everything that is thinking blanked out: offsets stay true.
        unclosed: thinking was begun and never ended.
        tag: the last tag that decided, "" when there was none.
        opened_by_prompt: a closing tag was seen without an opening one: the chat template opens the thinking.
    """

    answer: str
    unclosed: bool
    tag: str
    opened_by_prompt: bool = False


def part(text: str) -> Parted:
    """Parts `text` into thinking and answer; see the module's docstring for the rules."""
    tags = sorted(
        [(match.start(), match.end(), True) for match in _OPEN.finditer(text)]
        + [(match.start(), match.end(), False) for match in _CLOSE.finditer(text)]
    )
    tags = tags[-MOST_TAGS:]
    spans: list[tuple[int, int]] = []
    before_last_bare: list[tuple[int, int]] | None = None
    answer_start = 0
    opened_at: int | None = None
    opened_by_prompt = False
    decided = ""
    for start, end, opens in tags:
        if opens:
            if opened_at is None and _counts(text, start, end, answer_start, must_begin_line=True):
                opened_at, decided = start, text[start:end]
            continue
        if opened_at is not None:
            if not _quoted(text, start, end):
                spans.append((opened_at, end))
                opened_at, answer_start, decided = None, end, text[start:end]
        elif _counts(text, start, end, answer_start, must_begin_line=False):
            opened_by_prompt = opened_by_prompt or not spans
            before_last_bare = [*spans, (start, end)] if spans else None
            spans = [(0, end)]
            answer_start, decided = end, text[start:end]
    if opened_at is None and before_last_bare and not text[answer_start:].strip():
        spans = before_last_bare  # a closing tag leaked behind an answer that had already begun
    if opened_at is not None:
        spans.append((opened_at, len(text)))
    return Parted(_blanked(text, spans), opened_at is not None, decided, opened_by_prompt)


def _quoted(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return before != "" and before in _QUOTES and after != "" and after in _QUOTES + "\\"


def _counts(text: str, start: int, end: int, answer_start: int, *, must_begin_line: bool) -> bool:
    """Tells whether a tag is one, and not something that the answer's prose or code mentions."""
    if _quoted(text, start, end):
        return False
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    begins = not text[line_start:start].strip() or start == answer_start
    ends = not text[end : line_end if line_end >= 0 else len(text)].strip()
    if must_begin_line:
        if not begins or (text[start] == "[" and not ends):
            return False
    elif begins or ends:
        return True
    return not any(
        block.closed and block.start <= start - answer_start < block.end
        for block in fences.scan(text[answer_start:]).blocks
    )


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in spans:
        blank = re.sub(r"[^\n]", " ", text[start:end])
        text = text[:start] + blank[:-1] + "\n" + text[end:]
    return text
