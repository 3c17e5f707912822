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
from tests.tui.recorded import record, write_session
from tui.glyphs import ASCII, UTF8, Glyphs

DOCS = Path(__file__).parent.parent / "docs"
SHOWN_FOLDER = "~/.local/share/spectop"
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


def _both(name: str, title: str, words: str, events: list[AnyEvent], *keys: str, lost: str = "") -> list[Picture]:
    """Returns a screen at the least size and at a rich one."""
    return [
        Picture(f"{name}-80x24", title, words, events, SMALL, keys, lost=lost),
        Picture(f"{name}-160x45", f"{title}: 160x45", "", events, LARGE, keys, lost=lost),
    ]


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
        *_both("not-in-effect", "Not in effect", refused, s.not_in_effect()),
        *_both("question", "A switch asks first", "And says what it costs.", s.mid_sweep(), "4"),
        *_both("lost", "The engine lost", "What to do next.", s.mid_sweep(), lost="the engine is gone"),
        *_both(
            "cell", "A cell, opened", "Its figures, its marks with their reasons, its requests.", s.mid_sweep(), *cell
        ),
        *_both("presets", "Presets (P)", "Proof, best figures, pass rates.", s.finished(), "P", "down"),
        *_both("add-preset", "A preset added on the fly (P, a)", "One form.", s.mid_sweep(), "P", "a"),
        *_both("evals", "Evals (E)", "What was taken from an answer, and why.", s.finished(), *failing),
        *_both("lossless", "Lossless differences (L)", "Side by side.", s.finished(), "E", "left", "L"),
        *_both("sessions", "Sessions (S)", "Search, open, compare, delete.", s.finished(), "S"),
        *_both("compare", "Compare (C)", "`=` where noise covers it.", s.finished(), "C", "1"),
        *_both("recommend", "Recommend (R)", "The policy, and why.", s.finished(), "R"),
        *_both("help", "Help (?)", "For the screen it was asked from.", s.mid_sweep(), "question_mark"),
        *_both("palette", "What can be done now (Ctrl+P)", "Only what is valid.", s.mid_sweep(), "ctrl+p"),
        *_both("log", "The words, maximised (z l)", "With levels and search.", s.mid_sweep(), "z", "l"),
        *_both("note", "A note (n)", "Kept in the session's log.", s.mid_sweep(), "n"),
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
    with tempfile.TemporaryDirectory(prefix="sessions-", dir="/tmp") as made:  # as long as what is shown
        assert len(made) == len(SHOWN_FOLDER), made
        os.environ["SPECTOP_SESSIONS_DIR"] = made
        cell = s.key("b8t4-w2048", 1024, 64)
        begin = reduce_all(s.mid_sweep()).cells[cell.text].started_t or 0.0
        records = [record(cell, i, begin=begin) for i in range(64)]
        one = write_session(Path(made) / "20260301T115845.000Z-kimi", s.finished(), records)
        write_session(Path(made) / "20260302T083010.000Z-kimi", s.mid_sweep())
        for picture in pictures():
            svg = await draw(picture, one)
            (folder / f"{picture.name}.svg").write_text(svg.replace(made, SHOWN_FOLDER), encoding="utf-8")
            lines += [
                f"## {picture.title}",
                "",
                *([picture.words, ""] if picture.words else []),
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
