"""Lines, graphs and what of a line has changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.draw import Line, Span, changed, fit, line, line_width, merged, sides, text_of, title
from tui.glyphs import ASCII, BLOCKS, UTF8
from tui.graph import area, bar, by_time, heat, progress


def test_a_line_fits_exactly_whatever_it_holds() -> None:
    for text in ("", "abc", "x" * 50, "模型模型模型", "é\u0301"):
        for cells in (1, 2, 5, 20):
            assert line_width(fit(line(Span(text, "good")), cells)) == cells


def test_only_the_differing_stretch_of_a_line_is_repainted() -> None:
    before = fit(line("tok/s  ", Span("170.2", "heat1"), "  end"), 30)
    after = fit(line("tok/s  ", Span("171.2", "heat1"), "  end"), 30)
    assert changed(before, after) == (9, 10)
    assert changed(before, before) is None


_LINES = st.lists(
    st.builds(Span, st.text(alphabet="ab 模e\u0301█", max_size=4), st.sampled_from(["", "good", "bad"])), max_size=5
).map(tuple)


@given(_LINES, _LINES)
def test_the_stretch_holds_every_difference_and_begins_and_ends_with_one(before: Line, after: Line) -> None:
    cells = max(line_width(before), line_width(after))
    old, new = (cells_of(fit(of, cells)) for of in (before, after))
    differ = [i for i in range(cells) if old[i] != new[i]]
    found = changed(fit(before, cells), fit(after, cells))
    assert found == ((differ[0], differ[-1] + 1) if differ else None)


def cells_of(of: Line) -> list[tuple[str, str]]:
    """Every cell with its sign, and the marks that stand in it, told one by one."""
    out: list[tuple[str, str]] = []
    for text, role in of:
        for ch in text:
            if (cells := cell_len(ch)) == 0 and out:
                out[-1] = (out[-1][0] + ch, out[-1][1])
            out += [(ch, role)] * cells
    return out


def test_a_changed_role_is_a_change() -> None:
    assert changed(line(Span("abc", "good")), line(Span("abc", "bad"))) == (0, 3)


def test_wide_characters_count_as_the_cells_they_take() -> None:
    before, after = fit(line("模型 1"), 8), fit(line("模型 2"), 8)
    assert changed(before, after) == (5, 6)


def test_the_right_part_of_a_line_is_kept_whole() -> None:
    got = text_of([sides(line("a long left part"), line("RIGHT"), 12)])
    assert got == "a long…RIGHT"


def test_a_title_runs_to_the_end() -> None:
    assert text_of([title("now", 8)]) == "now ────"
    assert text_of([title("now", 8, ASCII)]) == "now ----"


def test_a_graph_has_its_size_and_its_highest_value_fills_a_column() -> None:
    rows = area([0.0, 1.0, 2.0, 4.0], 2, 2, UTF8)
    assert [len(r) for r in rows] == [2, 2]
    assert rows[1][1] == "\u28ff" or rows[1][1] > rows[1][0]
    assert area([1.0], 0, 3, UTF8) == []


def test_absent_values_leave_gaps_and_zero_is_drawn_as_nothing() -> None:
    assert area([None, None, None, None], 2, 1, UTF8) == ["  "]
    assert area([0.0, 0.0], 2, 1, BLOCKS) == ["  "]


@pytest.mark.parametrize("glyphs", [UTF8, BLOCKS, ASCII])
def test_bars_are_as_long_as_their_share(glyphs: object) -> None:
    assert bar(1.0, 4, glyphs) == glyphs.bar[-1] * 4  # type: ignore[arg-type, attr-defined]
    assert bar(0.0, 4, glyphs) == "    "  # type: ignore[arg-type]
    assert bar(None, 4, glyphs) == "    "  # type: ignore[arg-type]
    assert bar(7.0, 4, glyphs) == bar(1.0, 4, glyphs)  # type: ignore[arg-type]
    assert bar(0.5, -1, glyphs) == ""  # type: ignore[arg-type]


def test_progress_is_two_stretches_of_one_length() -> None:
    assert progress(0.5, 10, UTF8) == ("━━━━━", "─────")
    assert progress(1.7, 4, ASCII) == ("====", "")


def test_heat_tells_low_from_high_by_sign_and_level() -> None:
    assert heat(0.0, 0.0, 10.0, UTF8) == ("▁", 1)
    assert heat(10.0, 0.0, 10.0, UTF8) == ("█", 4)
    assert heat(5.0, 5.0, 5.0, ASCII) == (" ", 4)


def test_a_graph_over_time_moves_only_when_a_point_is_full() -> None:
    times = [float(i) for i in range(60)]
    values: list[float | None] = [float(i) for i in range(60)]
    (before,) = by_time(times, [values], 60.0, 10)
    assert before == [2.5, 8.5, 14.5, 20.5, 26.5, 32.5, 38.5, 44.5, 50.5, 56.5]
    assert by_time([*times, 59.5], [[*values, 59.5]], 60.0, 10)[0][:-1] == before[:-1]
    assert by_time([*times, 60.0], [[*values, 60.0]], 60.0, 10)[0][:-1] == before[1:]


def test_a_reading_holds_for_a_moment_and_no_longer() -> None:
    held, gaps = by_time([0.0, 9.0], [[1.0, 2.0], [None, 2.0]], 10.0, 10)
    assert held == [1.0, 1.0, 1.0, None, None, None, None, None, None, 2.0]
    assert gaps == [None] * 9 + [2.0]
    assert by_time([], [[]], 10.0, 3) == [[None, None, None]]


def test_what_is_older_than_the_window_is_left_out() -> None:
    assert by_time([0.0, 89.0, 90.0, 99.0], [[9.0, 9.0, 1.0, 3.0]], 10.0, 2) == [[1.0, 3.0]]


def test_neighbours_of_one_look_become_one_piece() -> None:
    parts = line(Span("▁", "heat1"), Span("  168", "heat1"), Span("   ", "warn"), Span("x", "cursor"), Span(" ", ""))
    assert merged(parts) == (Span("▁  168   ", "heat1"), Span("x", "cursor"), Span(" ", ""))
    assert text_of([merged(parts)]) == text_of([parts])
