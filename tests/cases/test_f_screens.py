"""Field cases of the terminal: outside text, sizes, resizing, no colours, floods, huge messages, locales."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from textual.events import Resize
from textual.geometry import Size

from evals.verdicts import Extraction, Judgement, Verdict
from reconfig.presets import Preset
from sessions.events import AnswerJudged, CellEnded, PhaseChanged, Said, ServerLogged, ServerSampled
from sessions.reduce import reduce, reduce_all
from sessions.state import LOG_KEPT
from telemetry.samples import GpuReading, GpuSample, ServerSample
from tests.tui import scripted as s
from tests.tui.piloting import panel_text, running, screen_text, until
from tui.draw import text_of
from tui.glyphs import ASCII, UTF8, choose
from tui.screens.cell import Cell
from tui.screens.evals import Evals
from tui.view import Facts, View
from tui.widgets.gpus import draw_gpus
from tui.widgets.head import draw_head
from tui.widgets.matrix import draw_matrix
from tui.widgets.preset_page import preset_row
from tui.widgets.presets_line import draw_presets_line
from tui.widgets.scrolling import Page
from tui.widgets.tail import draw_events, draw_log
from tui.words import cut, plain_text, width

DATA = Path(__file__).parent / "data"


def load(case: str, name: str) -> list[str]:
    found: list[str] = json.loads((DATA / case / name).read_text(encoding="utf-8"))
    return found


def with_text(text: str) -> list[s.AnyEvent]:
    """A sweep in which one outside text stands in every place that takes one."""
    events = s.mid_sweep()
    t = events[-1].t + 1
    failed = s.key("b8t4-w2048", 8192, 1)
    extraction = Extraction(code=text, channel="content", origin=text, why=text)
    events += [
        ServerLogged(t=t, lines=(text,)),
        Said(t=t, level="error", words=text),
        ServerSampled(t=t, sample=ServerSample(t=t, source="sglang", problem=text)),
        CellEnded(t=t, cell=failed, run="x", outcome="failed", reason=text, failures=(("connect", text),)),
        AnswerJudged(
            t=t,
            judgement=Judgement(
                t=t,
                preset="b8t4-w2048",
                problem_set="core-5",
                task_id="gcd",
                verdict=Verdict.FAIL,
                extraction=extraction,
                detail=text,
                output=text,
            ),
        ),
        PhaseChanged(t=t, phase="idle", preset="b8t4-w2048", words=text),
        s.ev.GpusSampled(t=t, sample=GpuSample(t=t, source="nvml", gpus=(GpuReading(index=0, note=text),))),
    ]
    return events


async def test_f89_brackets_and_markup_stand_on_the_screen_as_they_were_written() -> None:
    texts = load("F89", "strings.json")
    assert len(texts) == json.loads((DATA / "F89" / "expected.json").read_text())["count"]
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (220, 60)) as (app, pilot):
        app.look(point=(8192, 1))
        for text in texts:
            wanted = text.rstrip()
            source.send(reduce_all(with_text(text)))
            await until(pilot, lambda wanted=wanted: wanted in panel_text(app, "head"), text)  # type: ignore[misc]
            for panel in ("events", "log", "gpus", "now"):
                assert wanted in panel_text(app, panel), panel
        await pilot.press("enter")
        for text in texts:
            source.send(reduce_all(with_text(text)))
            await until(pilot, lambda text=text: text.rstrip() in panel_text(app, "page"), text)  # type: ignore[misc]
        await pilot.press("escape", "E")
        await until(pilot, lambda: isinstance(app.screen, Evals) and bool(app.screen.listing.chosen))
        await pilot.press("end")
        for text in texts:
            source.send(reduce_all(with_text(text)))
            await until(pilot, lambda text=text: panel_text(app, "page").count(text.rstrip()) >= 3, text)  # type: ignore[misc]
        spans = [span for row in app.screen.query_one(Page).content for span in row]
        assert {span.role for span in spans} <= {"", "head", "muted", "bad", "good", "accent"}
        assert app.is_running


async def test_f89_a_notification_shows_the_text_and_runs_nothing() -> None:
    async with running(s.Scripted.of(s.mid_sweep()), (120, 40)) as (app, pilot):
        for text in load("F89", "strings.json"):
            app.clear_notifications()
            app.tell(text)
            first = text.split()[0]
            await until(pilot, lambda first=first: first in screen_text(app), text)  # type: ignore[misc]
        assert app.is_running


def test_f90_cells_are_counted_and_the_next_column_begins_in_the_same_place() -> None:
    expected = json.loads((DATA / "F90" / "expected.json").read_text(encoding="utf-8"))["cell_widths"]
    names = load("F90", "names.json")
    for name in names:
        assert width(plain_text(name)) == expected[name], name
        assert width(cut(plain_text(name), 10)) <= 10
    presets = tuple(Preset(name=name, algorithm="DDTREE") for name in names)
    facts = Facts(state=reduce_all([s.started(presets)]))
    rows = [preset_row(facts, i, p, 120) for i, p in enumerate(facts.state.presets.values(), 1)]
    for row in rows:
        assert [width(span.text) for span in row[:4]] == [width(span.text) for span in rows[0][:4]]


async def test_f90_odd_characters_neither_crash_nor_reach_the_terminal_raw() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (120, 40)) as (app, pilot):
        app.look(point=(8192, 1))
        for keys in ((), ("enter",)):
            await pilot.press(*keys)
            for text in load("F90", "odd.json"):
                state = reduce_all(with_text(text))
                source.send(state)
                await until(pilot, lambda state=state: app.facts.state == state)  # type: ignore[misc]
                await pilot.pause()
                shown = screen_text(app)
                assert not {"\u202e", "\x00", "\t"} & set(shown)
                assert len(shown.splitlines()) <= 40


async def test_f91_every_size_is_survived_and_the_full_screen_comes_back() -> None:
    sizes: list[list[int]] = json.loads((DATA / "F91" / "sizes.json").read_text())
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (120, 40)) as (app, pilot):
        full = screen_text(app)
        for keys in ((), ("enter",), ("P",)):
            await pilot.press(*keys)
            for columns, rows in sizes:
                await pilot.resize_terminal(columns, rows)
                assert app.is_running
                if not keys and (columns < 50 or rows < 12):
                    await until(pilot, lambda: bool(app.screen.query_one("#small").display))
            await pilot.press("escape")
        await pilot.resize_terminal(20, 5)
        await until(pilot, lambda: "terminal too small" in screen_text(app))
        assert source.commands == []
        source.send(reduce_all([s.progressed(s.key("b8t4-w2048", 4096, 32), 1900.0, 0.9, 1777.0)], app.facts.state))
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: "1777" in screen_text(app), "current data at the full size")
        assert screen_text(app).splitlines()[3][:66] == full.splitlines()[3][:66]
        await pilot.resize_terminal(10, 4)
        await pilot.press("q")
        await pilot.press("d")
        await until(pilot, lambda: not app.is_running)


async def test_f92_after_a_resize_storm_the_last_size_wins_and_keys_work() -> None:
    """Chunk times are taken in other processes: nothing a terminal does can shift them."""
    resizes = json.loads((DATA / "F92" / "resizes.json").read_text())
    expected = json.loads((DATA / "F92" / "expected.json").read_text())["final"]
    async with running(s.Scripted.of(s.mid_sweep()), (120, 40)) as (app, pilot):
        for resize in resizes:
            size = Size(resize["cols"], resize["rows"])
            app.post_message(Resize(size, size))
        await until(pilot, lambda: [app.size.width, app.size.height] == expected)
        await pilot.press("m")
        await until(pilot, lambda: "t/s user" in screen_text(app))
        assert len(screen_text(app).splitlines()) == expected[1]
        assert "1-9 preset" in screen_text(app)


@pytest.mark.parametrize("env", json.loads((DATA / "F93" / "envs.json").read_text()), ids=str)
def test_f93_states_are_told_by_signs_and_words_in_every_environment(env: dict[str, str]) -> None:
    glyphs = choose({"LANG": "C.UTF-8", **env})
    state = reduce_all(s.mid_sweep())
    facts = Facts(state=state, view=View(point=(8192, 64)), glyphs=glyphs, now_t=state.t)
    matrix = text_of(draw_matrix(facts, 80, 5))
    against = text_of(draw_matrix(facts.looking(metric=6), 80, 5))
    broken = reduce_all(s.not_in_effect())
    refused = text_of(draw_matrix(Facts(state=broken, glyphs=glyphs), 80, 5))
    assert glyphs.running in matrix
    assert glyphs.waiting in matrix
    assert "+92" in against
    assert refused.count(f"{glyphs.failed}") == 16
    assert "unproven" in refused
    assert "NOT in effect" in text_of(draw_head(Facts(state=broken, glyphs=glyphs), 80, 2))


def test_f93_without_a_terminal_there_are_no_escape_codes_and_a_clear_text() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spectop")), "--help"],
        env={**os.environ, "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"demo" in done.stdout


async def test_f95_a_flood_of_log_lines_is_bounded_counted_and_leaves_the_keys_alone() -> None:
    template = "[2026-11-03 10:00:00] line {:07d} Decode batch, #running-req: 1, accept len: 2.00"
    total, batch, kept = 1_000_000, 5_000, 100
    before = psutil.Process().memory_info().rss
    source = s.Scripted.of(s.mid_sweep())
    async with running(source, (160, 45)) as (app, pilot):
        state = app.facts.state
        for first in range(0, total, batch):
            last = first + batch
            lines = tuple(template.format(i) for i in range(last - kept, last))
            state = reduce(state, ServerLogged(t=state.t + 0.1, lines=lines, left_out=batch - kept))
            source.send(state)
            if first == total // 2:
                await pilot.press("m")
                assert app.facts.metric.name == "t/s user"
        await until(pilot, lambda: "line 0999999" in screen_text(app), "the last line")
        assert len(app.facts.state.log) <= LOG_KEPT
        app.look(zoomed="log", search="left out")
        await until(pilot, lambda: "4900 lines left out" in screen_text(app))
    grown = psutil.Process().memory_info().rss - before
    assert grown < 100 * 2**20


async def test_f96_a_message_of_200_kb_is_cut_with_its_length_and_the_rest_can_be_scrolled() -> None:
    error = (DATA / "F96" / "error.txt").read_text(encoding="utf-8")
    trace = (DATA / "F96" / "traceback.txt").read_text(encoding="utf-8")
    events = s.mid_sweep()
    t = events[-1].t + 1
    cell = s.key("b8t4-w2048", 8192, 1)
    events += [
        Said(t=t, level="error", words=error),
        ServerLogged(t=t, lines=(error, *trace.splitlines())),
        CellEnded(
            t=t,
            cell=cell,
            run="x",
            outcome="failed",
            reason=error,
            failures=(("http_4xx", error), ("stream_error", trace)),
        ),
    ]
    async with running(s.Scripted.of(events), (120, 60)) as (app, pilot):
        shown = screen_text(app)
        assert len(shown.splitlines()) <= 60
        assert all(width(row) <= 120 for row in shown.splitlines())
        assert "1-9 preset" in shown
        app.look(point=(8192, 1))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Cell) and "failures" in screen_text(app))
        page = panel_text(app, "page")
        assert f"({len(error):,} characters)" in page
        assert "ValueError: root cause here" in text_of(app.screen.query_one(Page).content)
        assert len(app.screen.query_one(Page).content) < 100
        app.tell(error, "error")
        await pilot.pause()
        assert app.is_running


@pytest.mark.parametrize("env", json.loads((DATA / "F97" / "envs.json").read_text()), ids=str)
def test_f97_the_screen_is_drawn_in_what_the_locale_can_show(env: dict[str, str]) -> None:
    glyphs = choose(env)
    assert glyphs is (UTF8 if env.get("LC_ALL", "").endswith("UTF-8") else ASCII)
    state = reduce_all(with_text("模型/通义 café ✓"))
    facts = Facts(state=state, glyphs=glyphs, now_t=state.t)
    for draw in (draw_head, draw_matrix, draw_events, draw_log, draw_gpus, draw_presets_line):
        drawn = text_of(draw(facts, 120, 9))
        drawn.encode("utf-8" if glyphs is UTF8 else "ascii")


def test_f97_a_log_that_is_not_utf8_keeps_its_lines() -> None:
    raw = (DATA / "F97" / "server.log").read_bytes()
    lines = tuple(raw.decode("utf-8", "replace").splitlines())
    state = reduce_all([s.started(), ServerLogged(t=1.0, lines=lines)])
    shown = text_of(draw_log(Facts(state=state), 80, 10)).splitlines()
    assert len(shown) == 4
    assert shown[2].strip().startswith("line 2 caf")
    assert shown[3].strip() == "line 3 模型"


def test_f97_copies_are_utf8_whatever_the_locale(tmp_path: Path) -> None:
    code = (
        "from datetime import datetime\n"
        "from tui.clipboard import write_capture\n"
        "print(write_capture('model \\u6a21\\u578b', 'txt', now=datetime(2026, 1, 1)))\n"
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env["SPECTOP_CAPTURES_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60, check=True)
    assert Path(done.stdout.decode().strip()).read_text(encoding="utf-8") == "model 模型"
