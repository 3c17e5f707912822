"""Sets a report as one HTML file that needs nothing else: styles, scripts and data are inside, nothing is fetched."""

from __future__ import annotations

import html
from functools import cache

import altair
import msgspec
import vl_convert

from sessions.folder import printable
from sessions.report.blocks import Block, Cell, Grid, Picture, Pictures, Report, Words

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: #fff; color: #1a1a1a;
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .2rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ccc; }
h3 { font-size: .9rem; margin: .2rem 0; font-weight: 600; }
.banner { background: #fff3cd; border: 2px solid #b8860b; padding: .5rem .8rem; font-weight: 700; }
.subtitle { color: #555; margin: 0 0 .8rem; }
p.good { border-left: 4px solid #2e7d32; padding-left: .6rem; font-weight: 600; }
p.warning { border-left: 4px solid #b8860b; padding-left: .6rem; }
p.bad { border-left: 4px solid #b00020; padding-left: .6rem; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption, summary { text-align: left; color: #555; font-size: .85rem; padding: .2rem 0; }
summary { cursor: pointer; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #e3e3e3; text-align: left; vertical-align: top; }
th, td { white-space: nowrap; } td.long { white-space: normal; min-width: 18rem; }
th { border-bottom: 2px solid #bbb; } th.n, td.n { text-align: right; }
td.good { color: #1b5e20; } td.warning { color: #7a5600; } td.bad { color: #b00020; font-weight: 600; }
.pictures { display: grid; gap: 1rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; min-width: 0; } .chart { width: 100%; } .chart svg { max-width: 100%; }
@media print { details > * { display: block; } }
"""

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"

_LONG = 36
"""Characters; longer cells are broken into lines."""

_DRAW = """
for (const node of document.querySelectorAll("script[data-chart]")) {
  const target = document.getElementById(node.dataset.chart);
  vegaEmbed(target, JSON.parse(node.textContent), {actions: false, renderer: "svg"})
    .then(() => { target.dataset.drawn = "yes"; })
    .catch((error) => { target.textContent = "This picture could not be drawn: " + error; });
}
"""


@cache
def _scripts() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as one script, of the version that Altair writes for."""
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def as_html(report: Report) -> str:
    """Returns a report as a whole HTML document."""
    charts: list[Picture] = []
    body = "".join(
        f"<section><h2>{_text(s.title)}</h2>{''.join(_block(b, charts) for b in s.blocks)}</section>"
        for s in report.sections
    )
    banner = f'<p class="banner">{_text(report.banner)}</p>' if report.banner else ""
    scripts = f"<script>{_scripts()}</script>{_specs(charts)}<script>{_DRAW}</script>" if charts else ""
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{_text(report.title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<style>{_STYLE}</style></head><body><header><h1>{_text(report.title)}</h1>"
        f'<p class="subtitle">{_text(report.subtitle)}</p>{banner}</header>'
        f"{body}{scripts}</body></html>\n"
    )


def _specs(charts: list[Picture]) -> str:
    parts = []
    for number, picture in enumerate(charts):
        data = msgspec.json.encode(picture.spec).decode().replace("<", "\\u003c")
        parts.append(f'<script type="application/json" data-chart="chart-{number}">{data}</script>')
    return "".join(parts)


def _block(block: Block, charts: list[Picture]) -> str:
    if isinstance(block, Words):
        return f'<p class="{block.tone}">{_text(block.text)}</p>'
    if isinstance(block, Pictures):
        return f'<div class="pictures">{"".join(_picture(p, charts) for p in block.pictures)}</div>'
    return _table(block)


def _picture(picture: Picture, charts: list[Picture]) -> str:
    number = len(charts)
    charts.append(picture)
    return (
        f'<figure><h3>{_text(picture.title)}</h3><div class="chart" id="chart-{number}" role="img" '
        f'aria-label="{_text(picture.alt)}"></div></figure>'
    )


def _table(block: Grid) -> str:
    numeric = [' class="n"' if i in block.numeric else "" for i in range(len(block.headings))]
    head = "".join(f"<th{kind}>{_text(h)}</th>" for h, kind in zip(block.headings, numeric, strict=True))
    rows = "".join(f"<tr>{''.join(_cell(c, i in block.numeric) for i, c in enumerate(r))}</tr>" for r in block.rows)
    caption = f"<caption>{_text(block.caption)}</caption>" if block.caption and not block.folded else ""
    table = f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    if not block.folded:
        return table
    return f"<details><summary>{_text(block.caption)} ({len(block.rows)} rows)</summary>{table}</details>"


def _cell(cell: Cell, numeric: bool) -> str:
    tone = "" if cell.tone == "plain" else cell.tone
    kinds = " ".join(k for k in ("n" if numeric else "", "long" if len(cell.text) > _LONG else "", tone) if k)
    return f"<td{f' class={chr(34)}{kinds}{chr(34)}' if kinds else ''}>{_text(cell.text)}</td>"


def _text(text: str) -> str:
    return html.escape(printable(text))
