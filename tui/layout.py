"""Where the live screen's panels stand for a terminal's size: a pure function, so that every size can be tested.

The order of importance is fixed (safety, what happens, matrix, machine, words); more room buys more panels.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_WIDTH = 50
MIN_HEIGHT = 12
WIDE = 100
RICH = (140, 36)


@dataclass(frozen=True)
class Rect:
    """A panel's place, in cells from the upper left corner."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What decides the layout, apart from the size.

    Attributes:
        contexts, columns: of the matrix.
        presets: how many; `preset_lines`: lines their names take; `gpus`: how many.
        proving: a preset is being put in effect (or that failed and nothing else has begun).
        steps: lines the steps need.
        tail: which words are shown where there is room for one kind.
        zoomed: the panel that has the whole screen.
    """

    contexts: int = 4
    columns: int = 4
    presets: int = 4
    preset_lines: int = 1
    gpus: int = 8
    proving: bool = False
    steps: int = 9
    tail: str = "events"
    zoomed: str | None = None


ZOOMABLE = ("matrix", "now", "strip", "histogram", "gpus", "events", "log")


def preset_line_width(width: int, height: int) -> int:
    """Returns the width of the lines that name the presets."""
    return _left_part(width) if width >= RICH[0] and height >= RICH[1] else width


def _left_part(width: int) -> int:
    return width * 62 // 100


def arrange(width: int, height: int, needs: Needs) -> dict[str, Rect]:
    """Returns the visible panels' places; panels that are not named have no room."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return {"small": Rect(0, 0, max(1, width), max(1, height))}
    places = {"head": Rect(0, 0, width, 2), "keys": Rect(0, height - 1, width, 1)}
    if needs.zoomed:
        places[needs.zoomed] = Rect(0, 2, width, height - 3)
    elif width >= RICH[0] and height >= RICH[1]:
        places.update(_rich(width, height, needs))
    else:
        places.update(_stacked(width, height, needs))
    return places


def _stacked(width: int, height: int, needs: Needs) -> dict[str, Rect]:
    """One above the other; the running rates stand beside the matrix."""
    wide = width >= WIDE
    free = height - 3
    contexts, gpus = max(1, needs.contexts), needs.gpus
    presets = max(1, min(needs.preset_lines, 1 if height < 23 else 2 if height < 36 else 4))
    matrix = 2 + contexts
    one_each, two_each = (1 + gpus, 1 + (gpus + 1) // 2) if gpus else (1, 1)
    words = 2 if height < 30 else 5
    steps = min(needs.steps, max(4, free - presets - matrix - two_each)) if needs.proving else 0
    fixed = presets + steps
    gpu_rows = one_each if free - fixed - matrix - words >= one_each else two_each
    if needs.proving:
        words = 0
    matrix = max(2, min(matrix, free - fixed - min(gpu_rows, 3)))
    gpu_rows = max(0, min(gpu_rows, free - fixed - matrix))
    spare = free - fixed - matrix - gpu_rows - words
    if wide and not needs.proving and spare >= contexts and width >= 6 + 15 * needs.columns + 30:
        matrix += contexts
    spare = free - fixed - matrix - gpu_rows
    now = min(max(matrix, 5), matrix + spare) if not needs.proving else 0
    matrix = max(matrix, now)
    places: dict[str, Rect] = {}
    matrix_width = width
    y = 2
    if now:
        each = 16 if matrix > 2 + contexts and wide else 12
        matrix_width = min(width - 25, max(6 + each * needs.columns + 1, width * 6 // 10 if wide else 0))
        places["now"] = Rect(matrix_width, y, width - matrix_width, now)
    places["matrix"] = Rect(0, y, matrix_width, matrix)
    y += matrix
    places["presets"] = Rect(0, y, width, presets)
    y += presets
    if steps:
        places["steps"] = Rect(0, y, width, steps)
        y += steps
    most = height - 1 - y - gpu_rows - 6
    strip = min(max(10, needs.presets + 1), most)
    if wide and not needs.proving and strip >= 4:
        left = width * 6 // 10
        places["strip"] = Rect(0, y, left, strip)
        places["histogram"] = Rect(left + 1, y, width - left - 1, strip)
        y += strip
    if gpu_rows > 0:
        places["gpus"] = Rect(0, y, width, gpu_rows)
        y += gpu_rows
    rest = height - 1 - y
    if rest >= 14 and wide:
        upper = rest // 2
        places["events"] = Rect(0, y, width, upper)
        places["log"] = Rect(0, y + upper, width, rest - upper)
    elif rest > 0:
        places[needs.tail] = Rect(0, y, width, rest)
    return places


def _rich(width: int, height: int, needs: Needs) -> dict[str, Rect]:
    """Two thirds for the product, one for the machine; events and log side by side below."""
    places: dict[str, Rect] = {}
    left = _left_part(width)
    right = width - left - 1
    contexts = max(1, needs.contexts)
    body = height - 3
    words = max(6, min(14, body // 4))
    top = body - words
    matrix = min(2 + 2 * contexts, max(6, top - 8))
    strip = max(4, min(needs.presets + 1, top - matrix - 3))
    y = 2
    places["matrix"] = Rect(0, y, left, matrix)
    y += matrix
    preset_lines = max(1, min(needs.preset_lines, 4))
    places["presets"] = Rect(0, y, left, preset_lines)
    y += preset_lines
    remaining = 2 + top - y
    gpu_rows = 1 + needs.gpus if needs.gpus else 1
    if needs.proving:
        steps = min(needs.steps + 1, max(4, remaining))
        places["steps"] = Rect(0, y, left, steps)
        y += steps
    else:
        strip = min(strip, remaining)
        places["strip"] = Rect(0, y, left, strip)
        y += strip
    gpus_on_left = 2 + top - y >= gpu_rows
    if gpus_on_left:
        places["gpus"] = Rect(0, 2 + top - gpu_rows, left, gpu_rows)
    if needs.proving:
        places["log"] = Rect(left + 1, 2, right, top)
        places["events"] = Rect(0, 2 + top, width, words)
        return places
    y = 2
    now = max(8, min(16, top - 12))
    places["now"] = Rect(left + 1, y, right, now)
    y += now
    hist = 10 if not gpus_on_left else top - now
    hist = max(0, min(hist, 2 + top - y, 18))
    if hist >= 3:
        places["histogram"] = Rect(left + 1, y, right, hist)
        y += hist
    if not gpus_on_left and 2 + top - y >= 3:
        places["gpus"] = Rect(left + 1, y, right, 2 + top - y)
    half = width // 2
    places["events"] = Rect(0, 2 + top, half - 1, words)
    places["log"] = Rect(half, 2 + top, width - half, words)
    return places
