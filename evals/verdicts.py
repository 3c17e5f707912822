"""What an eval says: the verdict of one answer, the result of a problem set, the lossless comparison, suspicions."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class Verdict(StrEnum):
    """The verdict of one saved answer."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    ERROR = "error"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    TRUNCATED_IN_THINKING = "truncated_in_thinking"
    NO_CODE = "no_code"
    SANDBOX = "sandbox"
    NO_ANSWER = "no_answer"


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken from an answer as its code.

    Attributes:
        code: the code, or `None`.
        origin: which channel and part: "content, block 3 of 3", "content, no fence", ...
        why: one sentence: why this and not another.
        start, end: character offsets of the code in the channel's text, where it is a contiguous part.
    """

    code: str | None
    channel: Literal["content", "reasoning", "none"]
    origin: str
    why: str
    truncated: bool = False
    in_thinking: bool = False
    start: int | None = None
    end: int | None = None


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one answer with its evidence: a line of `evals.jsonl`.

    Attributes:
        t: seconds since the session's start.
        task_id: problem; `sample`: which of n answers.
        detail: assertion or exception text, cleaned for a screen.
        output: tail of what the program printed.
        sandbox: level it ran in; `run_s`: wall seconds of the run.
        tok_s: output tokens / seconds from send to last token of the answer's request.
        request_failed: the server failed, so that there is nothing of the model to judge.
    """

    t: float = 0.0
    preset: str = ""
    problem_set: str = ""
    task_id: str = ""
    sample: int = 0
    rid: str | None = None
    verdict: Verdict
    extraction: Extraction
    detail: str = ""
    output: str = ""
    sandbox: str = ""
    run_s: float | None = None
    finish_reason: str | None = None
    tok_s: float | None = None
    request_failed: bool = False


_SAYS_NOTHING = (Verdict.SANDBOX,)


def counts_for_the_model(judgement: Judgement) -> bool:
    """Tells whether a judgement says something of the model: not when the request or the sandbox failed."""
    return judgement.verdict not in _SAYS_NOTHING and not judgement.request_failed


class EvalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A problem set under one preset: pass@1 with its Wilson 95 % interval, pass@k where asked.

    Attributes:
        problems, samples: problems of the set, answers asked for each.
        judged: answers that say something of the model: the denominator. A failed request or sandbox is none.
        passed: of these, those that passed.
        verdicts: all answers by verdict.
        throughput_tok_s: output tokens / seconds from the first send to the last token.
    """

    preset: str
    problem_set: str
    problems: int
    samples: int
    passed: int
    pass_at_1: float | None
    pass_at_1_ci95: tuple[float, float] | None
    pass_at_k: dict[str, float] = msgspec.field(default_factory=dict)
    verdicts: dict[str, int] = msgspec.field(default_factory=dict)
    judged: int | None = None
    sandbox: str = ""
    throughput_tok_s: float | None = None

    @property
    def unjudged(self) -> int:
        """Answers that say nothing of the model."""
        return 0 if self.judged is None else sum(self.verdicts.values()) - self.judged

    @property
    def words(self) -> str:
        """How many passed, of how many that could be judged."""
        if self.judged is None:
            return "not run"
        if self.judged == 0:
            return f"none of {self.unjudged} answers could be judged"
        without = f", {self.unjudged} could not be judged" if self.unjudged else ""
        return f"{self.passed} of {self.judged} passed{without}"


class LosslessDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Greedy text of one prompt beside the reference's; `first_difference` in tokens (see `unit`), or `None`."""

    prompt: int
    identical: bool
    first_difference: int | None = None
    reference_text: str = ""
    text: str = ""


class LosslessSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The lossless check of one preset against the reference preset.

    Attributes:
        prompts: prompts asked; `compared`: those answered under both presets.
        identical_share: share of the compared prompts with identical text.
        median_first_difference: over the prompts that differ; in what `unit` says.
        diverged: fewer match than the limit, and they differ early.
        differences: every prompt that differs, the first one first.
    """

    preset: str
    reference: str
    prompts: int
    compared: int
    identical: int
    identical_share: float | None
    median_first_difference: float | None
    diverged: bool
    unit: str = ""
    differences: tuple[LosslessDifference, ...] = ()

    @property
    def of_the_reference(self) -> bool:
        """The preset is the reference itself, whose texts are its own: that they are identical says nothing."""
        return self.preset == self.reference


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern that smells of the harness or the server and not of the model.

    Attributes:
        rule: stable id; `suspect`: "harness", "server" or "speculation"; `preset`: whose, or `None` for all.
        words: the suspicion in a sentence; `evidence`: the figures behind it; `look_at`: what to look at next.
    """

    rule: str
    suspect: Literal["harness", "server", "speculation"]
    words: str
    evidence: str
    look_at: str
    preset: str | None = None
