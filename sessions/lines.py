"""Tolerant reading of files of JSON lines: what every reader of a session's files stands on.

Torn, fused, edited, compressed, damaged or newer lines never stop a reader; each is said in `Notes`. A value that
may be wrong is left out rather than guessed: only harmless fields are dropped, never one inside a cell's figures.
"""

from __future__ import annotations

import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from sessions.errors import SessionError
from sessions.folder import printable

EVENT_BEGINS = re.compile(rb'\{"kind":"[A-Z]')
"""Where a line of `events.jsonl` begins, also in the middle of a damaged one."""
_MAYBE_BEGINS = b'{"kind":'
_NOT_TO_GUESS = re.compile("figures|cell|preset|proof|summary|sample")
"""Parts of an event that are never changed to make it readable: the event is left out instead."""
_MOST_REPAIRS = 20


def holds_another(line: bytes) -> bool:
    """Whether another event begins inside a line: two fused ones, or one after a part of another."""
    return line.find(_MAYBE_BEGINS, 1) > 0 and EVENT_BEGINS.search(line, 1) is not None


class Notes:
    """Counts faults of one file, so that a thousand of a kind make one sentence.

    Attributes:
        lines_skipped: lines that gave nothing.
        torn: the last line is incomplete; known once all lines were read.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._count: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        self._cut_off: int | None = None
        self.lines_skipped = 0
        self.torn = False

    def add(self, what: str, line: int, *, skipped: bool) -> None:
        """Notes a fault of a line (counted from 1); `skipped` when the line gave nothing."""
        self._count[what] += 1
        self._first.setdefault(what, line)
        self.lines_skipped += skipped

    def add_cut_off(self, line: int) -> None:
        """Notes a line that ends too early: a torn end if nothing follows it, damage otherwise."""
        self.no_end_yet()
        self._cut_off = line

    def no_end_yet(self) -> None:
        """Notes that another line follows."""
        if self._cut_off is not None:
            self.add("cut off", self._cut_off, skipped=True)
            self._cut_off = None

    def ended(self) -> None:
        """Notes that all lines were read."""
        self.torn = self._cut_off is not None

    def words(self) -> list[str]:
        """Returns one sentence for each kind of fault (a torn end is not among them)."""
        return [
            f"{self._name} line {self._first[what]}{f' and {n - 1} more' if n > 1 else ''}: {printable(what)}"
            for what, n in self._count.items()
        ]


def open_lines(path: Path, notes: Notes) -> BinaryIO | None:
    """Opens a file of lines, plain, compressed with gzip (also as `NAME.gz`), UTF-8 or UTF-16; `None` when absent.

    Raises:
        SessionError: the file cannot be read.
    """
    try:
        file = cast(BinaryIO, path.open("rb"))
    except FileNotFoundError:
        try:
            file = cast(BinaryIO, path.with_name(path.name + ".gz").open("rb"))
        except FileNotFoundError:
            return None
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {error.strerror}") from error
    head = file.read(2)
    file.seek(0)
    if head not in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"):
        return file
    with file:
        content = file.read()
    if head == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=31)
        try:
            content = unpacker.decompress(content)
        except zlib.error as error:
            raise SessionError(f"{path}: compressed with gzip and damaged ({error})") from error
        if not unpacker.eof:
            notes.add("the compressed file is cut off", 1, skipped=False)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        content = content.decode("utf-16", "replace").encode()
    return io.BytesIO(content)


def numbered_lines(path: Path, notes: Notes) -> Iterator[tuple[int, bytes]]:
    """Yields the non-blank lines of a file, numbered from 1, without byte order mark, line end and padding.

    Raises:
        SessionError: the file cannot be read at all.
    """
    file = open_lines(path, notes)
    if file is None:
        return
    with file:
        try:
            for number, raw in enumerate(file, 1):
                line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip(b" \t\r\n\0")
                if line:
                    notes.no_end_yet()
                    yield number, line
            notes.ended()
        except OSError as error:
            raise SessionError(f"{path}: cannot be read: {error.strerror or error}") from error


class Decoder(msgspec.Struct, frozen=True):
    """Decodes lines of one type (`AnyEvent`, `RequestRecord`, ...) with as much tolerance as is honest."""

    strict: msgspec.json.Decoder[Any]

    @classmethod
    def of(cls, kind: Any) -> Decoder:
        """Returns a decoder for a type or a union."""
        return cls(msgspec.json.Decoder(kind))

    def line(self, line: bytes, number: int, notes: Notes) -> Iterator[Any]:
        """Yields the values of a line: one, or none with a note, or several of a fused line."""
        try:
            yield self.strict.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield from self._salvage(line, number, notes)

    def _salvage(self, line: bytes, number: int, notes: Notes) -> Iterator[Any]:
        text = line.decode("utf-8", "replace")
        trees = list(_trees(text))
        if not trees:
            if later := EVENT_BEGINS.search(line, 1):
                notes.add("a part of a line fused onto another", number, skipped=False)
                yield from self.line(line[later.start() :], number, notes)
            elif line.startswith(b"{") and not line.endswith(b"}"):
                notes.add_cut_off(number)
            else:
                notes.add("not JSON", number, skipped=True)
            return
        if len(trees) > 1:
            notes.add("several records on one line", number, skipped=False)
        for tree in trees:
            value, fault, dropped = _converted(tree, self.strict.type)
            if value is None:
                notes.add(fault, number, skipped=True)
                continue
            for field in dropped:
                notes.add(f"field {field} not understood and left out", number, skipped=False)
            yield value


def _trees(text: str) -> Iterator[Any]:
    """Yields the JSON values at the beginning of a text, with NaN, Infinity and overflowing numbers as `None`."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)
    at = 0
    while at < len(text):
        try:
            tree, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield tree
        while at < len(text) and text[at].isspace():
            at += 1


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


_PATH = re.compile(r"at `\$(?P<path>[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _converted(tree: Any, kind: Any) -> tuple[Any, str, list[str]]:
    """Converts a JSON value, leaving out fields that do not fit; returns (value or `None`, fault, fields left out)."""
    if not isinstance(tree, dict):
        return None, "not an object", []
    dropped: list[str] = []
    for _ in range(_MOST_REPAIRS):
        try:
            return msgspec.convert(tree, kind), "", dropped
        except msgspec.ValidationError as error:
            found = _PATH.search(str(error))
            path = found["path"] if found else ""
            fault = f"not understood ({error})"
            if "Invalid value" in str(error) and path == ".kind":
                return None, f"of kind {tree.get('kind')!r}, which this version does not know", []
            if not path or _NOT_TO_GUESS.search(path) or not _left_out(tree, path):
                return None, fault, []
            dropped.append(path.lstrip("."))
    return None, "too many fields not understood", []


def _left_out(tree: Any, path: str) -> bool:
    """Deletes what a path of msgspec's errors points at (`.a[0].b`); returns whether that was possible."""
    steps = [name or index for name, index in _STEP.findall(path)]
    for step in steps[:-1]:
        if isinstance(tree, dict) and step in tree:
            tree = tree[step]
        elif isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return False
    last = steps[-1] if steps else ""
    if isinstance(tree, dict) and last in tree:
        del tree[last]
        return True
    return False


def iter_decoded(path: Path, decoder: Decoder, notes: Notes) -> Iterator[Any]:
    """Yields the values of a file's lines in order; faults go to `notes`; nothing when the file is not there."""
    for number, line in numbered_lines(path, notes):
        yield from decoder.line(line, number, notes)
