"""The matrix, drawn without an application."""

from __future__ import annotations

from msgspec.structs import replace

from sessions import events as ev
from sessions.reduce import reduce_all
from tests.tui import scripted as s
from tui.draw import text_of
from tui.glyphs import ASCII
from tui.metrics import METRICS
from tui.view import Facts, View
from tui.widgets.matrix import draw_matrix, grid


def facts(events: list[ev.AnyEvent], **view: object) -> Facts:
    state = reduce_all(events)
    return Facts(state=state, view=View(**view), now_t=state.t)  # type: ignore[arg-type]


def text(f: Facts, cells: int = 56, rows: int = 5) -> str:
    return text_of(draw_matrix(f, cells, rows))


def test_measured_waiting_and_running_cells_are_told_apart() -> None:
    lines = text(facts(s.mid_sweep())).splitlines()
    assert lines[0].split() == ["tok/s", "c=1", "c=8", "c=32", "c=64"]
    assert "167.6 ±1.8" in lines[1]
    assert "▶" in lines[3]
    assert "62%" in lines[3]
    assert lines[4].count("·") == 4


def test_a_mark_is_a_letter_beside_its_figure() -> None:
    lines = text(facts(s.mid_sweep())).splitlines()
    assert "±1.8F" in lines[1]
    assert "‡" in lines[2]
    wide = text(facts(s.mid_sweep()), 100, 9)
    assert "QF" in wide


def test_a_cell_without_effect_says_so_in_a_word() -> None:
    shown = text(facts(s.not_in_effect()), 80)
    assert shown.count("unproven") == 16
    assert "0.0" not in shown


def test_every_metric_has_its_name_and_absent_figures_are_dashes() -> None:
    f = facts(s.mid_sweep(), point=(60, 1))
    for i, metric in enumerate(METRICS):
        shown = text(f.looking(metric=i))
        assert metric.name in shown.splitlines()[0]
    state = reduce_all(s.mid_sweep())
    cells = {
        k: replace(c, figures=replace(c.figures, energy_j_per_tok=None)) if c.figures else c
        for k, c in state.cells.items()
    }
    energy = Facts(state=replace(state, cells=cells), view=View(metric=5))
    assert text(energy).splitlines()[1].split() == ["60", "-F", "-", "-", "-"]


def test_the_lower_of_two_waits_is_the_better_one() -> None:
    lines = text(facts(s.mid_sweep(), metric=2, point=(8192, 64))).splitlines()
    assert "█" in lines[1].split("±")[0]


def test_a_p99_that_is_a_maximum_is_signed() -> None:
    lines = text(facts(s.mid_sweep(), metric=3, point=(8192, 64))).splitlines()
    assert "^" in lines[1]
    assert lines[1].count("^") == 2


def test_against_the_reference_in_percent_with_the_interval_of_the_quotient() -> None:
    f = facts(s.mid_sweep(), metric=6, point=(8192, 64))
    row = text(f).splitlines()[1]
    assert "+92 ±7" in row or "+92.3" in row
    own = text(f.looking(preset="none")).splitlines()[1]
    assert "+0.00" in own


def test_repetitions_become_one_figure_with_their_interval() -> None:
    f = facts(s.mid_sweep(repeats=3), preset="none", point=(8192, 64))
    row = text(f).splitlines()[1]
    single = text(facts(s.mid_sweep(), preset="none", point=(8192, 64))).splitlines()[1]
    assert row != single
    assert "±" in row


def test_more_columns_than_room_follow_the_cursor() -> None:
    presets = s.PRESETS[:1]
    cells = tuple(s.key("none", 60, n) for n in (1, 2, 4, 8, 16, 32, 64, 128))
    f = facts([s.started(presets, cells=cells)], point=(60, 128))
    shown = text(f, 40)
    assert "c=128" in shown
    assert "c=1 " not in shown
    assert "←" in shown


def test_narrow_cells_leave_the_intervals_out_and_never_cut_a_figure() -> None:
    shown = text(facts(s.mid_sweep(), point=(8192, 64)), 40)
    assert "±" not in shown
    assert "167.6" in shown


def test_in_ascii_no_other_character_is_used() -> None:
    state = reduce_all(s.mid_sweep())
    shown = text(Facts(state=state, glyphs=ASCII, now_t=state.t))
    assert shown.isascii()
    assert "167.6+-1.8F" in shown
    assert "1 167.6" not in shown.replace("c=1 ", "")


def test_the_mouse_finds_the_cell_that_is_drawn_there() -> None:
    f = facts(s.mid_sweep())
    at = grid(f, 56, 5)
    lines = text(f).splitlines()
    x = lines[2].index("1286")
    assert at.at(x, 2) == (1024, 32)
    assert at.at(0, 2) is None
    assert at.at(x, 0) is None
    assert at.at(200, 2) is None


def test_a_title_says_whose_figures_they_are_and_the_mouse_still_finds_the_cells() -> None:
    f = facts(s.mid_sweep())
    lines = text(f, 56, 6).splitlines()
    assert lines[0].startswith(" tok/s · b8t4-w2048 ─")
    assert lines[1].split() == ["context", "c=1", "c=8", "c=32", "c=64"]
    at = grid(f, 56, 6)
    assert at.at(lines[3].index("1286"), 3) == (1024, 32)
    assert at.at(lines[3].index("1286"), 1) is None


def test_after_the_end_the_last_measured_preset_stays_the_shown_one() -> None:
    skipped = ev.PresetSkipped(t=3000, at=s.at(3000), preset="b8t4-w0", reason="asked by the operator")
    idle = ev.PhaseChanged(t=3000, at=s.at(3000), phase="idle")
    ended = ev.SessionEnded(t=3001, at=s.at(3001), status="stopped", words="stopped by the operator")
    assert facts([*s.mid_sweep(), skipped, idle, ended]).preset_name == "b8t4-w2048"


def test_a_running_cell_shows_no_rate_before_its_steady_part_and_a_mean_in_it() -> None:
    cell = s.key("b8t4-w2048", 4096, 32)
    begun = [e for e in s.mid_sweep() if not isinstance(e, ev.CellProgressed)]
    t = begun[-1].t + 100

    def at(second: float, phase: str, rate: float) -> ev.CellProgressed:
        event = s.progressed(cell, t + second, 0.4, rate)
        return replace(event, progress=replace(event.progress, phase=phase, acceptance_length=None))

    def row(*events: ev.CellProgressed) -> str:
        return text(facts([*begun, *events]), 100, 5).splitlines()[3]

    assert "- 40%" in row(at(0, "ramp", 0.8))
    steady = [at(1, "steady", 100.0), at(3, "steady", 180.0), at(7, "steady", 200.0)]
    assert "190.0 40%" in row(at(0, "ramp", 0.8), *steady)
    assert "190.0 40%" in row(*steady, at(8, "tail", 41.0))


def test_a_cell_that_a_lost_engine_left_is_not_shown_as_running() -> None:
    shown = text(facts(s.mid_sweep(), lost="gone"), 100, 6)
    assert "▶" not in shown
    assert "broken off" in shown
