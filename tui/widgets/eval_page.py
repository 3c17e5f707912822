"""Verdicts as a table, one answer with its evidence, and two texts side by side."""

from __future__ import annotations

from evals.verdicts import Judgement, LosslessDifference, Verdict
from sessions.log import SavedText
from tui.draw import Line, Span, fit, line, title
from tui.view import Facts
from tui.words import cut, english, left, number, plain_text, wrapped
from tui.words import width as text_width

LETTERS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.PASS: ("", "good", "passed"),
    Verdict.FAIL: ("", "bad", "failed: an assertion or an exception"),
    Verdict.ERROR: ("E", "bad", "error: could not be run"),
    Verdict.TIMEOUT: ("T", "bad", "ran into the time limit"),
    Verdict.TRUNCATED: ("t", "warn", "cut off at max_tokens, the code is incomplete"),
    Verdict.TRUNCATED_IN_THINKING: ("k", "warn", "cut off while still thinking"),
    Verdict.NO_CODE: ("c", "warn", "no code in the answer"),
    Verdict.SANDBOX: ("S", "warn", "the sandbox would not run"),
    Verdict.NO_ANSWER: ("-", "warn", "no answer came"),
}
TEXT_LINES = 400
"""Lines of an answer that are shown; the file has all."""


def verdict_sign(facts: Facts, verdict: Verdict) -> Span:
    """Returns the sign of a verdict."""
    letter, role, _ = LETTERS[verdict]
    sign = letter or (facts.glyphs.good if verdict is Verdict.PASS else facts.glyphs.failed)
    return Span(sign, role)


def task_of(j: Judgement) -> str:
    """Returns a judged answer's problem as text, unique in its preset."""
    name = j.task_id if j.task_id.startswith(f"{j.problem_set}/") else f"{j.problem_set} {j.task_id}"
    return name + (f" #{j.sample}" if j.sample else "")


def _columns(facts: Facts, width: int) -> int:
    return max(3, min(14, (width - 30) // max(1, len(facts.state.presets))))


def verdict_heading(facts: Facts, width: int) -> list[Line]:
    """Returns the table's heading: the presets."""
    g, each = facts.glyphs, _columns(facts, width)
    row = [Span(" " * 30)]
    for name in facts.state.presets:
        words = cut(plain_text(name, g), each - 1, g)
        row.append(Span(words, "picked" if name == facts.preset_name else "head"))
        row.append(Span(" " * (each - text_width(words))))
    return [line(*row)]


def verdict_row(facts: Facts, task: str, width: int) -> Line:
    """Returns a problem's line: a verdict under each preset."""
    g, each = facts.glyphs, _columns(facts, width)
    spans = [Span(left(f" {plain_text(task, g)}", 29, g))]
    for preset in facts.state.presets.values():
        judged = next((j for j in preset.judgements if task_of(j) == task), None)
        sign = verdict_sign(facts, judged.verdict) if judged else Span(g.waiting, "muted")
        word = sign.text
        if judged and each >= 9:
            word = f"{sign.text} {judged.verdict.value.replace('_', ' ')}"
        spans.append(Span(left(word, each, g), sign.role))
    return line(*spans)


def judgement_lines(facts: Facts, j: Judgement, answer: SavedText | None, cells: int) -> list[Line]:
    """Returns a verdict with its evidence; the extracted part of the answer is marked at its left edge."""
    g = facts.glyphs
    _, role, words = LETTERS[j.verdict]
    sign = verdict_sign(facts, j.verdict)
    out = [title(f" {plain_text(j.preset, g)} {g.dot} {plain_text(task_of(j), g)}", cells, g)]
    told = f"{j.verdict.value}: {words}" if j.verdict is not Verdict.PASS else "pass"
    facts_of = [f"ran {number(j.run_s, 2)} s" if j.run_s is not None else "", f"in {j.sandbox}" if j.sandbox else ""]
    facts_of += [f"finish {j.finish_reason}" if j.finish_reason else "", f"{number(j.tok_s)} tok/s" if j.tok_s else ""]
    rest = plain_text(", ".join(x for x in facts_of if x), g)
    out.append(line(Span(f" {sign.text} ", role), Span(told, role), Span(f"   {rest}", "muted")))
    if j.detail:
        out.extend(line(Span(f"   {w}", role)) for w in wrapped(plain_text(j.detail, g, 1200), cells - 4))
    x = j.extraction
    for i, words in enumerate(wrapped(plain_text(f"{x.origin}: {x.why}", g, 600), cells - 10)):
        out.append(line(Span(" taken   " if i == 0 else " " * 9, "muted"), Span(words)))
    text, start, end = _shown_text(j, answer)
    if text:
        whole = answer is not None
        name = "answer; what was taken is marked" if whole else "the code that was taken"
        out.append(title(f" {name} {g.dot} {english(len(text.splitlines()), 'line')}", cells, g))
        at = 0
        for raw in text.splitlines(keepends=True)[:TEXT_LINES]:
            taken = start is not None and end is not None and at < end and at + len(raw) > start
            edge = Span(f" {g.line} ", "accent") if taken or not whole else Span("   ")
            look = "" if taken or not whole else "muted"
            shown = wrapped(plain_text(raw.rstrip("\r\n"), g, 1200), cells - 4)
            out.extend(line(edge, Span(words, look)) for words in shown)
            at += len(raw)
    if j.output:
        out.append(title(" output of the run", cells, g))
        out.extend(line(Span(f"   {plain_text(o, g, 1200)}")) for o in j.output.splitlines()[-100:])
    return out


def _shown_text(j: Judgement, answer: SavedText | None) -> tuple[str, int | None, int | None]:
    if answer is None:
        return j.extraction.code or "", None, None
    text = answer.reasoning_content if j.extraction.channel == "reasoning" else answer.content
    return text, j.extraction.start, j.extraction.end


def difference_lines(facts: Facts, d: LosslessDifference, cells: int) -> list[Line]:
    """Returns the reference's text and the preset's side by side; lines that differ are signed."""
    g = facts.glyphs
    half = max(10, (cells - 5) // 2)
    one, two = d.reference_text.splitlines(), d.text.splitlines()
    out: list[Line] = [
        (*fit((Span(f"   {left('reference', half, g)} ", "head"),), half + 4, g), Span("this preset", "head")),
    ]
    for i in range(min(TEXT_LINES, max(len(one), len(two)))):
        a = plain_text(one[i], g, 1200) if i < len(one) else ""
        b = plain_text(two[i], g, 1200) if i < len(two) else ""
        differs = a != b
        role = "warn" if differs else ""
        out.append(
            line(
                Span(f" {g.hot if differs else ' '} ", "warn"),
                Span(left(a, half, g), role),
                Span(f" {g.line} ", "muted"),
                Span(left(b, half - 1, g), role),
            )
        )
    return out
