"""Where a key of a TOML text stands: `tomllib` gives values without lines, and an operator wants the line.

Only positions come from here, never values; a key written in a way this does not follow (dotted keys inside inline
tables) is reported at the line of the nearest enclosing key it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Path = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_STRING = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|(\"\"\"|''').*|\"(?:\\.|[^\"\\])*\"|'[^']*'")
"""Strings, whole ones first; the group is the quotes of one that does not end on its line."""


def line_of(lines: dict[Path, int], path: Sequence[str | int]) -> int | None:
    """Returns the line (from 1) of a path, or of its nearest enclosing key."""
    for end in range(len(path), 0, -1):
        if (line := lines.get(tuple(path[:end]))) is not None:
            return line
    return None


def key_lines(text: str) -> dict[Path, int]:
    """Returns the line (from 1) of every key and table header of a TOML text; arrays of tables are numbered from 0."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in _logical_lines(text):
        if header := _HEADER.match(line):
            table = _table_path(header[1], _parts(header[2]), counts)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            path = table
            for part in _parts(key[1]):
                path = (*path, part)
                found.setdefault(path, number)
    return found


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


def _table_path(bracket: str, names: list[str], counts: dict[Path, int]) -> Path:
    path: Path = ()
    for depth, name in enumerate(names):
        path = (*path, name)
        last = depth == len(names) - 1
        if bracket == "[[" and last:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of lines that begin a statement; the inside of multi-line values is passed over."""
    depth, closing = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            if closing in line:
                closing = ""
            continue
        inside = depth > 0
        closing = next((found[1] for found in _STRING.finditer(line) if found[1]), "")
        bare = _STRING.sub("''", line).split("#", 1)[0]
        value = bare if inside else bare.partition("=")[2]
        depth = max(0, depth + value.count("[") + value.count("{") - value.count("]") - value.count("}"))
        if not inside:
            yield number, line
