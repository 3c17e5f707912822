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
_ENDS = re.compile(r"\r\n|\r|\n")
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
        self._after_return = False
        self._bar = ""
        self._bar_text = ""

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that a read completes, in order, and the newest state of a progress bar that has no end yet.

        Lines longer than `LONGEST_LINE` characters are cut.
        """
        text = self._decoder.decode(data)
        if self._after_return and text:
            text = text.removeprefix("\n")
            self._after_return = False
        self._after_return = text.endswith("\r") or (self._after_return and not text)
        *ended, rest = _ENDS.split(self._rest + text)
        self._rest = rest[: 16 * LONGEST_LINE]
        lines = [line for raw in ended for line in self._line(raw)]
        if _BAR.search(self._rest):
            lines.extend(self._line(self._rest))
        return lines

    def flush(self) -> list[LogLine]:
        """What is left at the end of the log, when its last line has no end."""
        raw, self._rest = self._rest, ""
        return self._line(raw)

    def _line(self, raw: str) -> list[LogLine]:
        text = plain(raw)
        if not text.strip():
            return []
        if not _BAR.search(text):
            self._bar = self._bar_text = ""
            return [LogLine(text)]
        if text == self._bar_text:
            return []
        name = text.split("%", 1)[0].rstrip("0123456789 ") or "%"
        replaces = self._bar == name
        self._bar, self._bar_text = name, text
        return [LogLine(text, replaces)]


def plain(text: str) -> str:
    """Text without escape sequences and control characters, of a bounded length."""
    clean = _CONTROLS.sub("", _ESCAPES.sub("", text)).rstrip()
    return clean if len(clean) <= LONGEST_LINE else f"{clean[:LONGEST_LINE]} … [{len(clean)} characters]"
