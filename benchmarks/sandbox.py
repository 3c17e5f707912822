"""The reference solutions of HumanEval through the sandbox, against the same runs in a plain process.

Both run the same harness on the same interpreter; runs alternate, so that a busy machine is busy for both. What is
compared is whole runs: start, load, tests, end.
"""

from __future__ import annotations

import statistics
import time

from evals.confinement import Way, unsafe_way
from evals.fairness import fair
from evals.problems import Problem, load_problem_set
from evals.program import Program
from evals.running import run
from evals.sandbox import MEMORY_BYTES, probe_level

LIMIT_MS = 35.0
"""Overhead of a run that is still accepted, milliseconds."""


def measured(way: Way, problem: Problem) -> tuple[bool, float]:
    """Runs one reference solution; returns whether it passed, and seconds."""
    program = Program(
        code=problem.reference or "",
        tests=fair(problem.test),
        entry_point=problem.entry_point,
        preamble=problem.preamble,
    )
    started = time.perf_counter()
    result = run(way, program, timeout_s=30.0, memory_bytes=MEMORY_BYTES)
    return result.status == "passed", time.perf_counter() - started


def main() -> None:
    """Prints passes, wall time and overhead for every level that works here."""
    problems = load_problem_set("humaneval").problems
    ways = {"plain process": unsafe_way()}
    for name in ("landlock", "bwrap"):
        level = probe_level("landlock" if name == "landlock" else "bwrap")
        if level.name == name and level.way is not None:
            ways[name] = level.way
    passed = dict.fromkeys(ways, 0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for problem in problems:
        for name, way in ways.items():
            good, took = measured(way, problem)
            passed[name] += good
            seconds[name].append(took)
    print(
        f"{'level':<14} {'pass':>9} {'wall s':>7} {'median ms':>10} {'p90 ms':>7} {'overhead ms (median of pairs)':>30}"
    )
    for name, times in seconds.items():
        pairs = [mine - plain for mine, plain in zip(times, seconds["plain process"], strict=True)]
        median, p90, over = statistics.median(times), statistics.quantiles(times, n=10)[-1], statistics.median(pairs)
        counts = f"{name:<14} {passed[name]:>4} / {len(problems)} {sum(times):>6.2f}"
        print(f"{counts} {median * 1000:>10.1f} {p90 * 1000:>7.1f} {over * 1000:>30.1f}")
    overhead = statistics.median(
        mine - plain for mine, plain in zip(seconds["bwrap"], seconds["plain process"], strict=True)
    )
    words = "within" if overhead * 1000 <= LIMIT_MS else "ABOVE"
    print(f"overhead of the full level: {overhead * 1000:.1f} ms a run, {words} the limit of {LIMIT_MS:g} ms")


if __name__ == "__main__":
    main()
