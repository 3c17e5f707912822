"""Sets a report as Markdown: the same words and tables, no pictures."""

from __future__ import annotations

from sessions.folder import printable
from sessions.report.blocks import Block, Cell, Grid, Report, Words

_SIGNS = {"plain": "", "good": "", "warning": "! ", "bad": "!! "}


def as_markdown(report: Report) -> str:
    """Returns a report as Markdown (GitHub's tables)."""
    lines = [f"# {_plain(report.title)}", "", _plain(report.subtitle), ""]
    if report.banner:
        lines += [f"**{_plain(report.banner)}**", ""]
    for section in report.sections:
        lines += [f"## {_plain(section.title)}", ""]
        for block in section.blocks:
            lines += _block(block)
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, Words):
        return [f"{_SIGNS[block.tone]}{_plain(block.text)}", ""]
    if isinstance(block, Grid):
        lines = [f"{_plain(block.caption)}:", ""] if block.caption else []
        lines.append(_row([_plain(h) for h in block.headings]))
        lines.append(_row(["---:" if i in block.numeric else "---" for i in range(len(block.headings))]))
        lines += [_row([_cell(c) for c in row]) for row in block.rows]
        return [*lines, ""]
    return []


def _cell(cell: Cell) -> str:
    return f"**{_plain(cell.text)}**" if cell.tone == "bad" and cell.text else _plain(cell.text)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Returns outside text so that Markdown takes none of it for markup."""
    out = printable(text)
    for sign in "\\`*_[]<>|#":
        out = out.replace(sign, f"\\{sign}")
    return out
