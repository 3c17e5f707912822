"""The steps of putting a preset in effect: each with its time, the present one turning into words."""

from __future__ import annotations

from reconfig.presets import ProofStep
from sessions.settings import shown_proof
from sessions.state import PresetState
from tui.draw import Line, Span, line, title
from tui.graph import progress
from tui.view import Facts
from tui.words import clock, cut, duration, plain_text, width, wrapped


def draw_steps(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the steps of the preset that is being put in effect (or failed to be), and the log below them."""
    g, state = facts.glyphs, facts.state
    preset = state.presets.get(state.current_preset or "")
    if preset is None:
        return []
    name = plain_text(preset.preset.name, g)
    since = preset.switching_since_t
    took = preset.proof.took_s if preset.proof and preset.proof.took_s is not None else None
    elapsed = clock(took if took is not None else facts.now_t - since) if since is not None else ""
    words = f"switching to {name}" if preset.status == "switching" else f"{name} is not in effect"
    heading = title(f" {cut(words, cells - len(elapsed) - 4, g)} {g.dot} {elapsed}", cells, g)
    told = preset.reason if preset.status == "not-in-effect" else ""
    lines = [row for s in preset.steps for row in (_step(facts, s, cells, told), *asked_lines(facts, s, cells))]
    out: list[Line] = [heading]
    failed = preset.status == "not-in-effect"
    tail = (
        _failure(facts, preset, cells)
        if failed
        else [line(Span(f"  log: {plain_text(x, g, 300)}", "muted")) for x in state.log[-3:]]
    )
    room = rows - 1
    keep = min(len(tail), max(3 if failed else 1, room - len(lines)))
    visible = max(1, room - keep)
    if len(lines) > visible:
        busy = next((i for i, s in enumerate(preset.steps) if s.state in ("running", "failed")), len(preset.steps) - 1)
        asked = len(asked_lines(facts, preset.steps[busy], cells))
        first = max(0, min(busy, busy + asked - visible + 1, len(lines) - visible))
        whole = busy + asked < first + visible
        lines = lines[first : first + visible]
        if not whole:
            lines[-1] = line(Span(f"   {g.ellipsis} y copies all of it, P shows it", "warn"))
    out.extend(lines)
    out.extend(tail[:keep] if failed else tail[-keep:] if keep else [])
    return out[:rows]


def asks_operator(facts: Facts, step: ProofStep) -> bool:
    """Whether a step waits for what the operator does with the server."""
    return not facts.state.restarts and step.name == "start" and step.state == "running" and bool(step.detail)


def asked_lines(facts: Facts, step: ProofStep, cells: int) -> list[Line]:
    """Returns what a step asks of the operator, whole: in words, then the command."""
    if not asks_operator(facts, step):
        return []
    words, mark, command = plain_text(step.detail, facts.glyphs).partition("; restart the server")
    parts = [words, f"restart the server{command}"] if mark else [words]
    return [line(Span(f"   {row}", "strong")) for part in parts for row in wrapped(part, cells - 4)]


def _step(facts: Facts, step: ProofStep, cells: int, told: str) -> Line:
    """A step's line; a detail that `told` below it already holds is left out."""
    g = facts.glyphs
    sign, role = {
        "done": (g.good, "good"),
        "running": (g.running, "accent"),
        "failed": (g.failed, "bad"),
    }.get(step.state, (g.waiting, "muted"))
    words = plain_text(step.words, g)
    time = ""
    if step.started_t is not None:
        end = step.ended_t if step.ended_t is not None else facts.now_t
        time = duration(end - step.started_t)
    spans = [Span(f" {sign} ", role), Span(words, "strong" if step.state in ("running", "failed") else role)]
    room = cells - 5 - width(words) - len(time)
    detail = "y copies the command" if asks_operator(facts, step) else plain_text(step.detail, g, 300)
    if step.share is not None and step.state == "running" and room >= 16:
        cells_of_bar = min(18, room - 8)
        filled, rest = progress(step.share, cells_of_bar, g)
        spans.extend((Span(f"  {filled}", "accent"), Span(rest, "muted"), Span(f" {step.share * 100:.0f} %")))
        room -= cells_of_bar + 8
    if detail and detail not in told and room > 6:
        spans.append(Span(f"  {cut(detail, room - 2, g)}", "muted" if step.state != "failed" else "bad"))
    used = sum(width(s.text) for s in spans)
    spans.append(Span(f"{time:>{max(1, cells - used)}}", "muted"))
    return line(*spans)


def _failure(facts: Facts, preset: PresetState, cells: int) -> list[Line]:
    """Why, what comes next, then the evidence: settings and the log's last lines."""
    g = facts.glyphs
    out = [line(Span(f" {g.failed} {plain_text(preset.reason, g, 600)}", "bad"))]
    if facts.state.news:
        out.append(line(Span(f" {g.arrow} {plain_text(facts.state.news[-1].words, g, 300)}", "strong")))
    if preset.proof is None:
        return out
    for s in shown_proof(preset.preset, preset.proof).settings:
        if not s.ok and f"{s.setting}: asked {s.asked}, found" not in preset.reason:
            found = f"asked {plain_text(s.asked, g)}, found {plain_text(s.found or 'nothing', g)}"
            out.append(line(Span(f"   {plain_text(s.setting, g)}: {found} ({plain_text(s.source, g)})", "warn")))
    out.extend(line(Span(f"   log: {plain_text(x, g, 300)}", "muted")) for x in preset.proof.log_tail[-4:])
    return out
