"""The report's pictures, as Vega-Lite specifications made by Altair. Data is inside; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from sessions.points import ENERGY, THROUGHPUT, Point, PointCells, ratio
from sessions.report.blocks import Picture

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#a6761d")
"""Colours that stay apart for most who are colour-blind (after Okabe and Ito); presets differ by shape as well."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
HEIGHT = 220
_LABEL_LIMIT = 160

Points = Mapping[tuple[str, Point], PointCells]


def _spec(chart: Any, height: int | None = HEIGHT) -> dict[str, Any]:
    """Returns a chart's specification in the report's one style."""
    if height is not None:
        chart = chart.properties(height=height)
    chart = (
        chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=11, grid=True, gridColor="#e6e6e6", labelLimit=_LABEL_LIMIT)
        .configure_legend(orient="bottom", columns=3, labelFontSize=11, title=None, labelLimit=_LABEL_LIMIT)
    )
    spec: dict[str, Any] = chart.to_dict()
    return spec


def _inline(rows: Sequence[Mapping[str, Any]]) -> Any:
    return alt.InlineData(values=[dict(row) for row in rows])


def _preset_colour(presets: Sequence[str]) -> Any:
    names = list(presets)
    return alt.Color("preset:N", scale=alt.Scale(domain=names, range=_cycled(PALETTE, len(names))), sort=names)


def _preset_shape(presets: Sequence[str]) -> Any:
    names = list(presets)
    return alt.Shape("preset:N", scale=alt.Scale(domain=names, range=_cycled(SHAPES, len(names))), sort=names)


def _cycled(values: Sequence[str], count: int) -> list[str]:
    return [values[i % len(values)] for i in range(count)]


def largest_change(points: Points, reference: str | None) -> float:
    """Returns the largest difference from the reference anywhere, percent, at least 20: the end of the colours."""
    changes = [abs(c) for (name, point) in points if (c := _change(points, name, point, reference)) is not None]
    return max([20.0, *changes])


def _change(points: Points, preset: str, point: Point, reference: str | None) -> float | None:
    """Returns by how many percent a preset's throughput differs from the reference's at a point."""
    base_cells = points.get((reference, point)) if reference else None
    base = base_cells.estimate(THROUGHPUT) if base_cells else None
    own = points[preset, point].estimate(THROUGHPUT)
    found = ratio(own, base) if own is not None and base is not None else None
    return None if found is None else (found.value - 1) * 100


def heat_map(preset: str, points: Points, reference: str | None, temperature: float, reach: float) -> Picture | None:
    """Throughput of a preset over the matrix: figures as text, colour for the difference from the reference.

    Args:
        preset: whose.
        points: of the session.
        reference: the preset it is held against.
        temperature: of the cells shown.
        reach: difference in percent at which the colours end (`largest_change`), the same for all presets.
    """
    rows: list[dict[str, Any]] = []
    for (name, point), cells in points.items():
        if name != preset or point.temperature != temperature:
            continue
        estimate = cells.estimate(THROUGHPUT)
        change = _change(points, name, point, reference)
        text = cells.no_figures.partition(":")[0] if estimate is None else f"{estimate.value:.4g}"
        rows.append(
            {
                "context": str(point.context),
                "concurrency": str(point.concurrency),
                "tok/s": None if estimate is None else round(estimate.value, 2),
                "text": text + ("!" if estimate is not None and cells.void else ""),
                "change": None if change is None else round(change, 2),
                "dark": change is not None and abs(change) > 0.72 * reach,
            }
        )
    if not any(r["tok/s"] is not None for r in rows):
        return None
    order = {axis: [str(v) for v in sorted({int(str(r[axis])) for r in rows})] for axis in ("context", "concurrency")}
    base_chart = alt.Chart(_inline(rows)).encode(
        x=alt.X(
            "concurrency:O", sort=order["concurrency"], title="concurrency", axis=alt.Axis(labelAngle=0, grid=False)
        ),
        y=alt.Y("context:O", sort=order["context"], title="context", axis=alt.Axis(grid=False)),
    )
    scale = alt.Scale(scheme="blueorange", domain=[-reach, reach], reverse=True)
    cells_layer = base_chart.mark_rect(stroke="white", invalid=None).encode(
        color=alt.condition(
            "isValid(datum.change)",
            alt.Color("change:Q", scale=scale, legend=None),
            alt.value("#eeeeee"),
        ),
        tooltip=["context:O", "concurrency:O", "tok/s:Q", "change:Q"],
    )
    text = base_chart.mark_text(fontSize=12).encode(
        text="text:N",
        color=alt.condition("datum.dark", alt.value("white"), alt.value("black")),
    )
    height = 34 * len(order["context"])
    against = f", colour: % against {reference}" if reference and reference != preset else ""
    return Picture(
        _spec(cells_layer + text, height),
        f"{preset}{against}",
        f"Heat map of tok/s of {preset} by context and concurrency",
    )


def scaling(context: int, points: Points, presets: Sequence[str], temperature: float) -> Picture | None:
    """Throughput over concurrency at one context length, all presets, with 95 % intervals."""
    rows: list[dict[str, Any]] = []
    for (name, point), cells in points.items():
        estimate = cells.estimate(THROUGHPUT) if (point.context, point.temperature) == (context, temperature) else None
        if estimate is not None:
            interval = estimate.interval
            rows.append(
                {
                    "preset": name,
                    "concurrency": point.concurrency,
                    "tok/s": estimate.value,
                    "lo": interval.lo if interval else estimate.value,
                    "hi": interval.hi if interval else estimate.value,
                }
            )
    if not rows:
        return None
    values = sorted({r["concurrency"] for r in rows})
    x = alt.X(
        "concurrency:Q",
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=values, format="d"),
        title="concurrency",
    )
    chart = alt.Chart(_inline(rows)).encode(x=x, color=_preset_colour(presets))
    lines = chart.mark_line(strokeWidth=1.5).encode(y=alt.Y("tok/s:Q", title="tok/s"))
    marks = chart.mark_point(filled=True, size=45).encode(
        y="tok/s:Q", shape=_preset_shape(presets), tooltip=["preset:N", "concurrency:Q", "tok/s:Q", "lo:Q", "hi:Q"]
    )
    rules = chart.mark_rule(strokeWidth=1.5).encode(y="lo:Q", y2="hi:Q")
    return Picture(_spec(lines + rules + marks), f"context {context}", f"Throughput by concurrency, context {context}")


def latency(context: int, points: Points, presets: Sequence[str], temperature: float) -> Picture | None:
    """Time to the first token at one context length: p50 as a point, the line up to p99."""
    rows: list[dict[str, Any]] = []
    for (name, point), cells in points.items():
        if (point.context, point.temperature) != (context, temperature):
            continue
        middle = [f.ttft_s.p50 for f in cells.figures if f.ttft_s.p50 is not None]
        tail = [f.ttft_s.p99 for f in cells.figures if f.ttft_s.p99 is not None]
        if middle and tail:
            p50 = sum(middle) / len(middle)
            rows.append({"preset": name, "concurrency": str(point.concurrency), "p50": p50, "p99": max(tail)})
    if not rows:
        return None
    order = [str(v) for v in sorted({int(str(r["concurrency"])) for r in rows})]
    chart = alt.Chart(_inline(rows)).encode(
        x=alt.X("concurrency:O", sort=order, title="concurrency", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("preset:N", sort=list(presets)),
        color=_preset_colour(presets),
    )
    rules = chart.mark_rule(strokeWidth=2).encode(
        y=alt.Y("p50:Q", scale=alt.Scale(type="log", nice=False, padding=10), title="seconds, log"), y2="p99:Q"
    )
    marks = chart.mark_point(filled=True, size=45).encode(
        y="p50:Q", shape=_preset_shape(presets), tooltip=["preset:N", "concurrency:O", "p50:Q", "p99:Q"]
    )
    return Picture(_spec(rules + marks), f"context {context}", f"Time to first token, context {context}")


def accepted(preset: str, shares: Sequence[float]) -> Picture:
    """Share of verify steps by the number of drafts they accepted."""
    rows = [{"accepted": str(k), "share": share} for k, share in enumerate(shares)]
    chart = (
        alt.Chart(_inline(rows))
        .mark_bar(color=PALETTE[0])
        .encode(
            x=alt.X("accepted:O", sort=None, title="accepted drafts", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="share of steps", axis=alt.Axis(format="%")),
            tooltip=["accepted:O", "share:Q"],
        )
    )
    return Picture(_spec(chart, 150), preset, f"Histogram of accepted drafts a verify step of {preset}")


def energy(points: Points, presets: Sequence[str]) -> Picture | None:
    """Joules a token by matrix point, all presets."""
    rows: list[dict[str, Any]] = []
    for (name, point), cells in sorted(points.items(), key=lambda item: item[0][1]):
        if (estimate := cells.estimate(ENERGY)) is not None:
            rows.append({"preset": name, "cell": point.text, "J/tok": estimate.value})
    if not rows:
        return None
    order = list(dict.fromkeys(r["cell"] for r in rows))
    chart = (
        alt.Chart(_inline(rows))
        .mark_point(filled=True, size=45)
        .encode(
            y=alt.Y("cell:O", sort=order, title=None),
            x=alt.X("J/tok:Q", scale=alt.Scale(type="log"), title="joules an output token, all GPUs, log"),
            color=_preset_colour(presets),
            shape=_preset_shape(presets),
            tooltip=["preset:N", "cell:O", "J/tok:Q"],
        )
    )
    return Picture(_spec(chart, max(120, 22 * len(order))), "energy", "Joules an output token by cell and preset")


def gpus_over_time(rows: Sequence[Mapping[str, float | int | None]], field: str, title: str) -> Picture | None:
    """One field of all GPUs over the session; `rows` hold minutes, gpu and the field, thinned already."""
    values = [{"minutes": r["minutes"], "gpu": str(r["gpu"]), "value": r[field]} for r in rows if r[field] is not None]
    if not values:
        return None
    order = sorted({str(v["gpu"]) for v in values}, key=int)
    chart = (
        alt.Chart(_inline(values))
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("minutes:Q", title="minutes since the start"),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            color=alt.Color("gpu:N", sort=order, scale=alt.Scale(domain=order, range=_cycled(PALETTE, len(order)))),
        )
    )
    return Picture(_spec(chart, 160), title, f"{title} of each GPU over the session")
