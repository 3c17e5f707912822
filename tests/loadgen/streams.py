"""Random event streams with the events they hold: what the property test and the fuzz run are made of."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), max_size=12)
NAME = TEXT.filter(lambda text: text and not text.startswith(" "))


@st.composite
def event_streams(draw: Any) -> tuple[bytes, list[tuple[bytes, str]]]:
    """A valid stream and its events, as (data, name)."""
    events: list[tuple[bytes, str]] = []
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.one_of(st.just(""), NAME))
        data = draw(st.lists(TEXT, max_size=3))
        block = [_field("event", name, draw)] if name else []
        for value in data:
            block.append(_field("data", value, draw))
            block.extend(draw(st.lists(_ignored(), max_size=1)))
        lines += [*block, ""]
        if data:
            events.append(("\n".join(data).encode(), name))
    bom = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    return bom + _joined(lines, draw), events


def _field(name: str, value: str, draw: Any) -> str:
    # A space after the colon is taken off once, so a value that starts with one needs another before it.
    return f"{name}:{' ' if value.startswith(' ') or draw(st.booleans()) else ''}{value}"


def _ignored() -> st.SearchStrategy[str]:
    return st.one_of(
        TEXT.map(lambda text: ":" + text),
        st.just("retry: 10"),
        TEXT.map(lambda text: "id: " + text),
        st.sampled_from(["id", "event", "datax: 1", " data: 1"]),
    ).filter(lambda line: line != "event")


def _joined(lines: list[str], draw: Any) -> bytes:
    joined = b""
    for line in lines:
        if joined.endswith(b"\r") and not line:
            # A lone CR followed by an empty line's LF would be one line end, not two.
            joined += draw(st.sampled_from([b"\r", b"\r\n"]))
        else:
            joined += line.encode() + draw(st.sampled_from([b"\n", b"\r", b"\r\n"]))
    return joined


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    """Cuts bytes at places; every place is taken modulo the length."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]
