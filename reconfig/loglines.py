"""From the bytes of a server's log to lines: progress bars redraw one line, odd bytes and colours never get through.

Progress bars end an update with a carriage return and send a line feed only at their end, minutes later; a reader that
waits for line feeds sees nothing until then, and then one huge line.
"""

from __future__ import annotations

import codecs
import re

import msgspec

LONGEST_LINE = 4_000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAR = re.compile(r"\d{1,3}%.*\d+/\d+|\d{1,3}%\s*(Completed)?\s*\|")


class LogLine(msgspec.Struct, frozen=True):
    """One line of the server's log; `replaces` means that it redraws the line before it (a progress bar)."""

    text: str
    replaces: bool = False


class LineAssembler:
    """Turns reads of any size into lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._bar: str | None = None

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that a read completes, in order; lines longer than `LONGEST_LINE` characters are cut."""
        text = self._rest + self._decoder.decode(data)
        lines: list[LogLine] = []
        start = 0
        for match in re.finditer(r"\r\n|\r|\n", text):
            if match.group() == "\r" and match.end() == len(text):
                break
            lines.extend(self._line(text[start : match.start()], match.group() == "\r"))
            start = match.end()
        self._rest = text[start:]
        if len(self._rest) > 16 * LONGEST_LINE:
            self._rest = self._rest[: 16 * LONGEST_LINE]
        return lines

    def flush(self) -> list[LogLine]:
        """What is left at the end of the log, when its last line has no end; also shows a bar's newest state."""
        lines = self._line(self._rest.rstrip("\r"), self._rest.endswith("\r"))
        self._rest = ""
        return lines

    def _line(self, raw: str, redrawn: bool) -> list[LogLine]:
        text = plain(raw)
        if not text.strip():
            return []
        bar = redrawn or _BAR.search(text) is not None
        if not bar:
            self._bar = None
            return [LogLine(text)]
        stem = _stem(text)
        replaces = self._bar == stem
        self._bar = stem
        return [LogLine(text, replaces)]


def plain(text: str) -> str:
    """Text without escape sequences and control characters, of a bounded length."""
    clean = _CONTROLS.sub("", _ESCAPES.sub("", text)).rstrip()
    return clean if len(clean) <= LONGEST_LINE else f"{clean[:LONGEST_LINE]} … [{len(clean)} characters]"


def _stem(text: str) -> str:
    return re.split(r"\d{1,3}%", text, maxsplit=1)[0].rstrip() or text[:20]
