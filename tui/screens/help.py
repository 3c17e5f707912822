"""Help: the keys of the screen it was asked from, the signs and letters, what the figures mean."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding
from textual.screen import Screen

from loadgen.figures import MarkKind
from tui.draw import Line, Span, line, title
from tui.glyphs import Glyphs
from tui.metrics import MARK_LETTERS, METRICS
from tui.screens.listed import ListedScreen
from tui.widgets.eval_page import LETTERS
from tui.words import left

MARK_WORDS: dict[MarkKind, str] = {
    MarkKind.NOT_IN_EFFECT: "the preset was not in effect: no figures",
    MarkKind.CLIENT_BOUND: "the load generator itself was the limit",
    MarkKind.UNDER_RUN: "fewer requests ran at once than asked",
    MarkKind.CACHE_HITS: "cached prompt tokens, though none were wanted",
    MarkKind.ERRORS: "more than 1 % of the requests failed",
    MarkKind.UNMEASURED: "the server did not report usage",
    MarkKind.NO_SPECULATION: "speculation was asked for, and nothing of it reported",
    MarkKind.DIVERGED: "greedy text differs from the reference preset's",
    MarkKind.DRAFTS_REJECTED: "every draft was refused",
    MarkKind.TAU_DROP: "accepts less than the next smaller budget",
    MarkKind.QUEUED: "the server had requests waiting",
    MarkKind.THROTTLED: "a GPU held its clocks back",
    MarkKind.SHORT_OUTPUT: "answers much shorter than max_tokens",
    MarkKind.SHORT_STEADY: "the steady window is short",
    MarkKind.COLD: "the first request was far slower than the others",
    MarkKind.SERVER_UNDER_RUN: "the server ran fewer at once than asked",
    MarkKind.GPU_LOST: "a GPU could not be read",
    MarkKind.GRAPH_MISSED: "decoded without a captured graph",
    MarkKind.FEW_SAMPLES: "few requests: p99 is the maximum",
}


_TEXTUALS_OWN = ("app.focus_next", "app.focus_previous", "screen.copy_text")
_KEY_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "escape": "Esc",
    "enter": "Enter",
    "ctrl+c": "Ctrl-C",
    "ctrl+q": "Ctrl-Q",
}
_KEY_NAMES |= {
    "ctrl+z": "Ctrl-Z",
    "ctrl+p": "Ctrl-P",
    "home": "Home",
    "end": "End",
    "space": "Space",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}


def bindings_of(screen: Screen[object]) -> list[tuple[str, str]]:
    """Returns the keys that work on a screen and what they do, the screen's own first, digits in one line."""
    found: dict[str, str] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not binding.description or binding.system or binding.action in _TEXTUALS_OWN:
            continue
        key = binding.key_display or _KEY_NAMES.get(binding.key, binding.key)
        found.setdefault(key, binding.description)
    digits = [k for k in found if k.isdigit()]
    out = [("1-9", "Switch to that preset (asks first)")] if digits else []
    return out + [(k, words) for k, words in found.items() if not k.isdigit()]


def help_lines(keys: list[tuple[str, str]], cells: int, glyphs: Glyphs) -> list[Line]:
    """Returns the page of help."""
    out: list[Line] = [title(" keys here", cells, glyphs)]
    columns = 2 if cells >= 76 else 1
    each = (cells - 2) // columns
    rows = (len(keys) + columns - 1) // columns
    for y in range(rows):
        row: list[Span] = []
        for x in range(columns):
            place = y + x * rows
            if place < len(keys):
                key, words = keys[place]
                row += [Span(f" {left(key, 10, glyphs)}", "strong"), Span(left(words, each - 11, glyphs))]
        out.append(tuple(row))
    out += [(), title(" signs", cells, glyphs)]
    signs = (
        (glyphs.waiting, "waiting"),
        (glyphs.running, "running"),
        (glyphs.failed, "failed, or not in effect; Enter says why"),
        (glyphs.skipped, "skipped"),
        (glyphs.absent, "not reported by the server: absent, not zero"),
        (glyphs.same, "no difference that noise would not cover"),
        (glyphs.hot, "look at this"),
        (f"170.2 {glyphs.pm}1.1", "a figure with half of its 95 % interval"),
        (glyphs.heat, "worst to best within the matrix (for times and energy the best is the least)"),
        ("84^", "a maximum in place of a percentile: fewer than 100 requests"),
    )
    out += [line(Span(f" {left(sign, 12, glyphs)}", "strong"), Span(words)) for sign, words in signs]
    out += [
        (),
        title(" letters beside a figure: reasons to doubt it; Enter on the cell gives the numbers", cells, glyphs),
    ]
    out += [
        line(Span(f" {MARK_LETTERS[k]}  ", "warn"), Span(left(k.value, 18, glyphs)), Span(w, "muted"))
        for k, w in MARK_WORDS.items()
    ]
    out.append(line(Span(f" {glyphs.several}  ", "warn"), Span("more than one of them")))
    out += [(), title(" figures (m, M)", cells, glyphs)]
    out += [line(Span(f" {left(m.name, 12, glyphs)}", "strong"), Span(m.words)) for m in METRICS]
    out += [(), title(" verdicts of the coding eval", cells, glyphs)]
    for verdict, (letter, role, words) in LETTERS.items():
        sign = letter or (glyphs.good if verdict.value == "pass" else glyphs.failed)
        out.append(
            line(
                Span(f" {sign}  ", role), Span(left(verdict.value.replace("_", " "), 24, glyphs)), Span(words, "muted")
            )
        )
    return out


class Help(ListedScreen):
    """Help for the screen below."""

    HAS_LIST = False
    TITLE_WORDS = "help"
    OF_SESSION = False
    KEYS = (("PgUp PgDn", "scroll"), ("esc", "back"))
    BINDINGS: ClassVar = [Binding("question_mark", "back", "Back", show=False)]

    def __init__(self, keys: list[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def fill(self) -> None:
        """Draws the help."""
        self.page.set_lines(help_lines(self._keys, self.page.size.width, self.facts.glyphs))
