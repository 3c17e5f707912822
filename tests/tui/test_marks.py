"""Every reason to doubt a figure has a letter, words in the help, and a definition in the manual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadgen.figures import CellFigures, Mark, MarkKind
from tui.metrics import MARK_LETTERS, mark_letters
from tui.screens.help import MARK_WORDS

MANUAL = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.mark.parametrize("kind", MarkKind)
def test_every_mark_is_explained(kind: MarkKind) -> None:
    assert re.fullmatch("[A-Z]", MARK_LETTERS[kind])
    assert mark_letters(CellFigures(marks=(Mark(kind, "why"),))) == MARK_LETTERS[kind]
    assert len(MARK_WORDS[kind].split()) > 2
    rows = [line for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{kind.value}` |")]
    assert len(rows) == 1
    assert len(rows[0].split("|")[2].split()) > 3


def test_no_letter_stands_for_two_marks() -> None:
    assert len(set(MARK_LETTERS.values())) == len(MARK_LETTERS) == len(MarkKind)


def test_the_manual_defines_no_mark_that_does_not_exist() -> None:
    section = MANUAL.read_text(encoding="utf-8").partition("\n## Marks\n")[2].partition("\n## ")[0]
    defined = re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)
    assert sorted(defined) == sorted(MarkKind)
