"""The two lines on top, the GPUs and the events, drawn without an application."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sessions import events as ev
from sessions.events import AnyEvent
from sessions.reduce import reduce_all
from tests.tui import scripted as s
from tui.draw import text_of
from tui.view import Facts, View
from tui.widgets.gpus import draw_gpus
from tui.widgets.head import draw_head
from tui.widgets.now import draw_now
from tui.widgets.tail import draw_events


def facts(events: list[AnyEvent], **view: object) -> Facts:
    state = reduce_all(events)
    return Facts(state=state, view=View(**view), now_t=state.t)  # type: ignore[arg-type]


def head(f: Facts, cells: int = 80) -> list[str]:
    return text_of(draw_head(f, cells, 2)).splitlines()


def ended(events: list[AnyEvent], status: str, words: str) -> list[AnyEvent]:
    t = events[-1].t + 1
    return [*events, ev.SessionEnded(t=t, at=s.at(t), status=status, words=words)]  # type: ignore[arg-type]


def test_an_end_is_green_only_where_all_was_measured() -> None:
    assert "✓ finished: 48 of 48 cells measured" in head(facts(s.finished()))[1]
    part = ended(s.not_in_effect(), "finished", "32 of 96 cells measured")
    assert "▲ finished: 32 of 96 cells measured; b8t4-w2048 NOT in effect" in head(facts(part))[1]
    none = [s.started(s.PRESETS[2:3]), *s.proof("b8t4-w2048", 400, ok=False)]
    shown = head(facts(ended(none, "finished", "0 of 16 cells measured")))[1]
    assert "✗ finished: nothing measured; no preset could be put in effect" in shown


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_an_early_end_names_the_command_that_goes_on(status: str) -> None:
    f = facts(ended(s.mid_sweep(), status, "x" * 200))
    assert "42 of 96 cells measured" in head(f)[1]
    assert head(f)[1].split()[-1] == "31:04"
    assert "spectop run --resume 20260301T115845-kimi-k26-rtx6000" in text_of(draw_events(f, 80, 4))


def test_a_finished_session_names_what_can_be_done_with_it() -> None:
    shown = text_of(draw_events(facts(s.finished()), 80, 4))
    assert "spectop report 20260301T115845-kimi-k26-rtx6000 -o" in shown
    assert "R recommends" in shown


def test_a_lost_engine_leaves_nothing_that_looks_live() -> None:
    f = facts(s.mid_sweep(), lost="the engine (process 4711) is gone")
    first, second = head(f)
    assert "○ in effect as last seen 12:" in first
    assert "go on: spectop run --resume 20260301T115845-kimi-k26-rtx6000" in second
    assert "as last seen 12:" in text_of(draw_gpus(f, 80, 9))
    last = text_of(draw_events(f, 80, 4)).splitlines()[-1]
    assert last.startswith(" 12:")
    assert last.endswith("✗ the engine (process 4711) is gone")


def test_a_switch_that_an_end_broke_off_is_not_shown_as_going_on() -> None:
    shown = head(facts(ended(s.switching(), "stopped", "by the operator")))[0]
    assert "being put" not in shown


def test_what_is_pending_stands_in_the_head() -> None:
    asked = ev.CommandReceived(t=1900, at=s.at(1900), command="pause", argument="")
    shown = head(facts([*s.mid_sweep(), asked]), 110)[1]
    assert "measuring 4096 × 32 · will pause after it (p takes it back)" in shown
    paused = ev.PhaseChanged(t=1901, at=s.at(1901), phase="paused", preset="b8t4-w2048")
    assert "PAUSED · p goes on" in head(facts([*s.mid_sweep(), asked, paused]))[1]


def test_settings_that_differ_are_not_counted_as_read_back() -> None:
    state = reduce_all(s.mid_sweep())
    assert "4 of 4 settings as asked" in head(Facts(state=state, now_t=state.t), 120)[0]


def test_a_switch_that_takes_longer_than_usual_says_so() -> None:
    state = reduce_all(s.switching())
    begun = state.presets["b8t4-w2048"].switching_since_t
    assert begun is not None
    assert "3:12 of about 6 min" in head(Facts(state=state, now_t=begun + 192), 100)[1]
    assert "7:00, longer than the usual 5:55" in head(Facts(state=state, now_t=begun + 420), 100)[1]


def test_simulated_gpus_away_with_their_server_are_not_lost() -> None:
    events = s.mid_sweep()
    sample = s.gpus(1900.0).sample
    gone = replace(sample, gpus=tuple(s.GpuReading(index=g.index, state="absent") for g in sample.gpus))
    f = facts([*events, ev.GpusSampled(t=1900.0, at=s.at(1900), sample=gone)])
    assert text_of(draw_gpus(f, 80, 9)) == " gpu  simulated GPUs: no reading while the server restarts"
    first = replace(gone, gpus=(), problem="simulated GPUs: connection refused")
    f = facts([*events, ev.GpusSampled(t=1900.0, at=s.at(1900), sample=first)])
    assert text_of(draw_gpus(f, 80, 9)) == " gpu  simulated GPUs: no reading while the server restarts"
    real = replace(gone, source="nvml")
    f = facts([*events, ev.GpusSampled(t=1900.0, at=s.at(1900), sample=real)])
    assert text_of(draw_gpus(f, 80, 9)).count("LOST") == 8


def test_an_error_is_told_whole_and_no_figure_is_cut() -> None:
    words = "b8t4-w2048 is not in effect: window: asked 2048, found draft_window_size=None, compact_cache=False"
    said = ev.Said(t=1900, at=s.at(1900), level="error", words=words)
    shown = text_of(draw_events(facts([*s.mid_sweep(), said]), 60, 6))
    assert " ".join(shown.split("✗ ")[1].split()) == words
    assert "0 fa" not in shown


def test_no_rate_stands_beside_the_graph_where_no_cell_runs() -> None:
    running = text_of(draw_now(facts(s.mid_sweep()), 40, 6)).splitlines()
    assert running[1].split()[-1] == "1683"
    paused = ev.PhaseChanged(t=1901, at=s.at(1901), phase="paused", preset="b8t4-w2048")
    rates = text_of(draw_now(facts([*s.mid_sweep(), paused]), 40, 6))
    assert "last measured minute" in rates
    assert not any(ch.isdigit() for row in rates.splitlines()[1:3] for ch in row)
