"""Presets as a table, and one preset with everything that proves it."""

from __future__ import annotations

from sessions.settings import settings_words, shown_proof
from sessions.state import PresetState
from tui.cells import pass_counts, shown
from tui.draw import Line, Span, line, title
from tui.metrics import ACCEPTANCE, THROUGHPUT
from tui.view import Facts
from tui.widgets.head import effect_words, proved_by
from tui.widgets.steps import asked_lines
from tui.words import duration, english, left, number, plain_text, right, share, time_of_day, width, wrapped


def best_of(facts: Facts, name: str) -> tuple[float | None, float | None]:
    """Returns a preset's highest throughput and highest acceptance length over the matrix."""
    rates: list[float] = []
    lengths: list[float] = []
    for context in facts.state.contexts:
        for concurrency in facts.state.concurrencies:
            rate = shown(facts, name, context, concurrency, THROUGHPUT).value
            length = shown(facts, name, context, concurrency, ACCEPTANCE).value
            if rate is not None:
                rates.append(rate)
            if length is not None:
                lengths.append(length)
    return max(rates, default=None), max(lengths, default=None)


def _columns(cells: int) -> tuple[int, int]:
    name = 14 if cells < 100 else 22
    rest = cells - (5 + name + 22 + 11 + 8 + 7 + 10 + 2)
    return name, max(0, rest)


def preset_heading(facts: Facts, cells: int) -> Line:
    """Returns the table's heading."""
    g = facts.glyphs
    name, settings = _columns(cells)
    words = f"     {left('name', name, g)}{left('proof', 22, g)}{right('best tok/s', 11, g)}{right('accept', 8, g)}"
    words += f"{right('pass', 7, g)}{right('lossless', 10, g)}{'  ' if settings else ''}{left('settings', settings, g)}"
    return line(Span(words, "head"))


def preset_row(facts: Facts, place: int, preset: PresetState, cells: int) -> Line:
    """Returns a preset's line."""
    g = facts.glyphs
    name, settings = _columns(cells)
    rate, length = best_of(facts, preset.preset.name)
    passed, judged = pass_counts(preset)
    effect = effect_words(preset, g)
    pass_text = f"{passed}/{judged}" if judged else g.absent
    lossless = preset.lossless
    same = g.absent
    if lossless:
        same = "reference" if lossless.of_the_reference else f"{lossless.identical}/{lossless.compared}"
    reference = " ref" if preset.preset.name == facts.state.reference else ""
    return line(
        Span(f"{place if place <= 9 else '':>4} "),
        Span(left(plain_text(preset.preset.name, g) + reference, name, g), "strong"),
        Span(left(effect.text, 22, g), effect.role),
        Span(right(number(rate), 11, g)),
        Span(right(number(length), 8, g)),
        Span(right(pass_text, 7, g), "" if passed == judged else "warn"),
        Span(
            right(f"{same}{g.hot if lossless and lossless.diverged else ''}", 10, g),
            "bad" if lossless and lossless.diverged else "",
        ),
        Span(f"  {left(settings_words(preset.preset), settings, g)}" if settings else "", "muted"),
    )


def _past_words(facts: Facts, preset: PresetState) -> str:
    """`✓ was in effect for 6 cells; last switch broken off at 00:14`, or nothing."""
    g, parts = facts.glyphs, []
    if preset.proved is not None and preset.status != "in-effect":
        cells = (c for c in facts.state.cells.values() if c.key.preset == preset.preset.name)
        measured = sum(1 for c in cells if c.figures is not None)
        parts.append(f"{g.good} was in effect for {english(measured, 'cell')}")
    if preset.broken_off_at is not None:
        at = time_of_day(preset.broken_off_at)[:5]
        parts.append(f"last switch broken off{f' at {at}' if at else ''}")
    return "; ".join(parts)


def preset_lines(facts: Facts, preset: PresetState, cells: int) -> list[Line]:
    """Returns everything about one preset: what was asked, what was found, the steps, evals, notes."""
    g = facts.glyphs
    out = [title(f" {plain_text(preset.preset.name, g)}", cells, g)]
    out += _told("asks for", plain_text(settings_words(preset.preset), g, 600), cells)
    if preset.preset.notes:
        out += _told("notes", plain_text(preset.preset.notes, g, 600), cells)
    if preset.reason:
        for i, row in enumerate(wrapped(plain_text(preset.reason, g, 600), cells - 4)):
            out.append(line(Span(f" {' ' if i else g.hot} {row}", "bad")))
    if words := _past_words(facts, preset):
        out += _told("effect", words, cells)
    proof = preset.proof
    if proof is not None:
        words = proved_by(proof) or "nothing read back"
        out += _told("proof", f"{words}, took {duration(proof.took_s)}", cells)
        for s in shown_proof(preset.preset, proof).settings:
            mark = Span(f"   {g.good if s.ok else g.failed} ", "good" if s.ok else "bad")
            found = plain_text(s.found, g) if s.found is not None else "nothing"
            words = f"{left(plain_text(s.setting, g), 18, g)} asked {plain_text(s.asked, g)}, found {found}"
            source = plain_text(s.source, g)
            if 5 + width(words) + 2 + width(source) <= cells:
                out.append(line(mark, Span(words), Span(f"  {source}", "muted")))
                continue
            first, *others = wrapped(words, cells - 6)
            out.append(line(mark, Span(first)))
            out += [line(Span(f"       {row}")) for row in others]
            out += [line(Span(f"       {row}", "muted")) for row in wrapped(source, cells - 8)]
        if proof.instance:
            told = ", ".join(f"{k} {v}" for k, v in proof.instance.items())
            out += _told("instance", plain_text(told, g, 300), cells)
    for step in preset.steps:
        took = None if step.started_t is None or step.ended_t is None else step.ended_t - step.started_t
        sign, role = {"done": (g.good, "good"), "failed": (g.failed, "bad"), "running": (g.running, "accent")}.get(
            step.state, (g.waiting, "muted")
        )
        out.append(
            line(
                Span(f"   {sign} ", role),
                Span(left(plain_text(step.words, g), 44, g)),
                Span(right(duration(took), 9, g), "muted"),
            )
        )
        asked = asked_lines(facts, step, cells)
        out += asked
        if step.detail and not asked and step.state in ("running", "failed"):
            rows = wrapped(plain_text(step.detail, g, 600), cells - 6)
            out += [line(Span(f"     {row}", "bad" if step.state == "failed" else "muted")) for row in rows]
    for e in preset.evals:
        words = f"{plain_text(e.problem_set, g)}: {e.words}"
        if e.pass_at_1_ci95 is not None:
            words += f", pass@1 {share(e.pass_at_1)} ({share(e.pass_at_1_ci95[0])} to {share(e.pass_at_1_ci95[1])})"
        out += _told("eval", f"{words}, in {e.sandbox}", cells)
    if (same := preset.lossless) is not None:
        words = f"{same.identical} of {same.compared} greedy texts identical to {plain_text(same.reference, g)}"
        if same.of_the_reference:
            words = f"the reference: its {english(same.compared, 'greedy text')} are what the others' are held against"
        out += _told("lossless", words, cells, "bad" if same.diverged else "")
    for suspicion in facts.state.suspicions:
        if suspicion.preset in (None, preset.preset.name):
            told = f"suspect the {suspicion.suspect}: {plain_text(suspicion.words, g, 600)}"
            for i, row in enumerate(wrapped(told, cells - 4)):
                out.append(line(Span(f" {' ' if i else g.hot} {row}", "warn")))
            told = f"{plain_text(suspicion.evidence, g, 600)}; {plain_text(suspicion.look_at, g, 600)}"
            out += [line(Span(f"   {row}", "muted")) for row in wrapped(told, cells - 4)]
    return out


def _told(label: str, words: str, cells: int, role: str = "") -> list[Line]:
    """Returns words behind their label, on as many lines as they need."""
    rows = wrapped(words, cells - 12)
    return [line(Span(f" {'' if i else label:<10}", "muted"), Span(row, role)) for i, row in enumerate(rows)]
