"""The table of `docs/accuracy.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.accuracy.trial import Verdict

_HERE = Path(__file__).parent


def row(verdict: Verdict) -> str:
    """One line of the table."""
    figures = verdict.figures
    marks = ", ".join(f"`{mark.kind}`" for mark in figures.marks) or "-"
    cells = (
        verdict.scenario.name,
        _number(verdict.true_tok_s, ".1f"),
        _number(figures.throughput_tok_s, ".1f"),
        _number(verdict.off, "+.2%"),
        f"{verdict.true_tokens} / {_number(figures.output_tokens, 'd')}",
        f"{_failures(verdict.true_failed)} / {_failures(figures.requests.failed)}",
        f"{_number(verdict.true_acceptance, '.4f')} / {_number(figures.acceptance_length, '.4f')}",
        "-" if verdict.ttft_off_s is None else f"{verdict.ttft_off_s * 1e3:+.2f} ms",
        "-" if verdict.late_p99_s is None else f"{verdict.late_p99_s * 1e3:.0f} ms",
        marks,
        "wrong" if verdict.wrong else "good",
    )
    return f"| {' | '.join(cells)} |"


def page(verdicts: Sequence[Verdict]) -> str:
    """The whole page."""
    good = sum(1 for v in verdicts if not v.wrong)
    worst = max((abs(v.off) for v in verdicts if v.off is not None), default=0.0)
    wrong = "".join(f"- {v.scenario.name}: {words}\n" for v in verdicts for words in v.wrong)
    summary = f"\n{good} of {len(verdicts)} rows are good; the headline was off by {worst:.2%} at most.\n"
    rows = "".join(f"{row(v)}\n" for v in verdicts)
    head, peers = (_HERE / "head.md").read_text(), (_HERE / "peers.md").read_text()
    return head + rows + summary + (f"\n{wrong}" if wrong else "") + peers


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _failures(failed: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in failed.items()) or "0"
