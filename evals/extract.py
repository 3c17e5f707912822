"""Takes the code out of an answer, and says what was taken, from where, and why.

The one question answered only here: which text of an answer is graded? Exactly one candidate is: the last Python block
of the answer (never of the thinking) that defines the entry point. Trying others until one passes would flatter
verbose presets; taking the first would grade drafts.
"""

from __future__ import annotations

import re
import textwrap

import msgspec

from evals import fences, source, thinking, unfenced
from evals.completing import needed_definitions
from evals.verdicts import Extraction

_PYTHON = frozenset(
    {"", "python", "py", "python3", "py3", "python2", "pycon", "ipython", "ipython3", "python-repl", "sage", "code"}
)
_INLINE = re.compile(r"(?P<ticks>`+)(?P<code>[^`]+)(?P=ticks)")


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    language: str
    code: str
    start: int
    end: int
    closed: bool
    compiles: bool
    defines: bool
    mentions: bool

    @property
    def python(self) -> bool:
        return self.language in _PYTHON


def extract(
    content: str | None,
    reasoning: str | None,
    *,
    finish_reason: str | None = None,
    entry_point: str | None = None,
    opened_by_prompt: bool = False,
) -> Extraction:
    """Takes the code out of one answer.

    Args:
        content: the answer's text; may hold thinking, when the server has no reasoning parser.
        reasoning: the server's own reasoning channel; never searched for code, only reported on.
        finish_reason: the server's; `length` tells that the text was cut.
        entry_point: name that the code must define, where one is known.
        opened_by_prompt: other answers of this server showed that the chat template opens the thinking, so that an
            answer that was cut before any closing tag is nothing but thinking.
    """
    text = content or ""
    parted = thinking.part(text)
    answer = parted.answer
    if opened_by_prompt and finish_reason == "length" and not parted.tag and not (reasoning or "").strip():
        why = "cut before the closing tag that this server's answers have: all of it is thinking"
        return Extraction(code=None, channel="none", origin="", why=why, truncated=True, in_thinking=True)
    if not answer.strip():
        return _nothing(text, reasoning, parted, finish_reason)
    cut = finish_reason == "length"
    scanned = fences.scan(answer)
    candidates = _candidates(answer, scanned, entry_point)
    chosen = _choose(candidates, entry_point)
    if chosen is not None:
        return _taken(chosen, candidates, entry_point, parted, cut)
    for run, place in _outside(answer, scanned, entry_point):
        return Extraction(
            code=run.code,
            channel="content",
            origin=place,
            why=f"no block has the code; these lines {_purpose(entry_point)}",
            truncated=cut and not answer[run.end :].strip(),
            start=run.start,
            end=run.end,
        )
    return _fallback(candidates, entry_point, parted, cut)


def _purpose(entry_point: str | None) -> str:
    return f"compile and define {entry_point}" if entry_point else "compile"


def _nothing(text: str, reasoning: str | None, parted: thinking.Parted, finish_reason: str | None) -> Extraction:
    cut = finish_reason == "length"
    thought = parted.unclosed or bool((reasoning or "").strip())
    if parted.unclosed:
        why = f"the thinking that {parted.tag} opened was never closed: there is no answer"
    elif text.strip():
        why = f"nothing follows {parted.tag}: there is no answer"
    elif thought:
        length = len(reasoning or "")
        why = f"the answer is empty; {length} characters stand in the reasoning channel, which is not graded"
    else:
        why = "the answer is empty"
    return Extraction(code=None, channel="none", origin="", why=why, truncated=cut, in_thinking=thought)


def _candidate(
    number: int, language: str, code: str, span: tuple[int, int], entry_point: str | None, *, closed: bool
) -> _Candidate:
    if unfenced.is_session(code):
        code = unfenced.session_source(code)
    tree = source.parse(code)
    if tree is None and (dedented := textwrap.dedent(code)) != code and (tree := source.parse(dedented)) is not None:
        code = dedented
    return _Candidate(
        number=number,
        language=language,
        code=code if code.endswith("\n") or not closed else code + "\n",
        start=span[0],
        end=span[1],
        closed=closed,
        compiles=tree is not None,
        defines=tree is not None and entry_point is not None and source.defines(tree, entry_point),
        mentions=entry_point is not None and source.seems_to_define(code, entry_point),
    )


def _candidates(answer: str, scanned: fences.Scan, entry_point: str | None) -> list[_Candidate]:
    """Returns the fenced blocks as candidates, in order; one that a fence in its own text has cut is rejoined."""
    candidates = []
    head = _headless(answer, scanned, entry_point)
    if head is not None:
        after = scanned.fence_lines[0][1]
        rest = fences.scan(answer[after:])
        scanned = fences.Scan(
            tuple(
                fences.Block(block.language, block.code, block.start + after, block.end + after, block.closed)
                for block in rest.blocks
            ),
            tuple((start + after, end + after) for start, end in rest.fence_lines),
        )
        candidates.append(head)
    reached = 0
    for block in scanned.blocks:
        if block.start < reached:
            continue
        candidate = _candidate(
            len(candidates) + 1, block.language, block.code, (block.start, block.end), entry_point, closed=block.closed
        )
        if candidate.mentions and not candidate.compiles and candidate.python:
            candidate = _rejoined(answer, scanned, block, candidate, entry_point)
            reached = candidate.end
        candidates.append(candidate)
    return candidates


def _headless(answer: str, scanned: fences.Scan, entry_point: str | None) -> _Candidate | None:
    """Returns the text before the first fence line, where that line closes a block that the prompt had opened."""
    if not scanned.fence_lines:
        return None
    start, end = scanned.fence_lines[0]
    if answer[start:end].strip().strip("`~"):
        return None
    candidate = _candidate(1, "", fences.body_text(answer[:start], ""), (0, start), entry_point, closed=True)
    wanted = candidate.defines if entry_point else candidate.mentions
    if not wanted and entry_point is None and candidate.compiles:
        wanted = bool(re.search(r"(?m)^(?:def|class)\s", candidate.code))
    return candidate if wanted else None


def _rejoined(
    answer: str, scanned: fences.Scan, block: fences.Block, candidate: _Candidate, entry_point: str | None
) -> _Candidate:
    for start, _ in scanned.fence_lines:
        if start <= block.end:
            continue
        longer = _candidate(
            candidate.number,
            candidate.language,
            fences.body_text(answer[block.start : start], ""),
            (block.start, start),
            entry_point,
            closed=True,
        )
        if longer.compiles:
            return longer
    return candidate


def _choose(candidates: list[_Candidate], entry_point: str | None) -> _Candidate | None:
    if entry_point is not None:
        fitting = [c for c in candidates if c.defines or (c.python and c.mentions and not c.compiles)]
        python = [c for c in fitting if c.python]
        best = python or fitting
        return best[-1] if best else None
    tagged = [c for c in candidates if c.python and c.language]
    for pool in (tagged, [c for c in candidates if c.python]):
        defining = [c for c in pool if c.compiles and re.search(r"(?m)^\s*(?:async def|def|class)\s", c.code)]
        working = defining or [c for c in pool if c.compiles] or [c for c in pool if c.language]
        if working:
            return working[-1]
    return None


def _outside(answer: str, scanned: fences.Scan, entry_point: str | None) -> list[tuple[unfenced.Run, str]]:
    """Returns the run of code outside all fences, then inside inline code, as a list with one element or none."""
    spans = sorted([(block.start, block.end) for block in scanned.blocks] + list(scanned.fence_lines))
    parts, reached = [], 0
    for start, end in spans:
        parts += [answer[reached:start], re.sub(r"[^\n]", " ", answer[max(start, reached) : end])]
        reached = max(reached, end)
    outside = "".join(parts) + answer[reached:]
    run = unfenced.find(outside, entry_point)
    if run is not None:
        return [(run, "content, no fence")]
    if entry_point is None:
        return []
    for match in reversed(list(_INLINE.finditer(outside))):
        code = match["code"].strip() + "\n"
        tree = source.parse(code)
        if tree is not None and source.defines(tree, entry_point):
            return [(unfenced.Run(code, match.start("code"), match.end("code")), "content, inline code")]
    return []


def _taken(
    chosen: _Candidate, candidates: list[_Candidate], entry_point: str | None, parted: thinking.Parted, cut: bool
) -> Extraction:
    code, why = chosen.code, _why(chosen, candidates, entry_point, parted)
    start: int | None = chosen.start
    end: int | None = chosen.end
    if chosen.compiles:
        before = [c.code for c in reversed(candidates[: chosen.number - 1]) if c.python and c.compiles]
        after = [c.code for c in candidates[chosen.number :] if c.python and c.compiles]
        head, names = needed_definitions(code, before + after)
        if head:
            code, start, end = head + code, None, None
            why += f"; {', '.join(names)} added from other blocks, because it uses them"
    return Extraction(
        code=code,
        channel="content",
        origin=f"content, block {chosen.number} of {len(candidates)}",
        why=why,
        truncated=cut and not chosen.closed,
        start=start,
        end=end,
    )


def _why(chosen: _Candidate, candidates: list[_Candidate], entry_point: str | None, parted: thinking.Parted) -> str:
    tag = f"after {parted.tag}, " if parted.tag else ""
    unfinished = "" if chosen.closed else ", its fence never closed"
    if entry_point is None:
        return f"{tag}the last Python block{unfinished}"
    if not chosen.defines:
        return f"{tag}the last block that begins to define {entry_point}; it does not compile{unfinished}"
    kind = "Python block" if chosen.python else f"block (marked {chosen.language})"
    return f"{tag}the last {kind} that defines {entry_point}{unfinished}"


def _fallback(candidates: list[_Candidate], entry_point: str | None, parted: thinking.Parted, cut: bool) -> Extraction:
    """Without a block that fits: the last Python block, so that the run can say what it lacks; else nothing."""
    tagged = [c for c in candidates if c.python and (c.language or c.compiles)]
    working = [c for c in tagged if c.compiles and c.code.strip()] or [c for c in tagged if c.code.strip()]
    open_end = cut and bool(candidates) and not candidates[-1].closed
    if not working or open_end:
        what = f"{len(candidates)} blocks, none with Python" if candidates else "no code block and no code"
        if open_end:
            what = f"the answer was cut in block {len(candidates)}, before it defined {entry_point or 'anything'}"
        return Extraction(code=None, channel="content", origin="", why=what, truncated=cut, in_thinking=parted.unclosed)
    last = working[-1]
    return Extraction(
        code=last.code,
        channel="content",
        origin=f"content, block {last.number} of {len(candidates)}",
        why=f"the last Python block; no block defines {entry_point}",
        truncated=cut and not last.closed,
        start=last.start,
        end=last.end,
    )
