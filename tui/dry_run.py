"""`spectop run --dry-run`: the plan in order and how long it will take, so that a night's sweep is known to fit it."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.text import Text

from reconfig.durations import words
from sessions.estimate import plan_estimate
from sessions.show import console_on, new_table, print_table
from sessions.sweep import Sweep


def print_plan(sweep: Sweep, sessions_dir: Path) -> int:
    """Prints the plan; returns the exit status.

    Args:
        sweep: what is asked.
        sessions_dir: where earlier sessions of the same model are looked for.
    """
    plan = plan_estimate(sweep, sessions_dir)
    table = new_table()
    table.add_column("step")
    table.add_column("about", justify="right")
    table.add_column("known from")
    for step in plan.steps:
        table.add_row(Text(step.words), "-" if step.seconds is None else words(step.seconds), step.source)
    out = console_on(sys.stdout)
    print_table(out, f"plan of {sweep.label}: {len(plan.steps)} steps", table)
    unknown = f", and {plan.unknown} steps whose length is not known" if plan.unknown else ""
    guessed = f" ({words(plan.guessed_s)} of it a guess)" if plan.guessed_s else ""
    out.print(f"about {words(plan.total_s)}{guessed}{unknown}", markup=False, highlight=False)
    return 0
