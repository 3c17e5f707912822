"""An application over a scripted source, for flows; waits for conditions, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from tests.tui.scripted import Scripted
from tui.draw import text_of
from tui.glyphs import UTF8, Glyphs
from tui.spectop import SpectopApp
from tui.widgets.panel import Panel

DEADLINE_S = 20.0


def make_app(source: Scripted, *, glyphs: Glyphs = UTF8, folder: Path | None = None, **options: object) -> SpectopApp:
    """An application whose clock stands still and whose frames come at once."""
    return SpectopApp(source, glyphs=glyphs, clock=lambda: 0.0, period_s=0.01, folder=folder, **options)


async def until(pilot: Pilot[str], condition: Callable[[], bool], what: str = "") -> None:
    """Waits until a condition holds."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"did not come: {what or condition}\n{screen_text(pilot.app)}")
        await pilot.pause()
        await asyncio.sleep(0.005)


@asynccontextmanager
async def running(
    source: Scripted, size: tuple[int, int] = (80, 24), **options: object
) -> AsyncIterator[tuple[SpectopApp, Pilot[str]]]:
    """Runs the application until its first state is on the screen."""
    app = make_app(source, **options)  # type: ignore[arg-type]
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: bool(app.facts.state.session) or bool(app.facts.view.lost), "a state")
        await pilot.pause()
        yield app, pilot


def screen_text(app: object) -> str:
    """What stands on the screen, from the compositor: what a terminal would show."""
    screen = app.screen  # type: ignore[attr-defined]
    strips = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def panel_text(app: SpectopApp, name: str) -> str:
    """What a panel shows."""
    return text_of(app.screen.query_one(f"#{name}", Panel).lines)
