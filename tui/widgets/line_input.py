"""One line of text that the operator types."""

from __future__ import annotations

from textual.widgets import Input


class LineInput(Input):
    """An `Input` of one row whose cursor does not blink: a terminal far away is sent nothing while nobody types."""

    def __init__(self, *, hint: str, id: str, value: str = "") -> None:
        super().__init__(value=value, placeholder=hint, compact=True, id=id)
        self.set_reactive(Input.cursor_blink, False)
