"""The short version of `make accuracy`: some of the scenarios, with fewer requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.accuracy.scenarios import SCENARIOS, Scenario
from tests.accuracy.table import page, row
from tests.accuracy.trial import run

SHORT = ("several tokens", "error event", "a fifth cut off", "no usage", "queue:")


@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if s.name.startswith(SHORT)], ids=lambda scenario: scenario.name
)
async def test_figures_are_what_the_server_says_happened(scenario: Scenario, tmp_path: Path) -> None:
    verdict = await run(scenario, tmp_path, share=0.25)
    assert not verdict.wrong
    assert row(verdict).endswith("| good |")
    assert "1 of 1 rows are good" in page([verdict])


def test_every_scenario_is_asked_enough() -> None:
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS) == 15
    for scenario in SCENARIOS:
        assert scenario.duration_s is not None or scenario.asked(0.1) >= 2 * scenario.concurrency
