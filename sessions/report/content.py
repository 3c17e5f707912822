"""Decides what a report says, in order of importance: what to run, how sure, on what conditions, then the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from sessions.errors import SessionError
from sessions.folder import shortened
from sessions.points import ACCEPTANCE, THROUGHPUT, matrix, points_of
from sessions.recommend import Choice, Recommendation, recommend
from sessions.report.blocks import Block, Cell, Picture, Pictures, Report, Section, Tone, Words, grid
from sessions.report.machine import gpu_pictures, memory_peaks
from sessions.review import Session
from sessions.settings import settings_words, shown_proof
from sessions.show import estimate_words, mean_words
from sessions.state import PresetState
from sessions.verdict_tables import percent_range

_CHARTED = 12
"""Presets with a picture of their own; beyond that, tables say it."""


def report_of(session: Session, *, charts: bool = True) -> Report:
    """Returns a session's report.

    Args:
        session: an opened session.
        charts: whether pictures are made.
    """
    state = session.state
    found = recommend(state)
    parts: list[tuple[str, Callable[[], list[Block]]]] = [
        ("What to run", lambda: _recommendation(session, found)),
        ("Reasons to doubt", lambda: _doubts(session)),
        ("Conditions", lambda: _conditions(session)),
        ("Presets and their proof", lambda: _presets(session)),
        ("Throughput", lambda: _throughput(session, charts)),
        ("Latency", lambda: _latency(session, charts)),
        ("Acceptance", lambda: _acceptance(session, charts)),
        ("GPUs and energy", lambda: _gpus(session, charts)),
        ("Evals", lambda: _evals(session)),
        ("Every cell", lambda: _cells(session)),
    ]
    sections = [Section(title, tuple(blocks)) for title, make in parts if (blocks := make())]
    started = session.info.created if session.info else state.started_at
    return Report(
        title=state.label or session.name,
        subtitle=f"{state.model} at {state.base_url}, {started}, {session.status}",
        banner="SIMULATED: these figures are of a simulated server" if state.simulated else "",
        sections=tuple(sections),
    )


def _recommendation(session: Session, found: Recommendation) -> list[Block]:
    headline = found.headline[0].upper() + found.headline[1:]
    sure = found.overall is not None and not found.equal
    blocks: list[Block] = [Words(f"{headline}.", "good" if sure else "warning")]
    blocks += [Words(words, "warning") for words in found.warnings]
    for temperature in matrix(c.point for c in found.choices)[2]:
        choices = [c for c in found.choices if c.point.temperature == temperature]
        warm = f", temperature {temperature:g}" if len(session.state.temperatures) > 1 else ""
        blocks.append(_policy(choices, f"Policy: context x concurrency to preset{warm}"))
    rows: list[list[str | Cell]] = [
        [
            s.preset,
            "-" if s.ratio is None else f"{s.ratio:.3f}",
            "-" if s.interval is None else f"{s.interval.lo:.3f} to {s.interval.hi:.3f}",
            f"{s.points} of {s.of}",
            str(s.best_at),
        ]
        for s in found.standings
    ]
    caption = f"Geometric mean of the throughput ratios to {found.reference}"
    headings = ["preset", "ratio", "95 % interval", "cells", "best or equal in"]
    blocks.append(grid(headings, rows, caption=caption))
    rows = []
    for c in found.choices:
        half = "" if c.interval is None else f" ±{(c.interval.hi - c.interval.lo) / 2:.1f}"
        gain = "" if c.gain is None else f"{(c.gain - 1) * 100:+.1f} %"
        gain += "" if c.gain_interval is None else f" ({percent_range(c.gain_interval)})"
        value = "-" if c.value is None else f"{c.value:.1f}{half}"
        rows.append([c.point.text, c.preset or "no vote", value, gain, ", ".join(c.equal)])
    headings = ["cell", "best", "tok/s", "against the reference", "not distinguishable"]
    blocks.append(grid(headings, rows, left=(0, 1, 4), caption="The best of each cell", folded=True))
    return blocks


def _policy(choices: list[Choice], caption: str) -> Block:
    contexts, concurrencies, _ = matrix(c.point for c in choices)
    named = {(c.point.context, c.point.concurrency): c for c in choices}
    rows: list[list[str | Cell]] = []
    for context in contexts:
        cells = [named.get((context, concurrency)) for concurrency in concurrencies]
        words = ["-" if c is None or c.preset is None else c.preset + (" =" if c.equal else "") for c in cells]
        rows.append([str(context), *words])
    note = f"{caption} (= where others are not distinguishable from it)"
    return grid(["context", *(f"c={c}" for c in concurrencies)], rows, left=tuple(range(5)), caption=note)


def _doubts(session: Session) -> list[Block]:
    state = session.state
    blocks: list[Block] = [
        Words(f"Suspect the {s.suspect}: {s.words} ({s.evidence}). Look at {s.look_at}.", "warning")
        for s in state.suspicions
    ]
    rows: list[list[str | Cell]] = []
    for cells in points_of(state).values():
        rows += [[cells.preset, cells.point.text, Cell(m.kind.value, "warning"), m.reason] for m in cells.told_marks]
        if cells.no_figures:
            rows.append([cells.preset, cells.point.text, Cell("no figures", "bad"), cells.no_figures])
    if rows:
        blocks.append(grid(["preset", "cell", "mark", "why"], rows, left=(0, 1, 2, 3), caption="Marked cells"))
    blocks += [Words(f"Not read: {words}", "warning") for words in session.skipped]
    return blocks or [Words("Nothing was found: no marks, no suspicions, the log is whole.", "good")]


def _conditions(session: Session) -> list[Block]:
    state, info = session.state, session.info
    rows: list[list[str | Cell]] = [
        ["model", state.model],
        ["server", state.base_url],
        ["matrix", _matrix_words(session)],
        ["output", f"up to {state.max_tokens} tokens, {state.repeats} repetition(s) of each cell"],
        ["duration", str(timedelta(seconds=round(state.t)))],
    ]
    if info is not None:
        gpus = ", ".join(f"{n} x {name}" for name, n in Counter(session.gpus).items())
        rows += [
            ["host", f"{info.host}, kernel {info.kernel}, user {info.user}"],
            ["GPUs", f"{gpus or 'unknown'}{f', driver {session.driver}' if session.driver else ''}"],
            ["spectop", f"{info.version}, Python {info.python}"],
            ["sweep file", info.sweep_path or "none (made from the command line)"],
        ]
    rows.append(["session", session.name])
    blocks: list[Block] = [grid(["condition", "value"], rows, left=(0, 1))]
    blocks += [Words(f"Note ({n.at}): {n.words}") for n in state.notes]
    return blocks


def _matrix_words(session: Session) -> str:
    state = session.state
    temperatures = ", ".join(f"{t:g}" for t in state.temperatures)
    return (
        f"contexts {', '.join(map(str, state.contexts))} x concurrency {', '.join(map(str, state.concurrencies))}"
        f" x temperature {temperatures}"
    )


def _presets(session: Session) -> list[Block]:
    rows: list[list[str | Cell]] = []
    proofs: list[list[str | Cell]] = []
    for name, p in session.state.presets.items():
        took = f"{p.proof.took_s:.0f} s" if p.proof is not None and p.proof.took_s is not None else "-"
        rows.append([name, settings_words(p.preset), _in_effect(p), took, shortened(p.reason)])
        proofs += [
            [name, s.setting, s.asked, Cell(s.found or "absent", "plain" if s.ok else "bad"), s.source]
            for s in (shown_proof(p.preset, p.proof).settings if p.proof is not None else ())
        ]
    blocks: list[Block] = [grid(["preset", "settings", "in effect", "switch took", "why"], rows, left=(0, 1, 2, 4))]
    if proofs:
        headings = ["preset", "setting", "asked", "found", "source"]
        blocks.append(grid(headings, proofs, left=(0, 1, 2, 3, 4), caption="Settings read back", folded=True))
    return blocks


def _in_effect(p: PresetState) -> Cell:
    if p.proof is None:
        return Cell(p.status)
    return Cell("proved", "good") if p.proof.in_effect else Cell("NOT in effect", "bad")


def _throughput(session: Session, charts: bool) -> list[Block]:
    state, points = session.state, points_of(session.state)
    blocks: list[Block] = []
    for temperature in state.temperatures:
        if charts:
            from sessions.report import charts as draw

            reach = draw.largest_change(points, state.reference)
            shown = list(state.presets)[:_CHARTED]
            maps = [draw.heat_map(n, points, state.reference, temperature, reach) for n in shown]
            lines = [draw.scaling(c, points, list(state.presets), temperature) for c in state.contexts]
            blocks += _side_by_side(maps) + _side_by_side(lines)
        rows: list[list[str | Cell]] = []
        for point in sorted({p for _, p in points if p.temperature == temperature}):
            row: list[str | Cell] = [point.text]
            for name in state.presets:
                cells = points.get((name, point))
                estimate = cells.estimate(THROUGHPUT) if cells else None
                if cells is None or estimate is None:
                    row.append("-")
                else:
                    tone: Tone = "bad" if cells.void else "warning" if cells.told_marks else "plain"
                    row.append(Cell(estimate_words(estimate) + (" !" if cells.void else ""), tone))
            rows.append(row)
        caption = "tok/s with 95 % intervals (! cells that have no vote)"
        blocks.append(grid(["cell", *state.presets], rows, caption=caption))
    return blocks if points else []


def _latency(session: Session, charts: bool) -> list[Block]:
    if not charts:
        return []  # the table of every cell says it
    from sessions.report import charts as draw

    state, points = session.state, points_of(session.state)
    pictures = [draw.latency(c, points, list(state.presets), t) for t in state.temperatures for c in state.contexts]
    found = _side_by_side(pictures)
    return [Words("Time to the first token: the point is p50, the line reaches up to p99."), *found] if found else []


def _acceptance(session: Session, charts: bool) -> list[Block]:
    points = points_of(session.state)
    pictures: list[Picture | None] = []
    rows: list[list[str | Cell]] = []
    for name in session.state.presets:
        own = [p for (preset, _), p in points.items() if preset == name]
        histograms = [f.accepted_histogram for p in own for f in p.figures if f.accepted_histogram]
        longest = max((len(h) for h in histograms), default=0)
        steps: list[int] = [sum(h[k] for h in histograms if k < len(h)) for k in range(longest)]
        total = sum(steps)
        if charts and total and len(pictures) < _CHARTED:
            from sessions.report import charts as draw

            pictures.append(draw.accepted(name, [s / total for s in steps]))
        for cells in own:
            estimate = cells.estimate(ACCEPTANCE)
            if estimate is None:
                continue
            survival = next((f.survival for f in cells.figures if f.survival), ())
            sources = sorted({f.acceptance_source or "unknown" for f in cells.figures})
            kept = " ".join(f"{share:.0%}" for share in survival[1:9])
            rows.append([name, cells.point.text, estimate_words(estimate, 2), ", ".join(sources), kept])
    if not rows:
        return []
    headings = ["preset", "cell", "accept", "source", "steps accepting at least 1, 2, ... drafts"]
    table = grid(headings, rows, left=(0, 1, 3, 4), caption="Acceptance length: tokens a verify step", folded=True)
    return [*_side_by_side(pictures), table]


def _gpus(session: Session, charts: bool) -> list[Block]:
    blocks: list[Block] = []
    state = session.state
    if charts:
        from sessions.report import charts as draw

        try:
            timelines = gpu_pictures(session.folder)
        except SessionError as error:
            timelines = []
            blocks.append(Words(f"The GPU samples cannot be read: {error}", "warning"))
        blocks += _side_by_side([draw.energy(points_of(state), list(state.presets)), *timelines])
    if rows := memory_peaks(state):
        headings = ["preset", "memory peak GiB, by GPU", "mean power W", "J/tok"]
        blocks.append(grid(headings, [list(r) for r in rows], left=(0, 1), caption="Highest of all cells"))
    return blocks


def _evals(session: Session) -> list[Block]:
    presets = session.state.presets
    blocks: list[Block] = []
    for problem_set in dict.fromkeys(e.problem_set for p in presets.values() for e in p.evals):
        rows: list[list[str | Cell]] = []
        tasks = list(
            dict.fromkeys(j.task_id for p in presets.values() for j in p.judgements if j.problem_set == problem_set)
        )
        for name, p in presets.items():
            summary = next((e for e in p.evals if e.problem_set == problem_set), None)
            if summary is None:
                continue
            interval = summary.pass_at_1_ci95
            words = "-" if summary.pass_at_1 is None else f"{summary.pass_at_1:.0%}"
            words += "" if interval is None else f" ({interval[0]:.0%} to {interval[1]:.0%})"
            verdicts: list[str | Cell] = []
            for task in tasks if len(tasks) <= 12 else ():
                said = [j.verdict.value for j in p.judgements if (j.problem_set, j.task_id) == (problem_set, task)]
                passed = bool(said) and all(v == "pass" for v in said)
                verdicts.append(
                    Cell(", ".join(dict.fromkeys(said)) or "-", "good" if passed else "bad" if said else "plain")
                )
            rows.append([name, summary.words, words, *verdicts])
        shown = [t.removeprefix(f"{problem_set}/") for t in tasks] if len(tasks) <= 12 else []
        headings = ["preset", "passed", "pass@1 (95 %)", *shown]
        blocks.append(grid(headings, rows, left=(0, *range(3, len(headings))), caption=problem_set))
    rows = []
    for name, p in presets.items():
        if (s := p.lossless) is not None:
            if s.of_the_reference:
                rows.append([name, s.reference, "-", "-", "reference"])
                continue
            first = "-" if s.median_first_difference is None else f"token {s.median_first_difference:.0f}"
            tone: Tone = "bad" if s.diverged else "good"
            says = Cell("diverged" if s.diverged else "as the reference", tone)
            rows.append([name, s.reference, f"{s.identical}/{s.compared}", first, says])
    if rows:
        headings = ["preset", "reference", "identical texts", "median first difference", "verdict"]
        blocks.append(grid(headings, rows, left=(0, 1, 4), caption="Lossless check: greedy text against the reference"))
    return blocks


def _cells(session: Session) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for cells in points_of(session.state).values():
        f = cells.figures
        if not f:
            rows.append([cells.preset, cells.point.text, *["-"] * 9, cells.no_figures])
            continue
        throughput, acceptance = cells.estimate(THROUGHPUT), cells.estimate(ACCEPTANCE)
        failed = sum(n for x in f for n in x.requests.failed.values())
        tail = [x.ttft_s.p99 for x in f if x.ttft_s.p99 is not None]
        rows.append(
            [
                cells.preset,
                cells.point.text,
                "-" if throughput is None else estimate_words(throughput),
                mean_words([x.decode_tok_s.p50 for x in f], 1),
                mean_words([x.ttft_s.p50 for x in f], 3),
                (f"{max(tail):.3f}" + (" max" if any(x.ttft_s.p99_is_max for x in f) else "")) if tail else "-",
                mean_words([x.chunk_gap_s.p50 for x in f], 4),
                "-" if acceptance is None else estimate_words(acceptance, 2),
                mean_words([x.effective_concurrency for x in f], 1),
                mean_words([x.energy_j_per_tok for x in f], 2),
                f"{sum(x.requests.valid for x in f)}/{failed}",
                ", ".join(m.kind.value for m in cells.marks),
            ]
        )
    headings = ["preset", "cell", "tok/s", "user tok/s", "TTFT p50 s", "TTFT p99 s", "chunk gap p50 s", "accept"]
    headings += ["concurrency", "J/tok", "ok/failed", "marks"]
    return [grid(headings, rows, left=(0, 1, 11), caption="Means over repetitions", folded=True)] if rows else []


def _side_by_side(pictures: list[Picture | None]) -> list[Block]:
    there = tuple(p for p in pictures if p is not None)
    return [Pictures(there)] if there else []
