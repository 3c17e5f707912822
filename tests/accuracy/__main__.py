"""`python -m tests.accuracy [--quick] [--only WORD] [--write FILE]`: the accuracy table, printed and written."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.accuracy.scenarios import SCENARIOS
from tests.accuracy.table import page, row
from tests.accuracy.trial import Verdict, run

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


async def _all(only: str, share: float) -> list[Verdict]:
    verdicts = []
    for scenario in SCENARIOS:
        if only not in scenario.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            verdicts.append(await asyncio.wait_for(run(scenario, Path(folder), share=share), 120.0))
        _say(row(verdicts[-1]))
        for words in verdicts[-1].wrong:
            _say(f"    WRONG: {words}")
    return verdicts


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Runs the scenarios; status 1 when a figure was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half as many requests")
    parser.add_argument("--only", default="", metavar="WORD", help="only scenarios with this in their name")
    parser.add_argument("--write", type=Path, default=None, metavar="FILE", help=f"default {PAGE.name} of a full run")
    asked = parser.parse_args()
    verdicts = uvloop.run(_all(asked.only, 0.5 if asked.quick else 1.0))
    target = asked.write or (PAGE if not asked.only and not asked.quick else None)
    if target is not None:
        target.write_text(page(verdicts))
        _say(f"written: {target}")
    return 1 if any(v.wrong for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
