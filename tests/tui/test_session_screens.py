"""The screens for saved sessions: the list, replay, comparison, recommendation."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sessions.replay import ReplaySource
from tests.tui import scripted as s
from tests.tui.piloting import panel_text, running, screen_text, until
from tests.tui.recorded import without_evals, write_session
from tui.screens.ask import Ask, AskLine
from tui.screens.compare import Compare
from tui.screens.live import Live
from tui.screens.sessions import Sessions
from tui.spectop import SpectopApp


async def test_sessions_are_listed_searched_opened_and_deleted(tmp_path: Path) -> None:
    one = write_session(tmp_path / "20260301T115845.000Z-one", s.finished())
    write_session(tmp_path / "20260302T115845.000Z-two", s.mid_sweep())
    async with running(s.Scripted.of(s.mid_sweep()), (120, 40), folder=one) as (app, pilot):
        await pilot.press("S")
        await until(pilot, lambda: "kimi-k26-rtx6000" in panel_text(app, "list"), "the list")
        rows = panel_text(app, "list")
        assert "48/48" in rows
        assert "finished SIMULATED" in rows
        assert "interrupted" in rows
        page = panel_text(app, "page")
        assert "20260302T115845.000Z-two" in page and "8 x NVIDIA RTX PRO 6000 Blackwell" in page
        (best,) = [row for row in page.splitlines() if "b8t4-w2048" in row]
        assert best.split()[1:7] == ["10/16", "2033", "4.30", "60", "x", "64"]
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press(*"finished", "enter")
        await until(pilot, lambda: isinstance(app.screen, Sessions))
        await until(pilot, lambda: "interrupted" not in panel_text(app, "list"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Live) and not app.facts.view.live)
        await until(pilot, lambda: "finished: 48 of 48" in screen_text(app))
        await pilot.press("S")
        await until(pilot, lambda: isinstance(app.screen, Sessions) and bool(app.screen.listing.chosen))
        await pilot.press("down", "D")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "cannot be undone" in screen_text(app)
        assert one.exists()
        await pilot.press("y")
        await until(pilot, lambda: not one.exists(), "deletion")


async def test_a_saved_session_is_played_and_moved_through(tmp_path: Path) -> None:
    folder = write_session(tmp_path / "20260301T115845.000Z-one", s.finished())
    source = ReplaySource(folder, start="end")
    app = SpectopApp(source, clock=lambda: 0.0, period_s=0.01, folder=folder, read_only=True)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "finished: 48 of 48" in screen_text(app))
        assert "SAVED" in screen_text(app)
        await pilot.press("home")
        await until(pilot, lambda: "cell 1/48" in screen_text(app))
        await pilot.press("full_stop")
        await until(pilot, lambda: "none/60x1/t0/r1 begins" in screen_text(app))
        await until(pilot, lambda: "measuring 60 × 1" in screen_text(app))
        await pilot.press("plus", "plus", "space")
        await until(pilot, lambda: "REPLAY 100x" in screen_text(app))
        await pilot.press("space")
        await until(pilot, lambda: "REPLAY paused" in screen_text(app))
        keys = panel_text(app, "keys")
        assert "space play" in keys
        assert "+ - speed" in keys
        assert "pause" not in keys
        await pilot.press("minus", "comma")
        assert source.speed == 10.0
        await pilot.press("end")
        await until(pilot, lambda: "finished: 48 of 48" in screen_text(app))
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


async def test_a_session_that_is_played_from_its_start_says_so_at_once(tmp_path: Path) -> None:
    folder = write_session(tmp_path / "20260301T115845.000Z-one", s.finished())
    app = SpectopApp(ReplaySource(folder, speed=10.0), clock=lambda: 0.0, period_s=0.01, folder=folder, read_only=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "REPLAY 10x" in screen_text(app))
        await pilot.press("space")
        await until(pilot, lambda: "REPLAY paused" in screen_text(app))


async def test_read_only_screens_say_that_they_delete_nothing(tmp_path: Path) -> None:
    folder = write_session(tmp_path / "20260301T115845.000Z-one", s.finished())
    async with running(s.Scripted.of(s.finished()), folder=folder, read_only=True) as (app, pilot):
        await pilot.press("S")
        await until(pilot, lambda: isinstance(app.screen, Sessions) and bool(app.screen.listing.chosen))
        await pilot.press("D")
        await until(pilot, lambda: "nothing is deleted" in screen_text(app))
        assert folder.exists()


async def test_two_sessions_are_compared_with_conditions_first(tmp_path: Path) -> None:
    write_session(tmp_path / "20260301T115845.000Z-one", without_evals(s.finished()))
    write_session(tmp_path / "20260302T115845.000Z-two", without_evals(s.finished()))
    async with running(s.Scripted.of(s.finished()), (120, 60), folder=tmp_path / "20260301T115845.000Z-one") as (
        app,
        pilot,
    ):
        await pilot.press("S")
        await until(pilot, lambda: "48/48" in panel_text(app, "list"))
        await pilot.press("c")
        await until(pilot, lambda: "pick one session" in screen_text(app))
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: isinstance(app.screen, Compare))
        await until(pilot, lambda: "over all cells" in screen_text(app), "the comparison")
        shown = screen_text(app)
        assert shown.count("= +0") >= 16
        assert "throughput, cell by cell: 48 same within noise" in shown
        assert "throughput_tok_s" not in shown
        assert "no interval" in shown
        await pilot.press("m")
        await until(pilot, lambda: "tok/s per user" in screen_text(app))


async def test_two_presets_of_a_session_are_compared(tmp_path: Path) -> None:
    folder = write_session(tmp_path / "20260301T115845.000Z-one", without_evals(s.finished()))
    async with running(s.Scripted.of(s.finished()), (120, 60), folder=folder) as (app, pilot):
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "Compare b8t4-w2048 with which preset?" in screen_text(app)
        await pilot.press("1")
        await until(pilot, lambda: "+92" in screen_text(app), "the differences")
        assert "b8t4-w2048 against none" in screen_text(app)
        assert "conditions that differ" not in screen_text(app)
        assert "what the presets differ in" in screen_text(app)
        assert "A NONE, B DDTREE" in screen_text(app)
        assert "+92 ±6" in screen_text(app)
        await pilot.press("w")
        await until(pilot, lambda: "none against b8t4-w2048" in screen_text(app))


async def test_recommend_names_a_preset_and_why() -> None:
    async with running(s.Scripted.of(s.finished()), (120, 40)) as (app, pilot):
        await pilot.press("R")
        await until(pilot, lambda: "policy" in screen_text(app))
        shown = screen_text(app)
        assert "overall  b8t4-w2048" in shown
        assert "against none" in shown
        await pilot.press("b")
        await until(pilot, lambda: "for per-user" in screen_text(app))


async def test_recommend_gives_no_verdict_where_noise_or_a_single_vote_makes_it() -> None:
    events = [e for e in s.finished() if not (isinstance(e, s.ev.CellEnded) and e.cell.preset == "none")]
    only = s.key("b8t4-w2048", 60, 1)
    events = [e for e in events if not (isinstance(e, s.ev.CellEnded) and e.cell.context == 60 and e.cell != only)]
    begun = events[0]
    assert isinstance(begun, s.ev.SessionStarted)
    events[0] = msgspec.structs.replace(begun, reference="b8t4-w2048")
    same = [
        msgspec.structs.replace(e, figures=s.figures(e.cell.context, e.cell.concurrency))
        if isinstance(e, s.ev.CellEnded)
        else e
        for e in events
        if not isinstance(e, s.ev.LosslessEnded)
    ]
    async with running(s.Scripted.of(same), (120, 70)) as (app, pilot):
        await pilot.press("R")
        await until(pilot, lambda: "policy" in screen_text(app))
        shown = screen_text(app)
        assert "no preset is better within noise; first by figure: b" in shown
        assert "b8t4-w2048 (only one)" in shown
        assert "no other preset has a vote there" in shown
        own = next(row for row in shown.splitlines() if "13/16 points" in row and "b8t4-w2048" in row)
        assert "reference" in own
        assert "core-5: 4 of 5 passed, a smaller share than under another preset" in shown


async def test_recommend_before_anything_is_measured_says_so() -> None:
    async with running(s.Scripted.of([s.started()])) as (app, pilot):
        await pilot.press("R")
        await until(pilot, lambda: "overall" in screen_text(app))
        assert "none can be named" in screen_text(app)
