"""Every key of the live screen, with a scripted source."""

from __future__ import annotations

import pytest

from sessions.commands import Command, Reply
from sessions.reduce import reduce_all
from tests.tui import scripted as s
from tests.tui.piloting import panel_text, running, screen_text, until
from tui.metrics import METRICS
from tui.screens.ask import Ask, AskLine
from tui.screens.cell import Cell
from tui.screens.evals import Evals
from tui.screens.help import Help
from tui.screens.live import Live
from tui.screens.presets import Presets
from tui.screens.recommend import Recommend
from tui.screens.sessions import Sessions
from tui.spectop import SpectopApp


async def test_the_first_two_lines_say_whether_it_is_safe_and_what_happens() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, _):
        head = panel_text(app, "head").splitlines()
        assert "b8t4-w2048" in head[0]
        assert "in effect" in head[0]
        assert "SIMULATED" in head[0]
        assert "measuring 4096 × 32" in head[1]
        assert "cell 43/96" in head[1]


async def test_m_and_M_go_through_all_figures_and_back() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        seen = []
        for _ in METRICS:
            seen.append(panel_text(app, "matrix").splitlines()[0].split(" · ")[0].strip())
            await pilot.press("m")
        assert seen == [m.name for m in METRICS]
        await pilot.press("M")
        assert METRICS[-1].name in panel_text(app, "matrix")


async def test_a_number_asks_first_says_what_it_costs_and_y_switches() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("4")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        shown = screen_text(app)
        assert "Switch the server to b16t4-w2048?" in shown
        assert "Restarts the server, about 6 min." in shown
        assert source.commands == []
        await pilot.press("y")
        await until(pilot, lambda: bool(source.commands), "the command")
        assert source.commands == [Command(name="apply", argument="b16t4-w2048")]
        await until(pilot, lambda: "apply will be done" in screen_text(app), "the engine's words")


@pytest.mark.parametrize("key", ["n", "escape"])
async def test_backing_out_of_a_question_sends_nothing(key: str) -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("2")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, Live))
        assert source.commands == []


async def test_a_number_without_a_preset_says_so() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "there is no preset 9" in screen_text(app))
        assert source.commands == []


async def test_p_pauses_and_goes_on() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: len(source.commands) == 1)
        state = reduce_all([s.ev.PhaseChanged(t=2000, phase="paused", preset="b8t4-w2048")], app.facts.state)
        source.send(state)
        await until(pilot, lambda: "PAUSED" in screen_text(app))
        await pilot.press("p")
        await until(pilot, lambda: len(source.commands) == 2)
        assert [c.name for c in source.commands] == ["pause", "resume"]


async def test_s_skips_the_running_cell_after_asking() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "4096x32" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: bool(source.commands))
        assert source.commands[0].argument == "b8t4-w2048/4096x32/t0/r1"


async def test_r_measures_the_focused_cell_again_after_asking() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("up", "left", "r")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("y")
        await until(pilot, lambda: bool(source.commands))
        assert source.commands == [Command(name="repeat", argument="b8t4-w2048/1024x8/t0/r1")]


async def test_x_offers_two_ways_to_stop() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        for key, name in (("a", "stop-after-cell"), ("y", "stop")):
            await pilot.press("x")
            await until(pilot, lambda: isinstance(app.screen, Ask))
            await pilot.press(key)
            await until(pilot, lambda name=name: name in [c.name for c in source.commands])  # type: ignore[misc]
        assert app.is_running


async def test_q_asks_and_detaching_leaves_the_sweep_alone() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "the sweep goes on" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, Live))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("d")
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "detached"
    assert source.commands == []
    assert source.closed


async def test_q_can_stop_the_sweep_and_stays() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("s")
        await until(pilot, lambda: [c.name for c in source.commands] == ["stop"])
        assert app.is_running


async def test_d_detaches_at_once() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("d")
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "detached"
    assert source.commands == []


@pytest.mark.parametrize("key", ["q", "ctrl+c", "d"])
async def test_an_ended_session_is_left_without_a_question(key: str) -> None:
    async with running(s.Scripted.of(s.finished())) as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "left"


async def test_arrows_move_over_the_matrix_and_f_follows_the_running_cell_again() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        assert app.facts.point == (4096, 32)
        await pilot.press("up", "right", "right")
        assert app.facts.point == (1024, 64)
        await pilot.press("down", "left")
        assert app.facts.point == (4096, 32)
        await pilot.press("up", "f")
        assert app.facts.view.point is None
        assert app.facts.point == (4096, 32)


async def test_brackets_look_at_other_presets_and_switch_nothing() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("left_square_bracket")
        assert app.facts.preset_name == "b4t4-w2048"
        assert "8192" in panel_text(app, "matrix")
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert app.facts.preset_name == "b16t4-w2048"
        await pilot.press("escape")
        assert app.facts.preset_name == "b8t4-w2048"
        assert source.commands == []


async def test_l_changes_between_events_and_log_and_v_the_level() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        assert "events" in screen_text(app)
        await pilot.press("l")
        await pilot.pause()
        assert "Decode batch" in screen_text(app)
        await pilot.press("l", "v")
        await pilot.pause()
        assert "warning and worse" in screen_text(app)
        await pilot.press("v", "v")
        await pilot.pause()
        assert "and worse" not in screen_text(app)


async def test_slash_searches_the_words_and_escape_ends_it() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press(*"queued", "enter")
        await until(pilot, lambda: "/queued" in screen_text(app))
        await until(pilot, lambda: isinstance(app.screen, Live) and "1024 x 64" in panel_text(app, "events"))
        assert panel_text(app, "events").count("1024 x 64") == 3
        assert "60 x 1:" not in panel_text(app, "events")
        await pilot.press("escape")
        await pilot.pause()
        assert "/queued" not in screen_text(app)


async def test_n_writes_a_note_into_the_log() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        await pilot.press(*"fan q 1", "enter")
        await until(pilot, lambda: bool(source.commands))
        assert source.commands == [Command(name="note", argument="fan q 1")]


@pytest.mark.parametrize(
    ("key", "name"), [("g", "gpus"), ("e", "events"), ("l", "log"), ("a", "strip"), ("h", "histogram"), ("m", "matrix")]
)
async def test_z_maximises_a_panel_and_gives_the_others_back(key: str, name: str) -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        await pilot.press("z")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press(key)
        await until(pilot, lambda: app.facts.view.zoomed == name)
        await pilot.pause()
        panel = app.screen.query_one(f"#{name}")
        assert (panel.size.width, panel.size.height) == (80, 21)
        await pilot.press("z")
        await pilot.pause()
        assert app.facts.view.zoomed is None
        assert app.screen.query_one("#matrix").display


@pytest.mark.parametrize(
    ("key", "screen"),
    [
        ("enter", Cell),
        ("P", Presets),
        ("E", Evals),
        ("S", Sessions),
        ("R", Recommend),
        ("question_mark", Help),
    ],
)
async def test_keys_open_screens_and_escape_comes_back(
    key: str, screen: type, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTOP_SESSIONS_DIR", str(tmp_path))
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, screen))
        await pilot.pause()
        assert "b8t4-w2048" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Live))


async def test_a_refusal_of_the_engine_is_told_in_its_words() -> None:
    source = s.Scripted.of(s.mid_sweep())
    source.replies.append(Reply(False, "the cell is in its last seconds"))
    async with running(source) as (app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "the cell is in its last seconds" in screen_text(app))


async def test_a_lost_engine_is_a_state_with_words_and_the_next_step() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (120, 40)) as (app, pilot):
        source.lose("the engine (process 4711) is gone")
        await until(pilot, lambda: "ENGINE LOST" in screen_text(app))
        shown = screen_text(app)
        assert "process 4711" in panel_text(app, "events")
        assert "--resume" in shown
        assert "167.6 ±1.8" in shown
        await pilot.press("p")
        await until(pilot, lambda: "the engine is gone" in screen_text(app))
        assert source.commands == []
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


async def test_a_saved_session_says_so_and_takes_no_commands() -> None:
    source = s.Scripted.of(s.finished(), live=False)
    async with running(source) as (app, pilot):
        assert "SAVED" in screen_text(app)
        await pilot.press("p")
        await until(pilot, lambda: "saved session" in screen_text(app))
        await pilot.press("2")
        await until(pilot, lambda: "nothing to command" in screen_text(app))
        assert source.commands == []


async def test_read_only_screens_take_no_commands() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, read_only=True) as (app, pilot):
        await pilot.press("2")
        await until(pilot, lambda: "read-only" in screen_text(app))
        await pilot.press("p")
        await pilot.pause()
        assert source.commands == []


async def test_a_click_on_a_cell_moves_the_cursor_and_a_second_opens_it() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        x = panel_text(app, "matrix").splitlines()[2].index("1341")
        await pilot.click("#matrix", offset=(x, 2))
        await until(pilot, lambda: app.facts.view.point == (60, 32))
        await pilot.click("#matrix", offset=(x, 2))
        await until(pilot, lambda: isinstance(app.screen, Cell))


async def test_t_shows_the_next_temperature() -> None:
    cells = tuple(
        s.CellKey(preset="none", context=60, concurrency=n, temperature=t) for t in (0.0, 0.8) for n in (1, 8)
    )
    source = s.Scripted.of([s.started(s.PRESETS[:1], cells=cells)])
    async with running(source) as (app, pilot):
        assert app.facts.temperature == 0.0
        await pilot.press("t")
        assert app.facts.temperature == 0.8
        await pilot.press("t")
        assert app.facts.temperature == 0.0


async def test_the_palette_offers_what_is_valid_now_and_nothing_else() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        titles = {c.title for c in app.get_system_commands(app.screen)}
        assert {"Pause", "Apply b16t4-w2048", "Stop the sweep", "Detach"} <= titles
        assert "Apply b8t4-w2048" not in titles
        source.send(reduce_all(s.finished()))
        await until(pilot, lambda: app.facts.state.status == "finished")
        titles = {c.title for c in app.get_system_commands(app.screen)}
        assert titles.isdisjoint({"Pause", "Apply none", "Stop the sweep", "Detach"})
        assert "Recommend" in titles
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "which preset" in screen_text(app) or "verdicts, answers" in screen_text(app))


async def test_dangerous_commands_of_the_palette_ask_too() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        command = next(c for c in app.get_system_commands(app.screen) if c.title == "Apply none")
        command.callback()
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert source.commands == []


def keys_of(app: SpectopApp) -> str:
    return panel_text(app, "keys")


async def test_the_key_line_offers_only_what_does_something_now() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (160, 45)) as (app, pilot):
        assert {"1-9 preset", "p pause", "x stop", "d detach"} <= {k.strip() for k in keys_of(app).split("  ")}
        source.lose("the engine (process 4711) is gone")
        await until(pilot, lambda: "ENGINE LOST" in screen_text(app))
        for gone in ("preset ", "pause", "skip", "note", "stop", "detach"):
            assert gone not in keys_of(app)
        assert "l log" in keys_of(app)


async def test_a_pause_that_is_still_to_come_is_taken_back_by_p() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (120, 40)) as (app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: len(source.commands) == 1)
        asked = s.ev.CommandReceived(t=2000, at=s.at(2000), command="pause", argument="")
        source.send(reduce_all([asked], app.facts.state))
        await until(pilot, lambda: "will pause after it (p takes it back)" in screen_text(app))
        await pilot.press("p")
        await until(pilot, lambda: len(source.commands) == 2)
        assert [c.name for c in source.commands] == ["pause", "resume"]


async def test_a_note_is_refused_before_it_is_typed() -> None:
    async with running(s.Scripted.of(s.finished(), live=False)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: "nothing to command" in screen_text(app))
        assert isinstance(app.screen, Live)


async def test_only_the_newest_notice_is_shown_in_two_lines_at_most() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        app.tell("the first of them")
        app.tell("long " * 200, "error")
        await until(pilot, lambda: "long long" in screen_text(app))
        await until(pilot, lambda: "the first of them" not in screen_text(app))
        assert sum("long long" in row for row in screen_text(app).splitlines()) <= 2
        assert len(app._notifications) == 1


async def test_a_question_wraps_its_words_at_80_columns() -> None:
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        words = "b8t4-w2048/4096x32/t0/r1 is measured again; its figures are kept until then, and no longer."
        app.push_screen(Ask("Sure?", [words], [("y", "yes"), ("n", "no")], app.facts.glyphs))
        await until(pilot, lambda: "no longer." in screen_text(app))
        shown = screen_text(app)
        assert "figures are" in shown
        assert " n   no" in shown
