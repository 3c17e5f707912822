"""The application's inner half: pace, ticking times, lost sources, and what goes over the wire."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from textual.app import App

from sessions.errors import EngineLost
from sessions.reduce import reduce, reduce_all
from tests.tui import scripted as s
from tests.tui.piloting import panel_text, running, screen_text, until
from tui.draw import Span, line
from tui.pace import FASTEST_S, SLOWEST_S, Pace
from tui.spectop import SpectopApp
from tui.terminal import prepare_environment, terminal_is_gone
from tui.widgets.panel import Panel


def test_a_terminal_that_keeps_up_is_drawn_four_times_a_second() -> None:
    pace = Pace(lambda: 0)
    assert all(pace.may_draw() for _ in range(10))
    assert pace.period_s == FASTEST_S


def test_a_terminal_that_does_not_keep_up_is_left_alone_and_recovers() -> None:
    waiting = 30
    pace = Pace(lambda: waiting)
    assert not any(pace.may_draw() for _ in range(10))
    assert pace.period_s == SLOWEST_S
    waiting = 0
    for _ in range(20):
        assert pace.may_draw()
    assert pace.period_s == FASTEST_S


def test_over_ssh_textual_is_made_quiet_and_the_operators_settings_stay() -> None:
    env = {"SSH_CONNECTION": "1 2 3 4", "TEXTUAL_ANIMATIONS": "basic"}
    prepare_environment(env)
    assert env["TEXTUAL_ANIMATIONS"] == "basic"
    assert env["TEXTUAL_SMOOTH_SCROLL"] == "0"
    here: dict[str, str] = {}
    prepare_environment(here)
    assert here == {"TEXTUAL_ANIMATIONS": "none"}


def test_the_environment_is_prepared_before_textual_is_imported() -> None:
    import subprocess
    import sys

    code = "import sys, tui.app; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


async def test_elapsed_time_ticks_while_nothing_else_happens_and_stands_still_at_the_end() -> None:
    now = 0.0
    source = s.Scripted.of(s.mid_sweep())
    app = SpectopApp(source, clock=lambda: now, period_s=0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "31:04" in panel_text(app, "head"))
        now = 5.0
        app._tick()
        assert "31:09" in panel_text(app, "head")
        source.send(reduce_all(s.finished()))
        await until(pilot, lambda: "finished" in panel_text(app, "head"))
        before = panel_text(app, "head")
        now = 500.0
        app._tick()
        assert panel_text(app, "head") == before


async def test_the_newest_of_many_states_wins() -> None:
    source = s.Scripted()
    cell = s.key("b8t4-w2048", 4096, 32)
    state = reduce_all(s.mid_sweep())
    for i in range(500):
        state = reduce(state, s.progressed(cell, state.t + 0.01, i / 500, 1000.0 + i))
        source.send(state)
    async with running(source) as (app, pilot):
        await until(pilot, lambda: "100%" in screen_text(app))
        assert app.facts.state == state


async def test_the_same_state_twice_sends_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    state = reduce_all(s.mid_sweep())
    source = s.Scripted(state)
    async with running(source) as (app, pilot):
        asked: list[object] = []
        monkeypatch.setattr(Panel, "refresh", lambda self, *regions, **_: asked.append((self.id, regions)))
        shown: list[int] = []
        old = app._show
        monkeypatch.setattr(app, "_show", lambda facts: (shown.append(1), old(facts)))
        source.send(state)
        await until(pilot, lambda: bool(shown))
        assert asked == []


async def test_only_the_stretch_that_changed_is_repainted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "170.2"
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        panel = Panel(lambda w, h: [line("tok/s ", Span(text)), line("the same")])
        panel.styles.height = 2
        await app.screen.mount(panel)
        await pilot.pause()
        regions: list[object] = []
        monkeypatch.setattr(panel, "refresh", lambda *r: regions.extend(r))
        text = "171.2"
        panel.redraw()
        assert [tuple(r) for r in regions] == [(8, 0, 1, 1)]  # type: ignore[arg-type]


class Unreachable:
    """A source whose engine is not there."""

    live = True

    async def connect(self) -> None:
        raise EngineLost("no engine answers at /run/x.sock: No such file or directory")

    async def states(self):  # type: ignore[no-untyped-def]
        await asyncio.Event().wait()
        yield

    async def command(self, command: object) -> object:
        raise AssertionError(command)

    async def close(self) -> None:
        pass


async def test_an_engine_that_cannot_be_reached_is_said_on_the_screen() -> None:
    app = SpectopApp(Unreachable())  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "no engine answers" in screen_text(app))
        assert "ENGINE LOST" in screen_text(app)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


async def test_a_fault_in_a_worker_is_told_and_the_screens_go_on() -> None:
    class Broken(s.Scripted):
        async def command(self, command: object) -> object:  # type: ignore[override]
            raise ValueError("[unexpected]")

    source = Broken.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "[unexpected]" in screen_text(app))
        await pilot.press("m")
        assert app.facts.view.metric == 1


def test_a_terminal_that_is_not_there_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        monkeypatch.setattr("sys.__stdin__", stream)
        assert not terminal_is_gone()
        os.close(controller)
        assert terminal_is_gone()


async def test_a_hang_up_ends_the_screens_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr("tui.watching.end_soon", ends.append)
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        app._end_by_signal(128 + signal.SIGHUP)
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 129
    assert ends == [129]
    assert source.closed
    assert source.commands == []


async def test_a_fault_in_the_screens_leaves_words_and_a_file_instead_of_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECTOP_CAPTURES_DIR", str(tmp_path))
    app = SpectopApp(s.Scripted.of(s.mid_sweep()))
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: bool(app.facts.state.session))
            app.call_later(lambda: 1 // 0)
            await until(pilot, lambda: not app.is_running)
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told
    assert "spectop attach" in told
    assert "Traceback" not in told
    kept = [path.read_text() for path in sorted(tmp_path.glob("*.txt"))]  # noqa: ASYNC240
    assert len(kept) == 1
    assert "Traceback" in kept[0]
