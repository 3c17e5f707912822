"""Ways in which files of lines get damaged, applied to files that the product wrote."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

BOM = b"\xef\xbb\xbf"


def cut_end(content: bytes, count: int = 17) -> bytes:
    """The writer was killed in the middle of its last line."""
    return content[:-count]


def cut_in_character(content: bytes) -> bytes:
    """The last line ends in the middle of a character."""
    return content.rstrip(b"\n")[:-30] + "型".encode()[:2]


def without_last_end(content: bytes) -> bytes:
    """The last line is whole, its end is missing."""
    return content.removesuffix(b"\n")


def fused(content: bytes, line: int) -> bytes:
    """Two lines lost the end between them (lines are counted from 0)."""
    lines = content.split(b"\n")
    lines[line : line + 2] = [lines[line] + lines[line + 1]]
    return b"\n".join(lines)


def torn(content: bytes, line: int, at: int = 25) -> bytes:
    """A line was written in two parts, with the next line between them."""
    lines = content.split(b"\n")
    first, second = lines[line], lines.pop(line + 1)
    lines[line : line + 1] = [first[:at] + second, first[at:]]
    return b"\n".join(lines)


def inserted(content: bytes, line: int, *new: bytes) -> bytes:
    """Foreign lines stand before a line."""
    lines = content.split(b"\n")
    lines[line:line] = new
    return b"\n".join(lines)


def as_on_windows(content: bytes) -> bytes:
    """Byte order mark and CRLF."""
    return BOM + content.replace(b"\n", b"\r\n")


def as_utf16(content: bytes) -> bytes:
    """Saved as "Unicode"."""
    return content.decode().encode("utf-16")


def with_nul_padding(content: bytes) -> bytes:
    """The file system filled up a block after a power cut."""
    return content + b"\0" * 4096


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Damages a file in place."""
    path.write_bytes(damage(path.read_bytes()))


def compress(path: Path) -> None:
    """Leaves `NAME.gz` in place of a file."""
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
