from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadgen.figures import Mark, MarkKind
from sessions.errors import SessionError
from sessions.events import CellKey
from sessions.report import as_html, as_markdown, report_of, write_report
from sessions.report.blocks import Pictures
from sessions.review import open_session
from tests.needs import needs
from tests.sessions.made import make_session, truth

EVIL = "</script><script>alert(1)</script><img src=http://evil.example/x>|*_`"


def marks(key: CellKey) -> tuple[Mark, ...]:
    return (Mark(MarkKind.UNDER_RUN, f"ran 5 of 8 {EVIL}"),) if key.concurrency == 8 and key.context == 4096 else ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_session(
        tmp_path_factory.mktemp("report"),
        f"night {EVIL}",
        model=EVIL,
        marks=marks,
        speed=lambda p, x, c: None if (p, x, c) == ("b16t4-w2048", 1024, 8) else truth(p, x, c),
    )


class Seen(HTMLParser):
    """Collects what a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0
        self.headings: list[str] = []
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [f"{tag} {v}" for k, v in attrs if k in ("src", "href", "action", "srcset", "data") and v]
        self.scripts += tag == "script"
        self._in_heading = tag == "h2"

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


def test_html_needs_nothing_else_and_says_everything(folder: Path) -> None:
    report = report_of(open_session(folder))
    text = re.sub(r"(<script[^>]*>).*?(</script>)", r"\1\2", as_html(report), flags=re.DOTALL)
    seen = Seen()
    seen.feed(text)
    assert seen.addresses == []
    assert "default-src 'none'" in text
    assert seen.headings == [
        "What to run",
        "Reasons to doubt",
        "Conditions",
        "Presets and their proof",
        "Throughput",
        "Latency",
        "Acceptance",
        "GPUs and energy",
        "Evals",
        "Every cell",
    ]
    assert html.escape(EVIL) in text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "SIMULATED" in text
    assert "hf_secret" not in text
    pictures = sum(len(b.pictures) for s in report.sections for b in s.blocks if isinstance(b, Pictures))
    assert pictures == 3 + 2 + 2 + 2 + 3  # heat maps, scaling, latency, acceptance, energy with two time lines
    assert len(re.findall("data-chart=", text)) == pictures
    assert seen.scripts == pictures + 2


def test_markdown_says_the_same_without_pictures(folder: Path) -> None:
    report = report_of(open_session(folder), charts=False)
    text = as_markdown(report)
    assert text.startswith("# night \\<")
    assert "\\</script\\>" in text
    assert "| 4096 x 1 |" in text
    assert "**no figures**" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for line in tables:
        assert line.endswith(" |")
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    starts = [i for i, line in enumerate(tables) if set(line) <= set("|-: ")]
    for start, end in zip(starts, [*(s - 1 for s in starts[1:]), len(tables)], strict=True):
        assert len(set(widths[start - 1 : end])) == 1


def test_the_reference_is_not_compared_with_itself(folder: Path) -> None:
    lossless = [line for line in as_markdown(report_of(open_session(folder))).splitlines() if "/16 |" in line]
    assert len(lossless) == 2
    assert all("| 15/16 |" in line for line in lossless)
    assert "| none | none | - | - | reference |" in as_markdown(report_of(open_session(folder)))


def test_an_unfinished_and_an_empty_session_have_a_report(tmp_path: Path) -> None:
    half = make_session(tmp_path, last_cells=1, end=False)
    assert "interrupted" in as_html(report_of(open_session(half)))
    (half / "events.jsonl").write_bytes(b"")
    text = as_markdown(report_of(open_session(half), charts=False))
    assert "No recommendation" in text
    assert "empty session" in text


def test_where_a_report_goes(folder: Path, tmp_path: Path) -> None:
    session = open_session(folder)
    write_report(session, tmp_path / "r.md")
    assert (tmp_path / "r.md").read_text().startswith("# night")
    with pytest.raises(SessionError, match=r"ends in \.html or \.md"):
        write_report(session, tmp_path / "r.pdf")
    with pytest.raises(SessionError, match="cannot be written"):
        write_report(session, tmp_path / "no" / "such" / "r.md")


MEASURE = """
addEventListener("load", () => setTimeout(() => {
  const found = document.createElement("p");
  found.id = "measured";
  found.textContent = [
    document.querySelectorAll("[data-drawn=yes] svg").length,
    document.querySelectorAll(".chart").length,
    document.documentElement.scrollWidth,
    innerWidth,
    performance.getEntriesByType("resource").length,
  ].join(" ");
  document.body.append(found);
}, 3000));
"""


@needs("chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_draws_every_picture(folder: Path, tmp_path: Path, width: int) -> None:
    page = tmp_path / "report.html"
    write_report(open_session(folder), page)
    head, _, tail = page.read_text().rpartition("</body>")
    page.write_text(f"{head}<script>{MEASURE}</script></body>{tail}")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None
    command = [
        *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--window-size={width},2000"),
        *(
            "--virtual-time-budget=30000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
        ),
        page.as_uri(),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env={**os.environ, "HOME": str(tmp_path)}
    )
    found = re.search(r'<p id="measured">([\d ]+)</p>', done.stdout)
    assert found is not None, done.stderr[-2000:]
    drawn, charts, scroll_width, inner_width, fetched = map(int, found[1].split())
    assert (drawn, charts) == (12, 12)
    assert scroll_width <= inner_width  # nothing but the tables' own boxes scrolls sideways
    assert fetched == 0
    assert "could not be drawn" not in done.stdout.replace('"This picture could not be drawn: "', "")
