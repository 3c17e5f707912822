"""Incremental decoder of server-sent events on bytes: which events are complete after this read?

Follows the event stream format of the HTML standard (line ends CR, LF, CRLF; one optional byte order mark; comments;
data lines joined by LF), with one difference: `end()` also gives the event that a cleanly ended stream left unfinished,
flagged as such, since proxies trim the last blank line and that event is often the usage.

Never decodes text: a character cut between two reads is no business of this layer.
"""

from __future__ import annotations

import msgspec

BOM = b"\xef\xbb\xbf"
LF, CR, SPACE, COLON = 10, 13, 32, 58

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Default limit of one event's size in bytes."""

_FAST_TAIL_BYTES = 4096


class EventTooLong(ValueError):
    """Raised by `EventDecoder.feed` when one event exceeds the limit; the decoder can't be used afterwards.

    Attributes:
        limit: the limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event of the stream is longer than {limit} bytes")
        self.limit = limit


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream.

    Attributes:
        data: its data lines, joined by LF; may be empty.
        name: its type; empty for an unnamed event.
        unfinished: the stream ended before the event's blank line.
    """

    data: bytes
    name: str = ""
    unfinished: bool = False


class EventDecoder:
    """Turns reads of a stream, cut anywhere, into events.

    Memory is bounded by `max_event_bytes` (plus the size of one read); work is linear in the bytes fed, however they
    are cut.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._start: bytes | None = b""  # what came before it was clear whether there is a byte order mark
        self._tail = b""  # fast path: whole lines and a part of one, short, without any CR
        self._line = bytearray()  # by lines: the unfinished line
        self._data: bytearray | None = None
        self._name = ""
        self._after_cr = False
        self._by_lines = False
        self._idle = False  # nothing is kept: the next read begins an event

    def feed(self, data: bytes) -> list[Event]:
        """Takes the next read.

        Args:
            data: bytes as they came, of any length.

        Returns:
            The events that this read completed, in order.

        Raises:
            EventTooLong: an event exceeds the limit.
        """
        if self._idle and data[:6] == b"data: " and data[-2:] == b"\n\n" and len(data) <= self._limit:
            value = data[6:-2]
            if LF not in value and CR not in value:
                return [Event(value)]  # the whole read is one ordinary event: what nearly every read is
        events = self._feed(data)
        self._idle = self._start is None and not self._by_lines and not self._tail
        return events

    def _feed(self, data: bytes) -> list[Event]:
        if self._start is not None:
            data = self._start + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return []
            self._start = None
            data = data.removeprefix(BOM)
        if self._by_lines or CR in data or len(self._tail) > _FAST_TAIL_BYTES:
            return self._feed_lines(data)
        # Common case: blocks ended by two LF, mostly one "data: ..." line each.
        blocks = (self._tail + data if self._tail else data).split(b"\n\n")
        self._tail = blocks.pop()
        if len(self._tail) > self._limit:
            raise EventTooLong(self._limit)
        events: list[Event] = []
        for block in blocks:
            if block.startswith(b"data: ") and LF not in block:
                if len(block) > self._limit:
                    raise EventTooLong(self._limit)
                events.append(Event(block[6:]))
            else:
                for line in block.split(b"\n"):
                    self._take_line(line, events)
                self._dispatch(events)
        return events

    def end(self) -> list[Event]:
        """Says that the stream ended cleanly.

        Returns:
            The unfinished last event, if its data had begun to come; it may be cut in the middle.
        """
        events: list[Event] = []
        if self._start:
            self._line += self._start
            self._start = None
        self._to_lines(events)
        if self._line:
            self._take_line(bytes(self._line), events)
            self._line.clear()
        if self._data is not None:
            events.append(Event(bytes(self._data), self._name, unfinished=True))
            self._data = None
        self._name = ""
        return events

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept of an event that is not complete yet."""
        return len(self._start or b"") + len(self._tail) + len(self._line) + len(self._data or b"") + len(self._name)

    def _to_lines(self, events: list[Event]) -> None:
        """Moves what the fast path kept into the state of the line by line path."""
        self._by_lines = True
        tail, self._tail = self._tail, b""
        if tail:
            lines = tail.split(b"\n")
            self._line += lines.pop()
            for line in lines:
                self._take_line(line, events)

    def _feed_lines(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if not self._by_lines:
            self._to_lines(events)
        if self._after_cr and data:
            if data[0] == LF:
                data = data[1:]
            self._after_cr = False
        if CR in data:
            self._after_cr = data[-1] == CR
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        last = lines.pop()
        for line in lines:
            if self._line:
                self._line += line
                self._check()
                self._take_line(bytes(self._line), events)
                self._line.clear()
            else:
                self._take_line(line, events)
        self._line += last
        self._check()
        if not self._line and self._data is None and not self._name and not self._after_cr:
            self._by_lines = False
        return events

    def _check(self) -> None:
        if len(self._line) + len(self._data or b"") + len(self._name) > self._limit:
            raise EventTooLong(self._limit)

    def _take_line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            self._dispatch(events)
            return
        if line[0] == COLON:
            return
        field, _, value = line.partition(b":")
        if value and value[0] == SPACE:
            value = value[1:]
        if field == b"data":
            if self._data is None:
                self._data = bytearray(value)
            else:
                self._data += b"\n"
                self._data += value
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        if len(self._data or b"") + len(self._name) > self._limit:
            raise EventTooLong(self._limit)

    def _dispatch(self, events: list[Event]) -> None:
        if self._data is not None:
            events.append(Event(bytes(self._data), self._name))
            self._data = None
        self._name = ""
