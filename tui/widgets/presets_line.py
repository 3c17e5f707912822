"""All presets in a line or two: number keys, the shown one, proof and pass rate; a word when not in effect."""

from __future__ import annotations

from collections.abc import Mapping

from sessions.state import PresetState
from tui.cells import pass_counts
from tui.draw import Line, Span, fit, line, line_width
from tui.glyphs import Glyphs
from tui.remembered import remembered
from tui.view import Facts
from tui.words import cut, plain_text


def draw_presets_line(facts: Facts, cells: int, rows: int) -> list[Line]:
    """Returns the presets with their keys; the line with the shown preset is always among those shown."""
    g = facts.glyphs
    lines, shown_on = _lines(facts.state.presets, facts.preset, facts.over, g, cells)
    first = max(0, min(shown_on - rows + 1, len(lines) - rows))
    kept = lines[first : first + rows]
    if len(lines) > rows and kept:
        more = g.more_down if first + rows < len(lines) else g.more_up
        kept[-1] = [*fit(tuple(kept[-1]), cells - 2, g), Span(f" {more}", "warn")]
    return [line(*row) for row in kept]


def lines_wanted(facts: Facts, cells: int) -> int:
    """Returns the lines that all presets take."""
    return len(_lines(facts.state.presets, facts.preset, facts.over, facts.glyphs, cells)[0])


@remembered(8)
def _lines(
    of: Mapping[str, PresetState], looked_at: PresetState | None, over: bool, g: Glyphs, cells: int
) -> tuple[list[list[Span]], int]:
    """Returns all lines, and which of them the preset that is looked at is on."""
    lines: list[list[Span]] = [[Span(" presets", "muted")]]
    shown_on = 0
    presets = list(of.values())
    longest = max(11, (cells - 9) // max(1, min(len(presets), 4)) - 8)
    for number, preset in enumerate(presets, start=1):
        chip = _chip(number, preset, g, longest, looked_at=preset is looked_at, over=over)
        gap = Span(" ") if len(lines[-1]) > 1 else Span("")
        if line_width((*lines[-1], gap, *chip)) > cells:
            lines.append([Span("        ")])
            gap = Span("")
        lines[-1].extend((gap, *chip))
        if preset is looked_at:
            shown_on = len(lines) - 1
    return lines, shown_on


def _chip(number: int, preset: PresetState, g: Glyphs, longest: int, *, looked_at: bool, over: bool) -> list[Span]:
    name = cut(plain_text(preset.preset.name, g), longest, g)
    key = str(number) if number <= 9 else " "
    sign, role = {
        "in-effect": (g.off, "muted") if over else (g.on, "good"),
        "switching": (f"{g.failed} broken off", "warn") if over else (g.running, "accent"),
        "done": (g.good, "good"),
        "not-in-effect": (f"{g.failed} not in effect", "bad"),
        "skipped": (f"{g.skipped} skipped", "muted"),
    }.get(preset.status, ("", "muted"))
    passed, judged = pass_counts(preset)
    spans = [
        Span(f" {key} ", "key" if looked_at else "muted"),
        Span(name, "picked" if looked_at else ""),
        Span(f" {sign}" if sign else "", role),
    ]
    if judged:
        spans.append(Span(f" {passed}/{judged}", "good" if passed == judged else "warn"))
    if preset.lossless is not None and preset.lossless.diverged:
        spans.append(Span(f" {g.hot}text differs", "bad"))
    return spans
