"""The two lines on top of every screen: am I safe (which preset, proven?), and what happens, for how long still."""

from __future__ import annotations

from reconfig.presets import Proof
from sessions.state import PresetState
from tui.draw import Line, Span, fit, line, line_width, sides
from tui.glyphs import Glyphs
from tui.graph import progress
from tui.view import Facts
from tui.words import about, clock, english, plain_text, share, width

PHASE_WORDS = {
    "idle": "getting ready",
    "reconfiguring": "switching",
    "probing": "probing",
    "checking": "reading settings back",
    "warming": "warming up",
    "evaluating": "coding eval",
    "measuring": "measuring",
    "paused": "PAUSED",
    "finished": "finished",
    "failed": "FAILED",
    "stopped": "stopped",
}


def draw_head(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the safety line and the state line."""
    return [_safety(facts, cells), _happening(facts, cells)][:rows]


def proved_by(proof: Proof) -> str:
    """Returns what a proof rests on, in words."""
    found = sum(1 for s in proof.settings if s.ok)
    parts = []
    if proof.settings:
        parts.append(f"{found} of {len(proof.settings)} settings read back")
    if proof.generations:
        parts.append(english(len(proof.generations), "generation"))
    return ", ".join(parts)


def effect_words(preset: PresetState, glyphs: Glyphs) -> Span:
    """Returns whether a preset is in effect, as a sign and words."""
    match preset.status:
        case "in-effect":
            return Span(f"{glyphs.on} in effect", "good")
        case "switching":
            return Span(f"{glyphs.running} being put in effect", "accent")
        case "not-in-effect":
            return Span(f"{glyphs.failed} NOT in effect", "bad")
        case "skipped":
            return Span(f"{glyphs.skipped} skipped", "warn")
        case "done":
            return Span(f"{glyphs.good} was in effect", "muted")
        case _:
            return Span(f"{glyphs.off} not tried yet", "muted")


def _safety(facts: Facts, cells: int) -> Line:
    state, g = facts.state, facts.glyphs
    right: list[Span] = []
    if facts.view.lost:
        right.append(Span(" ENGINE LOST ", "sim"))
    elif not facts.view.live:
        right.append(Span(f" REPLAY {facts.view.replay} " if facts.view.replay else " SAVED ", "key"))
    if state.simulated:
        right.append(Span(" SIMULATED ", "sim"))
    label = plain_text(state.label or state.session or "session", g)
    left = line(Span(" spectop", "head"), Span(f" {g.dot} ", "muted"), fit((Span(label),), min(len(label), 34), g)[0])
    current = state.presets.get(state.current_preset or "")
    if current is not None:
        effect = effect_words(current, g)
        left = (*left, Span("   "), Span(plain_text(current.preset.name, g), "strong"), Span("  "), effect)
        room = cells - line_width(left) - sum(len(s.text) for s in right) - 3
        if current.status == "in-effect" and current.proof and len(by := proved_by(current.proof)) <= room:
            left = (*left, Span(f": {by}", "muted"))
        elif current.status == "not-in-effect" and room > 12:
            left = (*left, *fit((Span(f": {plain_text(current.reason, g)}", "bad"),), room, g))
    elif state.model:
        left = (*left, Span("   "), Span(plain_text(state.model, g), "muted"))
    return sides(left, line(*right), cells, g)


def _happening(facts: Facts, cells: int) -> Line:
    state, g = facts.state, facts.glyphs
    if facts.view.lost:
        words = "the engine is gone; figures are kept. Go on: spectop run SWEEP --resume last"
        return fit(line(Span(f" {words}", "bad")), cells, g)
    words, role = _phase_words(facts)
    times = next((t for t in _times(facts) if len(t) + width(words) + 3 <= cells), _times(facts)[-1])
    running = facts.running
    amount: Line = ()
    if running is not None and running.progress is not None and state.phase == "measuring":
        done = running.progress.share_done
        room = max(0, min(24, cells - len(words) - len(times) - 12))
        if room >= 4:
            filled, rest = progress(done, room, g)
            amount = line(Span(f" {filled}", "accent"), Span(rest, "muted"), Span(f" {share(done)}"))
    return sides(line(Span(f" {words}", role), *amount), line(Span(f"{times} ")), cells, g)


def _phase_words(facts: Facts) -> tuple[str, str]:
    state, g = facts.state, facts.glyphs
    words = PHASE_WORDS[state.phase]
    role = {"paused": "warn", "failed": "bad", "stopped": "warn", "finished": "good"}.get(state.phase, "strong")
    running = facts.running
    if state.phase in ("finished", "failed", "stopped"):
        return f"{words}: {plain_text(state.end_words or _summary(facts), g)}", role
    if state.phase in ("measuring", "warming") and running is not None:
        key = running.key
        words += f" {key.context} {g.times} {key.concurrency}"
        if len(state.temperatures) > 1:
            words += f" t{key.temperature:g}"
        if state.repeats > 1:
            words += f" {g.dot} rep {key.repetition}/{state.repeats}"
        if running.progress is not None and running.progress.phase != "steady":
            words += f" {g.dot} {running.progress.phase}"
        return words, role
    if state.phase in ("reconfiguring", "probing", "checking") and state.current_preset:
        preset = state.presets.get(state.current_preset)
        words = f"{words} to {plain_text(state.current_preset, g)}" if state.phase == "reconfiguring" else words
        since = preset.switching_since_t if preset else None
        if since is not None:
            words += f" {g.dot} {clock(facts.now_t - since)}"
            if state.load_s_expected and state.restarts:
                words += f" of {about(state.load_s_expected)}"
        return words, role
    if state.phase == "evaluating" and state.current_preset:
        preset = state.presets.get(state.current_preset)
        if preset is not None and preset.judgements:
            words += f" {g.dot} {english(len(preset.judgements), 'answer')} judged"
        return words, role
    if state.phase_words:
        words += f": {plain_text(state.phase_words, g)}"
    return words, role


def _summary(facts: Facts) -> str:
    cells = facts.state.cells.values()
    measured = sum(1 for c in cells if c.status == "measured")
    return f"{measured} of {english(len(cells), 'cell')} measured"


def _times(facts: Facts) -> list[str]:
    """Cells done, time elapsed, time left; the fullest first, shorter ones for where there is less room."""
    state, g = facts.state, facts.glyphs
    if state.status != "running":
        return [clock(state.t)]
    elapsed = clock(facts.now_t)
    left = f", {about(facts.left_s)} left" if facts.left_s is not None else ""
    cell = f"cell {min(state.done_cells + 1, len(state.cells))}/{len(state.cells)} {g.dot} " if state.cells else ""
    return [f"{cell}{elapsed}{left}", f"{elapsed}{left}", elapsed]
