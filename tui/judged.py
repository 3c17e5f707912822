"""A verdict in words: what was taken from where and why, what it printed, how it ended."""

from __future__ import annotations

from evals.verdicts import Judgement
from tui.words import plain_text


def judged_words(judgement: Judgement) -> str:
    """Returns a judgement for a person to read, several lines."""
    taken = judgement.extraction
    lines = [f"verdict   {judgement.verdict}"]
    if judgement.detail:
        lines.append(f"detail    {plain_text(judgement.detail)}")
    lines += [f"taken     {taken.origin or 'nothing'}", f"because   {plain_text(taken.why)}"]
    if judgement.sandbox:
        ran = "" if judgement.run_s is None else f", {judgement.run_s:.2f} s"
        lines.append(f"sandbox   {judgement.sandbox}{ran}")
    if taken.code:
        lines += ["code", *(f"  {plain_text(line)}" for line in taken.code.splitlines())]
    if judgement.output:
        lines += ["output", *(f"  {plain_text(line)}" for line in judgement.output.splitlines())]
    return "\n".join(lines) + "\n"
