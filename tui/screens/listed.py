"""Screens made of a list, a page, or both: the same keys move in all of them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.draw import Line, Span, line
from tui.screens.base import SpectopScreen
from tui.widgets.panel import Panel
from tui.widgets.scrolling import Listing, Page


class ListedScreen(SpectopScreen):
    """A screen with a list above (or beside) a page; either may be left out.

    Subclasses say what the list's rows and the page's lines are in `fill`.
    """

    HAS_LIST: ClassVar[bool] = True
    HAS_PAGE: ClassVar[bool] = True
    CSS_PATH = "listed.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Up", show=False),
        Binding("down", "step(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "step(-100000)", "First", show=False),
        Binding("end", "step(100000)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Head, title, list, page, keys."""
        glyphs = self.facts.glyphs
        yield self.head()
        yield Panel(lambda w, h: [self.title_line(w)], glyphs=glyphs, id="title")
        if self.HAS_LIST:
            yield Listing(glyphs=glyphs, id="list")
        if self.HAS_PAGE:
            yield Page(glyphs=glyphs, id="page")
        yield self.keys_line()

    def title_line(self, cells: int) -> Line:
        """Returns the line under the head."""
        g = self.facts.glyphs
        words = self.title_words()
        return line(Span(f" {words} ", "head"), Span(g.rule * max(0, cells - len(words) - 2), "muted"))

    @property
    def listing(self) -> Listing:
        """The list."""
        return self.query_one(Listing)

    @property
    def page(self) -> Page:
        """The page."""
        return self.query_one(Page)

    def on_mount(self) -> None:
        """Fills in what is known."""
        self.call_after_refresh(self.show_facts)

    def on_resize(self) -> None:
        """Fills in for the new width."""
        self.call_after_refresh(self.show_facts)

    def show_facts(self) -> None:
        """Fills list and page, then draws what changed."""
        if self.is_mounted and self.query(Panel):
            self.fill()
            if self.HAS_LIST and self.HAS_PAGE:
                self.listing.styles.height = min(len(self.listing.content) + 1, max(4, self.size.height // 2 - 2))
            super().show_facts()

    def fill(self) -> None:
        """Sets the list's rows and the page's lines from the facts."""
        raise NotImplementedError

    def chosen_changed(self) -> None:
        """Follows the cursor; the page shows the chosen row from its beginning."""
        if self.HAS_PAGE:
            self.page.set_lines((), keep_place=False)
        self.fill()

    def action_step(self, by: int) -> None:
        """Moves the cursor, or the page where there is no list."""
        if self.HAS_LIST:
            self.listing.move(by)
        else:
            self.page.scroll_lines(by)

    def action_page(self, by: int) -> None:
        """Moves the page, or the cursor by a page where there is none."""
        if self.HAS_PAGE:
            self.page.scroll_lines(by * max(1, self.page.size.height - 2))
        else:
            self.listing.move(by * max(1, self.listing.size.height - 2))

    def action_choose(self) -> None:
        """Opens the chosen row; nothing by default."""

    def on_listing_moved(self, _: Listing.Moved) -> None:
        """Shows what belongs to the row."""
        self.chosen_changed()

    def on_panel_clicked(self, event: Panel.Clicked) -> None:
        """Moves the cursor to the row under the mouse; opens it when it is there already."""
        if isinstance(event.panel, Listing):
            row = event.panel.row_at(event.y)
            if row is None:
                return
            if row == event.panel.cursor:
                self.action_choose()
            else:
                event.panel.move(row - event.panel.cursor)

    def copied_lines(self) -> list[Line]:
        """Returns what `y` copies."""
        lines: list[Line] = list(self.listing.content) if self.HAS_LIST else []
        if self.HAS_PAGE:
            lines.extend(self.page.content)
        return lines
