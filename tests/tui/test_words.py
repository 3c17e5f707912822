"""Formatting: what figures, durations and outside text look like."""

from __future__ import annotations

import pytest

from tui.glyphs import ASCII, UTF8, choose, locale_is_utf8
from tui.words import (
    about,
    clock,
    cut,
    duration,
    left,
    number,
    only_ascii,
    plain_text,
    right,
    width,
    with_interval,
    with_range,
    wrapped,
)


@pytest.mark.parametrize(
    ("value", "half", "words"),
    [
        (170.23, 1.12, "170.2 ±1.1"),
        (811.7, 9.4, "812 ±9"),
        (1702.2, 20.4, "1702 ±20"),
        (4.313, 0.021, "4.31 ±0.02"),
        (0.834, None, "0.83"),
        (170.23, None, "170.2"),
        (2010.4, 0.3, "2010 ±0"),
        (None, None, "-"),
        (float("nan"), None, "-"),
        (float("inf"), 1.0, "-"),
    ],
)
def test_a_figure_shows_no_more_digits_than_its_interval_leaves(
    value: float | None, half: float | None, words: str
) -> None:
    assert with_interval(value, half) == words


def test_an_absent_figure_is_a_dash_and_never_a_zero() -> None:
    assert number(None) == "-"
    assert number(0.0) == "0.00"
    assert with_interval(None, 3.0) == "-"


def test_a_difference_carries_its_sign() -> None:
    assert with_interval(6.1, 1.9, sign=True) == "+6.1 ±1.9"
    assert with_interval(-6.1, 1.9, sign=True) == "-6.1 ±1.9"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0.2 s"), (4.84, "4.8 s"), (187, "3:07"), (4329, "1:12:09"), (None, "-"), (-3, "0.0 s")],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_an_expected_duration_claims_no_precision() -> None:
    assert about(352) == "about 6 min"
    assert about(41.3) == "about 41 s"
    assert about(7300) == "about 2 h 02"
    assert about(None) == "for an unknown time"
    assert clock(59.9) == "0:59"


def test_escape_sequences_and_control_characters_do_not_reach_the_screen() -> None:
    assert plain_text("\x1b[31mred\x1b[0m \x1b]0;title\x07done") == "red done"
    assert plain_text("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert plain_text("one\ntwo\tthree\u2028four") == "one two three four"
    assert plain_text("zero\u200bwidth") == "zerowidth"


def test_brackets_backslashes_and_emoji_codes_stay_as_they_are() -> None:
    text = "[bold]x[/] \\[y] :smile: $primary {z}"
    assert plain_text(text) == text


def test_a_long_text_is_bounded_and_says_its_length() -> None:
    shown = plain_text("x" * 200_000, limit=100)
    assert len(shown) < 140
    assert shown.endswith("(200,000 characters)")


def test_stacked_combining_characters_are_bounded() -> None:
    assert len(plain_text("e" + "\u0301" * 500)) < 6


def test_text_is_cut_at_whole_characters_and_cells() -> None:
    name = "モデル名がとても長い"
    assert width(cut(name, 10)) <= 10
    assert cut(name, 10) == "モデル名…"
    assert cut(name, 1) == ""
    assert width(left(name, 10)) == 10
    assert width(right("é", 5)) == 5
    assert cut("abcdef", 4) == "abc…"
    assert cut("abc", 0) == ""


def test_without_utf8_every_character_is_ascii_and_keeps_its_width() -> None:
    for text in ("170 ±1", "模型/通义", "café", "▶ ✓ ✗ ●"):
        shown = only_ascii(text)
        assert shown.isascii()
        assert width(shown) == width(text)


def test_all_signs_of_the_ascii_set_are_ascii() -> None:
    for name, value in vars(ASCII).items():
        assert name == "braille" or "".join(value).isascii(), name


@pytest.mark.parametrize(
    ("env", "utf8"),
    [
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "en_US.ISO-8859-1"}, False),
        ({"LANG": "", "LC_ALL": "", "LC_CTYPE": ""}, False),
        ({}, False),
    ],
)
def test_the_locales_first_set_variable_decides(env: dict[str, str], utf8: bool) -> None:
    assert locale_is_utf8(env) is utf8
    assert choose(env) is (UTF8 if utf8 else ASCII)


def test_the_operator_can_choose_the_signs() -> None:
    assert choose({"SPECTOP_GLYPHS": "ascii", "LANG": "C.UTF-8"}) is ASCII
    assert choose({"SPECTOP_GLYPHS": "utf8"}) is UTF8
    assert not choose({"SPECTOP_GLYPHS": "blocks"}).braille


@pytest.mark.parametrize("cells", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("text", ["", "x" * 100, "a few words, and some more of them", "模型名がとても長い", "🚀 x"])
def test_wrapping_ends_loses_nothing_and_fits(text: str, cells: int) -> None:
    lines = wrapped(text, cells)
    assert lines
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width(row) <= max(cells, 2) for row in lines)


@pytest.mark.parametrize(
    ("figures", "shown"),
    [((6.1, 4.2, 8.0), "+6.1 ±1.9"), ((2.0, -12.1, 17.4), "+2 -12..+17"), ((-0.3, -1.5, 0.9), "-0.3 ±1.2")],
)
def test_an_uneven_interval_is_shown_by_its_bounds(figures: tuple[float, float, float], shown: str) -> None:
    assert with_range(*figures) == shown
