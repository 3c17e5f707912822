"""A session told to somebody who was not there: one self-contained HTML file, or Markdown.

`content.py` decides what is said, `charts.py` draws, `html.py` and `markdown.py` only set it.
"""

from __future__ import annotations

from pathlib import Path

from sessions.errors import SessionError
from sessions.folder import write_atomically
from sessions.report.content import report_of
from sessions.report.html import as_html
from sessions.report.markdown import as_markdown
from sessions.review import Session

SUFFIXES = (".html", ".md")


def write_report(session: Session, path: Path) -> None:
    """Writes a session's report; the file's ending decides on its form.

    Args:
        session: an opened session.
        path: ends in `.html` (with pictures) or `.md` (tables only).

    Raises:
        SessionError: another ending, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise SessionError(f"{path}: a report ends in {' or '.join(SUFFIXES)}")
    report = report_of(session, charts=path.suffix == ".html")
    text = as_html(report) if path.suffix == ".html" else as_markdown(report)
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise SessionError(f"{path}: cannot be written: {error.strerror or error}") from error


__all__ = ["SUFFIXES", "as_html", "as_markdown", "report_of", "write_report"]
