"""Figures of one request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.request_figures import chunk_tokens, decode_tok_s, measured, token_gaps_s, tokens_inside, tpot_s
from tests.loadgen.records import failed, ok


def test_speed_counts_the_tokens_after_the_first_chunk() -> None:
    record = ok(0.0, (1.0, 3), (3.0, 4), (5.0, 4))
    assert decode_tok_s(record) == pytest.approx(8 / 4)
    assert tpot_s(record) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "record",
    [
        ok(0.0, (1.0, 5)),
        ok(0.0, (1.0, 1), (2.0, None), n_out=1),
        ok(0.0, (1.0, None), (2.0, None), n_out=None),
        ok(0.0, n_out=0),
        failed(0.0, 3.0, ttft=1.0, e2e=2.0, n_out=50),
    ],
)
def test_speed_is_absent_rather_than_zero(record: object) -> None:
    assert decode_tok_s(record) is None  # type: ignore[arg-type]
    assert tpot_s(record) is None  # type: ignore[arg-type]


def test_first_chunk_counts_one_where_unknown() -> None:
    assert decode_tok_s(ok(0.0, (1.0, None), (2.0, None), n_out=11)) == pytest.approx(10.0)


def test_measured_needs_a_count() -> None:
    assert measured(ok(0.0, (1.0, 1)))
    assert not measured(ok(0.0, (1.0, None), n_out=None))
    assert not measured(failed(0.0, 1.0, n_out=5))


def test_text_without_a_new_token_belongs_to_the_next_that_brought_one() -> None:
    assert token_gaps_s(ok(0.0, (1.0, 1), (2.0, 0), (4.0, 3))) == [(pytest.approx(1.0), 3)]
    assert token_gaps_s(ok(0.0, (1.0, 1), (2.0, None), (4.0, 3), n_out=9)) == []


@pytest.mark.parametrize(
    ("chunks", "n_out", "tokens"),
    [
        (((1.0, 1), (2.0, 4)), 5, [1, 4]),
        (((1.0, None), (2.0, None)), 5, [2.5, 2.5]),
        (((1.0, 1), (2.0, None), (3.0, None)), 9, [1, 4, 4]),
        (((1.0, 1), (2.0, 4)), 6, [1, 5]),
        (((1.0, 1), (2.0, 9)), 5, [2.5, 2.5]),
        (((1.0, 1), (2.0, 9)), None, None),
        ((), 5, []),
    ],
)
def test_tokens_of_chunks(chunks: tuple[tuple[float, int | None], ...], n_out: int | None, tokens: object) -> None:
    assert chunk_tokens(ok(0.0, *chunks, n_out=n_out)) == tokens


def test_a_window_is_open_at_its_start_and_closed_at_its_end() -> None:
    record = ok(10.0, (1.0, 1), (2.0, 2), (3.0, 4))
    assert tokens_inside(record, (11.0, 13.0)) == 6
    assert tokens_inside(record, (10.0, 12.0)) == 3
    assert tokens_inside(record, (13.0, 20.0)) == 0


def test_unknown_counts_matter_only_inside_the_window() -> None:
    record = ok(10.0, (1.0, None), (2.0, None), n_out=None)
    assert tokens_inside(record, (11.5, 13.0)) is None
    assert tokens_inside(record, (12.5, 13.0)) == 0
    assert tokens_inside(record, (0.0, 10.5)) == 0


def test_without_chunk_times_tokens_are_spread_between_first_and_last() -> None:
    record = ok(10.0, n_out=11, ttft=1.0, e2e=11.0, n_first=1)
    assert tokens_inside(record, (10.0, 30.0)) == pytest.approx(11)
    assert tokens_inside(record, (11.0, 16.0)) == pytest.approx(5)


@given(
    st.lists(st.tuples(st.floats(0.0, 5.0), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=9),
    st.integers(0, 60),
    st.floats(0.0, 6.0),
)
def test_windows_that_meet_share_the_tokens(chunks: list[tuple[float, int | None]], n_out: int, cut: float) -> None:
    record = ok(0.0, *sorted(chunks, key=lambda c: c[0]), n_out=n_out)
    before, after = tokens_inside(record, (-1.0, cut)), tokens_inside(record, (cut, 9.0))
    assert before is not None
    assert after is not None
    assert before + after == pytest.approx(n_out)
