"""A recommendation as a page: the policy as a matrix of names, the standings, the reasons and warnings."""

from __future__ import annotations

from loadgen.figures import Interval
from sessions.recommend import Choice, Recommendation
from tui.draw import Line, Span, line, title
from tui.glyphs import Glyphs
from tui.words import left, number, plain_text, right, with_interval, with_range, wrapped
from tui.words import width as text_width


def gain_words(ratio: float | None, interval: Interval | None, glyphs: Glyphs) -> str:
    """Returns a ratio as `+92.3 ±2.3 %`, uneven bounds as `+2 -12..+17 %`."""
    if ratio is None:
        return glyphs.absent
    percent = (ratio - 1) * 100
    if interval is None:
        return f"{with_interval(percent, None, glyphs, sign=True)} %"
    return f"{with_range(percent, (interval.lo - 1) * 100, (interval.hi - 1) * 100, glyphs)} %"


def _overall(found: Recommendation, glyphs: Glyphs) -> str:
    """Returns the preset to run, or that the figures choose none: what noise covers is no verdict."""
    if found.overall is None:
        return "none can be named"
    name = plain_text(found.overall, glyphs)
    if not found.equal:
        return name
    others = [s.preset for s in found.standings if s.candidate and s.preset != found.overall]
    if len(found.equal) == len(others):
        return f"no preset is better within noise; first by figure: {name}"
    return f"{len(found.equal) + 1} presets are the best within noise; first by figure: {name}"


def draw_recommendation(found: Recommendation, cells: int, glyphs: Glyphs) -> list[Line]:
    """Returns the page."""
    out: list[Line] = []
    for i, words in enumerate(wrapped(_overall(found, glyphs), cells - 10)):
        out.append(
            line(Span(" " * 10 if i else " overall  ", "muted"), Span(words, "warn" if found.equal else "strong"))
        )
    out.extend(line(Span(f"   {w}")) for w in wrapped(plain_text(found.why, glyphs, 600), cells - 4))
    if found.equal:
        told = ", ".join(plain_text(n, glyphs) for n in found.equal)
        rows = wrapped(f"not distinguishable from it: {told}", cells - 4)
        out.extend(line(Span(f"   {row}")) for row in rows)
    for warning in found.warnings:
        for i, words in enumerate(wrapped(plain_text(warning, glyphs, 600), cells - 4)):
            out.append(line(Span(f" {glyphs.hot if i == 0 else ' '} {words}", "warn")))
    out.append(())
    out.append(title(" policy: the best preset at each matrix point (+n: as good within noise)", cells, glyphs))
    out.extend(_policy(found, cells, glyphs))
    out.append(())
    reference = f" against {plain_text(found.reference, glyphs)}" if found.reference else ""
    out.append(title(f" standings{reference}, geometric mean over matrix points", cells, glyphs))
    for s in found.standings:
        own = s.preset == found.reference and s.ratio is not None
        text = right("reference" if own else gain_words(s.ratio, s.interval, glyphs), 18, glyphs)
        told = f"  {s.points}/{s.of} points, best or equal at {s.best_at}"
        role = "strong" if s.preset == found.overall else ""
        out.append(
            line(Span(f"   {left(plain_text(s.preset, glyphs), 22, glyphs)}", role), Span(text), Span(told, "muted"))
        )
    out.append(())
    out.append(title(" why: figure, gain over the reference, presets as good, presets without a vote", cells, glyphs))
    for c in found.choices:
        out.extend(_choice(c, found.reference, cells, glyphs))
    return out


def _policy(found: Recommendation, cells: int, glyphs: Glyphs) -> list[Line]:
    columns = sorted({c.point.concurrency for c in found.choices})
    temperatures = sorted({c.point.temperature for c in found.choices})
    at = {(c.point.context, c.point.concurrency, c.point.temperature): c for c in found.choices}
    each = max(9, min(24, (cells - 9) // max(1, len(columns))))
    out: list[Line] = []
    for temperature in temperatures:
        warm = f"t{temperature:g}" if len(temperatures) > 1 else ""
        heads = [Span(left(f"c={n}", each, glyphs), "head") for n in columns]
        out.append(line(Span(f" {warm:<8}", "muted"), *heads))
        for context in sorted({c.point.context for c in found.choices if c.point.temperature == temperature}):
            row = [Span(f"{context:>7}  ", "strong")]
            for concurrency in columns:
                choice = at.get((context, concurrency, temperature))
                if choice is None or choice.preset is None:
                    row.append(Span(left(glyphs.absent, each, glyphs), "muted"))
                    continue
                sign = f" +{len(choice.equal)}" if choice.equal else ""
                name = plain_text(choice.preset, glyphs)
                if choice.votes == 1:
                    sign = " (only one)" if text_width(name) + 12 <= each else f" {glyphs.hot}"
                name = left(name, each - len(sign) - 1, glyphs).rstrip()
                role = "good" if choice.preset == found.overall and choice.votes > 1 else ""
                row.append(Span(left(name + sign, each, glyphs), "muted" if choice.votes == 1 else role))
            out.append(tuple(row))
    if any(c.votes == 1 for c in found.choices):
        words = f"(only one), {glyphs.hot}: no other preset has a vote there, so it is not the best of any"
        out.extend(line(Span(f"   {row}", "warn")) for row in wrapped(words, cells - 4))
    return out


def _choice(c: Choice, reference: str | None, cells: int, glyphs: Glyphs) -> list[Line]:
    if c.preset is None:
        out = [line(Span(f"   {left(c.point.text, 16, glyphs)}"), Span("nothing votes", "warn"))]
    else:
        half = None if c.interval is None else (c.interval.hi - c.interval.lo) / 2
        figure = right(with_interval(c.value, half, glyphs), 14, glyphs)
        own = c.preset == reference
        gain = right("reference" if own else gain_words(c.gain, c.gain_interval, glyphs), 18, glyphs)
        equal = f"  = {', '.join(plain_text(n, glyphs) for n in c.equal)}" if c.equal else ""
        equal = "  the only one" if c.votes == 1 else equal
        name = left(plain_text(c.preset, glyphs), 20, glyphs)
        out = [
            line(
                Span(f"   {left(c.point.text, 16, glyphs)}"),
                Span(name, "strong"),
                Span(figure if c.value is not None else number(None)),
                Span(gain),
                Span(equal if 71 + text_width(equal) <= cells else "", "muted"),
            )
        ]
        if 71 + text_width(equal) > cells:
            out.extend(line(Span(f"      {row}", "muted")) for row in wrapped(equal.strip(), cells - 8))
    for name, reason in c.without_vote:
        told = f"{plain_text(name, glyphs)} has no vote: {plain_text(reason, glyphs, 300)}"
        out.extend(line(Span(f"      {row}", "muted")) for row in wrapped(told, cells - 8))
    return out
