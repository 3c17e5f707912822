"""The two lines on top of every screen: am I safe (which preset, proven?), and what happens, for how long still."""

from __future__ import annotations

from reconfig.presets import Proof
from sessions.state import PresetState, SessionState
from tui.draw import Line, Span, fit, line, line_width, sides
from tui.glyphs import Glyphs
from tui.graph import progress
from tui.view import Facts
from tui.words import about, clock, duration, english, plain_text, share, width

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
        parts.append(f"{found} of {len(proof.settings)} settings as asked")
    if proof.generations:
        parts.append(english(len(proof.generations), "generation"))
    return ", ".join(parts)


def effect_words(preset: PresetState, glyphs: Glyphs, *, over: bool = False) -> Span:
    """Returns whether a preset is in effect, as a sign and words.

    Args:
        preset: the preset.
        glyphs: signs to draw with.
        over: nothing goes on any more, so nothing can be said of now.
    """
    match preset.status:
        case "in-effect" if over:
            return Span(f"{glyphs.off} was in effect", "muted")
        case "switching" if over:
            return Span(f"{glyphs.failed} the switch was broken off", "warn")
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
        case _ if preset.proved is not None:
            return Span(f"{glyphs.good} was in effect", "muted")
        case _ if preset.proof is not None or preset.broken_off_at is not None:
            return Span(f"{glyphs.off} not in effect yet", "muted")
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
        effect = effect_words(current, g, over=facts.over)
        if facts.view.lost and current.status == "in-effect":
            effect = Span(f"{g.off} in effect {facts.last_seen}", "warn")
        named = line(Span("   "), Span(plain_text(current.preset.name, g), "strong"), Span("  "), effect)
        room = cells - line_width(named) - sum(len(s.text) for s in right) - 1
        left = (*(left if line_width(left) <= room or not facts.view.lost else line(Span(" spectop", "head"))), *named)
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
        step = f"go on: {plain_text(resume_command(state), g)}"
        texts = (f"the engine is gone; figures are kept; {step}", f"the engine is gone; {step}", step)
        words = next((t for t in texts if width(t) < cells), step)
        return fit(line(Span(f" {words}", "bad")), cells, g)
    words, role = _phase_words(facts)
    words += _pending_words(facts)
    times = next((t for t in _times(facts) if len(t) + width(words) + 3 <= cells), _times(facts)[-1])
    running = facts.running
    amount: Line = ()
    if running is not None and running.progress is not None and state.phase == "measuring":
        done = running.progress.share_done
        room = max(0, min(24, cells - len(words) - len(times) - 12))
        if room >= 4:
            filled, rest = progress(done, room, g)
            amount = line(Span(f" {filled}", "accent"), Span(rest, "muted"), Span(f" {share(done)}"))
    return sides(line(Span(f" {words}", role), *amount), line(Span(f" {times} ")), cells, g)


def _phase_words(facts: Facts) -> tuple[str, str]:
    state, g = facts.state, facts.glyphs
    words = PHASE_WORDS[state.phase]
    role = {"paused": "warn", "failed": "bad", "stopped": "warn", "finished": "good"}.get(state.phase, "strong")
    running = facts.running
    if state.phase in ("finished", "failed", "stopped"):
        return _end_words(facts)
    if state.phase == "paused":
        why = f": {plain_text(state.phase_words, g)}" if state.phase_words else ""
        step = "" if "press p" in why else f" {g.dot} p goes on"
        return f"{words}{why}{step}", role
    if state.phase in ("measuring", "warming") and running is not None:
        key = running.key
        words += f" {key.context} {g.times} {key.concurrency}"
        if len(state.temperatures) > 1:
            words += f" t{key.temperature:g}"
        if state.repeats > 1:
            words += f" {g.dot} rep {key.repetition}/{state.repeats}"
        if running.progress is not None and running.progress.phase != "steady":
            part = running.progress.phase
            words += f" {g.dot} {part}" if (state.phase, part) != ("warming", "warmup") else ""
        return words, role
    if state.phase in ("reconfiguring", "probing", "checking") and state.current_preset:
        preset = state.presets.get(state.current_preset)
        if preset is not None and preset.status == "not-in-effect":
            return f"{plain_text(state.current_preset, g)} could not be put in effect", "bad"
        words = f"{words} to {plain_text(state.current_preset, g)}" if state.phase == "reconfiguring" else words
        since = preset.switching_since_t if preset else None
        if since is not None:
            took, usual = facts.now_t - since, state.load_s_expected if state.restarts else None
            words += f" {g.dot} {clock(took)}"
            if usual:
                words += f" of {about(usual)}" if took <= usual else f", longer than the usual {duration(usual)}"
        return words, role
    if state.phase == "evaluating" and state.current_preset:
        preset = state.presets.get(state.current_preset)
        if preset is not None and preset.judgements:
            words += f" {g.dot} {english(len(preset.judgements), 'answer')} judged"
        return words, role
    if state.phase_words:
        words += f": {plain_text(state.phase_words, g)}"
    return words, role


def _pending_words(facts: Facts) -> str:
    g = facts.glyphs
    match facts.state.pending:
        case "pause":
            return f" {g.dot} will pause after it (p takes it back)"
        case "stop-after-cell":
            return f" {g.dot} will stop after it"
        case _:
            return ""


def _end_words(facts: Facts) -> tuple[str, str]:
    """How the session ended: a sign, how much was measured, and what could not be put in effect."""
    state, g = facts.state, facts.glyphs
    cells, presets = state.cells.values(), state.presets.values()
    measured = sum(1 for c in cells if c.status == "measured")
    refused = [plain_text(p.preset.name, g) for p in presets if p.status == "not-in-effect"]
    amount = f"{measured} of {english(len(cells), 'cell')} measured" if measured else "nothing measured"
    parts = [amount]
    if refused and len(refused) == len(presets):
        parts.append("no preset could be put in effect")
    elif refused:
        parts.append(f"{', '.join(refused)} NOT in effect")
    if state.phase != "finished":
        why = plain_text(state.end_words, g)
        return f"{PHASE_WORDS[state.phase]}: {'; '.join([*parts, why] if why else parts)}", (
            "bad" if state.phase == "failed" else "warn"
        )
    sign, role = (g.good, "good") if measured == len(cells) else (g.hot, "warn") if measured else (g.failed, "bad")
    return f"{sign} finished: {'; '.join(parts)}", role


def resume_command(state: SessionState) -> str:
    """Returns the command that measures what is missing of a session."""
    return f"spectop run --resume {state.session or 'last'}"


def _times(facts: Facts) -> list[str]:
    """Cells done, time elapsed, time left; the fullest first, shorter ones for where there is less room."""
    state, g = facts.state, facts.glyphs
    if state.status != "running":
        return [clock(state.t)]
    elapsed = clock(facts.now_t)
    left = f", {about(facts.left_s)} left" if facts.left_s is not None else ""
    cell = f"cell {min(state.done_cells + 1, len(state.cells))}/{len(state.cells)} {g.dot} " if state.cells else ""
    return [f"{cell}{elapsed}{left}", f"{elapsed}{left}", elapsed]
