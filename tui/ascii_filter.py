"""The last look at what goes to a terminal without UTF-8: whatever is not ASCII yet is replaced, widths kept.

Our own drawing asks `tui/glyphs.py`; this catches what Textual draws by itself (scroll bars, borders, toasts).
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from tui.words import only_ascii


class AsciiOnly(LineFilter):
    """Replaces every character outside ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the segments in ASCII."""
        return [
            segment
            if segment.control or segment.text.isascii()
            else Segment(only_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
