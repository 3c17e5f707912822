"""What `docs/evals.md` says is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from evals.problems import BUILT_IN
from evals.verdicts import Verdict
from tests.evals.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "evals.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> list[str]:
    section = DOC.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"(?m)^\| `([^`]+)` \|", section)


def test_every_attack_is_in_the_table_and_stopped_by_the_full_level() -> None:
    rows = {
        cells[0]: cells for cells in (line.strip("| ").split(" | ") for line in DOC.splitlines() if line[:1] == "|")
    }
    for attack in ATTACKS:
        assert rows[attack.name][3] == "stops"
        assert rows[attack.name][2] == ("stops" if attack.landlock_stops else "–")


def test_every_rule_is_explained() -> None:
    sources = [(ROOT / "evals" / name).read_text(encoding="utf-8") for name in ("suspicion.py", "suspicion_trees.py")]
    rules = re.findall(r'rule="([a-z-]+)"', "".join(sources))
    assert sorted(first_cells("Suspicions")) == sorted(rules)


def test_every_verdict_is_explained() -> None:
    assert first_cells("Verdicts") == [str(verdict) for verdict in sorted(Verdict, key=first_cells("Verdicts").index)]
    assert set(first_cells("Verdicts")) == {str(verdict) for verdict in Verdict}


def test_every_set_is_explained() -> None:
    assert first_cells("Problem sets")[:-1] == list(BUILT_IN)
