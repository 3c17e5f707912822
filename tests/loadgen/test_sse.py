"""The decoder of event streams."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sse import Event, EventDecoder, EventTooLong
from tests.fuzz import fuzz
from tests.loadgen.streams import cuts, event_streams


def decode(*reads: bytes, end: bool = False) -> list[tuple[bytes, str]]:
    decoder = EventDecoder()
    events = [event for read in reads for event in decoder.feed(read)]
    return [(event.data, event.name) for event in events + (decoder.end() if end else [])]


@settings(max_examples=400, deadline=None)
@given(event_streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_and_any_line_ends_give_the_same_events(
    stream: tuple[bytes, list[tuple[bytes, str]]], places: list[int]
) -> None:
    data, events = stream
    assert decode(*cuts(data, places)) == events
    assert decode(*(data[i : i + 1] for i in range(len(data)))) == events


def test_only_one_space_is_taken_off() -> None:
    assert decode(b"data:  a\n\ndata:b\n\ndata: \n\ndata\n\n") == [(b" a", ""), (b"b", ""), (b"", ""), (b"", "")]


def test_comments_and_bare_blank_lines_make_no_event() -> None:
    assert decode(b":\n\n: ping\n\n\n\nid: 4\n\nevent: x\n\ndata: y\n\n") == [(b"y", "")]


def test_a_name_belongs_to_one_event() -> None:
    assert decode(b"event: a\ndata: 1\n\ndata: 2\n\n") == [(b"1", "a"), (b"2", "")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x00"])
def test_other_separators_are_no_line_ends(separator: str) -> None:
    text = f"a{separator}b"
    assert decode(f"data: {text}\n\n".encode()) == [(text.encode(), "")]


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    bom = b"\xef\xbb\xbf"
    assert decode(bom[:1], bom[1:2], bom[2:] + b"data: a\n\n") == [(b"a", "")]
    assert decode(b"data: a\n\n" + bom + b"data: b\n\n") == [(b"a", "")]
    assert decode(b"\xef", b"\xbb", b"data: a\n\ndata: b\n\n") == [(b"b", "")]


def test_a_clean_end_gives_the_unfinished_event() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n\nevent: u\ndata: b\ndata: c") == [Event(b"a")]
    assert decoder.end() == [Event(b"b\nc", "u", unfinished=True)]
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("rest", [b"", b"event: x", b": comment", b"\n", b"\r", b"\xef\xbb"])
def test_an_end_without_data_gives_nothing(rest: bytes) -> None:
    assert decode(b"data: a\r\r" + rest, end=True) == [(b"a", "")]


@pytest.mark.parametrize(
    "reads",
    [
        [b"data: " + b"x" * 50] * 30,
        [b"data: xxxxxxxxx\n"] * 200,
        [b"data: xxxxxxxxx\r\n"] * 200,
        [b"data\n"] * 2000,
        [b":" + b"x" * 50] * 30,
        [b"event: " + b"x" * 2000],
        [b"event: " + b"x" * 2000 + b"\n"],
        [b"event: " + b"x" * 600 + b"\n", b"data: " + b"x" * 600 + b"\n"],
        [b"data: " + b"x" * 2000 + b"\n\n"],
        [b"data: " + b"x" * 2000 + b"\r\n\r\n"],
    ],
)
def test_an_event_beyond_the_limit_is_refused(reads: list[bytes]) -> None:
    decoder = EventDecoder(max_event_bytes=1000)
    with pytest.raises(EventTooLong, match="1000 bytes"):
        for read in reads:
            decoder.feed(read)
            assert decoder.buffered_bytes <= 1000


def test_many_small_events_are_no_long_one() -> None:
    decoder = EventDecoder(max_event_bytes=100)
    assert len(decoder.feed(b"data: xxxxxxxx\n\n" * 1000)) == 1000
    assert len(decoder.feed(b"data: xxxxxxxx\r\n\r\n" * 1000)) == 1000
    assert decoder.buffered_bytes == 0


def test_a_long_event_in_many_reads_is_not_copied_again_and_again() -> None:
    """Memory stays near the event's own size, and what is copied at each read stays short."""
    event = b"data: " + b"Q" * 3_000_000 + b"\n\n"
    decoder = EventDecoder()
    reads = [event[i : i + 1000] for i in range(0, len(event), 1000)]
    tracemalloc.start()
    events = []
    for read in reads:
        events += decoder.feed(read)
        assert len(decoder._tail) <= 4096 + len(read)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(found.data) for found in events] == [3_000_000]
    assert peak < 5 * len(event)


def test_fast_and_line_by_line_reading_agree() -> None:
    """A CR anywhere puts the decoder on its other path; what is read before and after stays the same."""
    rng = random.Random(7)
    pieces = [b"data: a\n\n", b"data: b\r\n\r\n", b"event: n\rdata: c\r\r", b": x\n\n", b"data: d\ndata: e\n\n"]
    wanted = [[(b"a", "")], [(b"b", "")], [(b"c", "n")], [], [(b"d\ne", "")]]
    for _ in range(200):
        order = [rng.randrange(len(pieces)) for _ in range(8)]
        data = b"".join(pieces[i] for i in order)
        places = [rng.randrange(len(data)) for _ in range(rng.randrange(12))]
        assert decode(*cuts(data, places)) == [event for i in order for event in wanted[i]]


def test_fuzz_run_of_a_few_thousand_inputs() -> None:
    assert fuzz(5000, seed=1).inputs == 5000
