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
    places: dict[str, Rect] = {}
    wide = width >= WIDE
    free = height - 3
    contexts, gpus = max(1, needs.contexts), needs.gpus
    preset_lines = max(1, min(needs.preset_lines, 1 if height < 23 else 2 if height < 36 else 4))
    gpu_rows = 1 + gpus if gpus else 1
    words = 3 if height < 30 else 5
    matrix_rows = 1 + contexts
    if free - preset_lines - gpu_rows - words < matrix_rows and gpus > 3:
        gpu_rows = 1 + (gpus + 1) // 2
    if needs.proving:
        gpu_rows = min(gpu_rows, 1 + (gpus + 1) // 2) if not wide or height < 36 else gpu_rows
        words = 2
    steps = min(needs.steps, max(4, free - preset_lines - gpu_rows - matrix_rows)) if needs.proving else 0
    spare = free - preset_lines - gpu_rows - words - steps
    if spare < 3:
        gpu_rows = max(0, gpu_rows - (3 - spare))
        spare = free - preset_lines - gpu_rows - words - steps
    if spare < 3:
        steps = max(3, steps - (3 - spare)) if steps else 0
        words = 0 if steps else words
        spare = max(2, free - preset_lines - gpu_rows - words - steps)
    double = 1 + 2 * contexts
    extra = spare - double
    if wide and width >= 7 + 15 * needs.columns + 30 and extra >= 0:
        matrix_rows = double
    else:
        matrix_rows = min(matrix_rows, spare)
        extra = spare - matrix_rows
    now_height = max(matrix_rows, min(5, spare)) if not needs.proving else matrix_rows
    y = 2
    matrix_width = width
    if not needs.proving:
        each = 15 if matrix_rows == double and wide else 12
        matrix_width = min(width - 25, max(6 + each * needs.columns + 1, width * 6 // 10 if wide else 0))
        matrix_width = max(matrix_width, 25)
        places["now"] = Rect(matrix_width, y, width - matrix_width, now_height)
        matrix_rows = max(matrix_rows, now_height)
    places["matrix"] = Rect(0, y, matrix_width, matrix_rows)
    y += matrix_rows
    places["presets"] = Rect(0, y, width, preset_lines)
    y += preset_lines
    if steps:
        places["steps"] = Rect(0, y, width, steps)
        y += steps
    rest = height - 1 - y
    strip = min(max(4, needs.presets + 1), 9)
    if wide and not needs.proving and rest - gpu_rows - strip >= 6:
        left = width * 6 // 10
        places["strip"] = Rect(0, y, left, strip)
        places["histogram"] = Rect(left + 1, y, width - left - 1, strip)
        y += strip
    gpu_rows = min(gpu_rows, height - 1 - y)
    if gpu_rows > 0:
        places["gpus"] = Rect(0, y, width, gpu_rows)
        y += gpu_rows
    rest = height - 1 - y
    if rest > 0:
        if wide and rest >= 14:
            upper = rest // 2
            places["events"] = Rect(0, y, width, upper)
            places["log"] = Rect(0, y + upper, width, rest - upper)
        else:
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
    matrix = min(1 + 2 * contexts, max(6, top - 8))
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
    y = 2
    now = max(8, min(14, top * 4 // 10))
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
