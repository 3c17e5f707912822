"""The manual names every flag and fault, and its tables are the calibration's."""

from __future__ import annotations

from pathlib import Path

from simserver import calibration
from simserver.faults import KINDS
from simserver.flags import build_parser

MANUAL = (Path(__file__).parents[2] / "docs" / "simserver.md").read_text()


def test_every_flag_of_the_simulation_is_in_the_manual() -> None:
    names = [name for action in build_parser()._actions for name in action.option_strings if name.startswith("--sim-")]
    assert len(names) == 9
    assert [name for name in names if f"`{name}" not in MANUAL] == []


def test_every_fault_is_in_the_manual_with_its_words() -> None:
    for name, kind in KINDS.items():
        assert f"| `{name}` |" in MANUAL
        assert kind.words in MANUAL


def test_the_tables_hold_every_comparison() -> None:
    for title, table in calibration.TABLES.items():
        assert f"| {title} | published | simulated | difference |" in MANUAL
        for row in table(1000):
            assert f"| {row.what} | {row.published:g} | " in MANUAL
