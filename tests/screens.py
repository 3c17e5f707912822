"""Draws every screen from scripted sessions: `docs/screens/*.svg`, `docs/screens.md`, and the README's `docs/live.svg`.

`make screens` runs it. The pictures are made by the application itself, with a clock that stands still.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sessions.events import AnyEvent
from sessions.reduce import reduce_all
from tests.tui import scripted as s
from tests.tui.piloting import make_app, until
from tests.tui.test_other_screens import record, write_session
from tui.glyphs import ASCII, UTF8, Glyphs

DOCS = Path(__file__).parent.parent / "docs"
SMALL, MEDIUM, LARGE = (80, 24), (120, 40), (160, 45)


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        name: of its file; `title` of its section.
        words: what is to be seen.
        events: the session.
        size: columns and rows.
        keys: pressed before it is taken.
    """

    name: str
    title: str
    words: str
    events: list[AnyEvent]
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    glyphs: Glyphs = UTF8
    theme: str = ""
    lost: str = ""


def pictures() -> list[Picture]:
    """Returns all pictures of the manual, in its order."""
    live = (
        "The first line says whether you are safe: which preset, and whether it is proved to be in effect. The second: "
        "what happens and for how long still. Then the matrix, the machine, the words. A letter beside a "
        "figure is a reason to doubt it; Enter on the cell gives it."
    )
    switching = (
        "The steps of the proof with their times. Ready means: a new process, real generations, and every asked "
        "setting read back from the running server."
    )
    refused = (
        "A preset that is not in effect has no figures at all: what was asked, what was found, and what comes next."
    )
    failing = ("E", "left", "end")
    cell = ("up", "right", "enter")
    return [
        Picture("live-80x24", "Live, 80x24", live, s.mid_sweep(), SMALL),
        Picture("live-120x40", "Live, 120x40", "With acceptance and TTFT p99 in each cell.", s.mid_sweep(), MEDIUM),
        Picture("live-160x45", "Live, 160x45", "Everything at once.", s.mid_sweep(), LARGE),
        Picture("switching-80x24", "While a preset is put in effect", switching, s.switching(), SMALL),
        Picture("switching-160x45", "The same, 160x45", "The server's log beside it.", s.switching(), LARGE),
        Picture("not-in-effect", "Not in effect", refused, s.not_in_effect(), SMALL),
        Picture("question", "A switch asks first", "And says what it costs.", s.mid_sweep(), SMALL, ("4",)),
        Picture("lost", "The engine lost", "What to do next.", s.mid_sweep(), SMALL, lost="the engine is gone"),
        Picture("cell-80x24", "A cell, opened", "Figures, marks with their reasons.", s.mid_sweep(), SMALL, cell),
        Picture("cell-160x45", "The same, 160x45", "Its requests are read from the log.", s.mid_sweep(), LARGE, cell),
        Picture("presets-80x24", "Presets (P)", "Proof, best figures, pass rates.", s.finished(), SMALL, ("P", "down")),
        Picture("presets-160x45", "The same, 160x45", "With their settings.", s.finished(), LARGE, ("P", "down")),
        Picture("evals-80x24", "Evals (E)", "What was taken from an answer, and why.", s.finished(), SMALL, failing),
        Picture("evals-160x45", "The same, 160x45", "With the run's output.", s.finished(), LARGE, failing),
        Picture("lossless", "Lossless differences (L)", "Side by side.", s.finished(), MEDIUM, ("E", "left", "L")),
        Picture("sessions", "Sessions (S)", "Search, open, compare, delete.", s.finished(), MEDIUM, ("S",)),
        Picture("compare", "Compare (C)", "`=` where noise covers it.", s.finished(), MEDIUM, ("C", "1")),
        Picture("recommend-80x24", "Recommend (R)", "The policy, and why.", s.finished(), SMALL, ("R",)),
        Picture("recommend-160x45", "The same, 160x45", "All of it.", s.finished(), LARGE, ("R",)),
        Picture("help", "Help (?)", "For the screen it was asked from.", s.mid_sweep(), SMALL, ("question_mark",)),
        Picture("ascii", "Without UTF-8", "Nothing but ASCII.", s.mid_sweep(), SMALL, glyphs=ASCII),
        Picture("light", "Light", "`spectop-light`, from the palette.", s.mid_sweep(), SMALL, theme="spectop-light"),
        Picture("contrast", "High contrast", "`spectop-contrast`.", s.mid_sweep(), SMALL, theme="spectop-contrast"),
    ]


async def draw(picture: Picture, folder: Path) -> str:
    """Returns a picture as SVG."""
    source = s.Scripted.of(picture.events, lost=picture.lost)
    app = make_app(source, glyphs=picture.glyphs, folder=folder)
    if picture.theme:
        app.theme = picture.theme
    async with app.run_test(size=picture.size) as pilot:
        await until(pilot, lambda: bool(app.facts.state.session) and (not picture.lost or bool(app.facts.view.lost)))
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        for worker in [w for w in app.workers if w.group not in ("source", "frames")]:
            await worker.wait()
        await pilot.pause(0.3)
        return app.export_screenshot(title="spectop")


async def draw_all() -> None:
    """Writes all pictures and the page that shows them."""
    folder = DOCS / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Screens",
        "",
        "Drawn by the application itself from a scripted sweep (`make screens`); every screen is complete at 80x24.",
        "Help (`?`) lists the keys of every screen. The number keys switch presets; `z` maximises a panel.",
        "",
    ]
    with tempfile.TemporaryDirectory() as made:
        os.environ["SPECTOP_SESSIONS_DIR"] = made
        cell = s.key("b8t4-w2048", 1024, 64)
        begin = reduce_all(s.mid_sweep()).cells[cell.text].started_t or 0.0
        records = [record(cell, i, begin=begin) for i in range(64)]
        one = write_session(Path(made) / "20260301T115845.000Z-kimi", s.finished(), records)
        write_session(Path(made) / "20260302T083010.000Z-kimi", s.mid_sweep())
        for picture in pictures():
            svg = await draw(picture, one)
            (folder / f"{picture.name}.svg").write_text(svg.replace(made, "~/.local/share/spectop"), encoding="utf-8")
            lines += [
                f"## {picture.title}",
                "",
                picture.words,
                "",
                f"![{picture.title}](screens/{picture.name}.svg)",
                "",
            ]
            sys.stdout.write(f"{picture.name}\n")
    (DOCS / "screens.md").write_text("\n".join(lines), encoding="utf-8")
    (DOCS / "live.svg").write_text((folder / "live-120x40.svg").read_text(encoding="utf-8"), encoding="utf-8")


def main() -> int:
    """Draws them."""
    os.environ.pop("NO_COLOR", None)
    asyncio.run(draw_all())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
