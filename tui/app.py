"""The way into the screens: prepares the terminal's environment, then runs the application over a source.

Textual reads its settings when it is imported, so nothing here imports it before they are made.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from sessions.commands import Source
from sessions.state import SessionState
from tui.terminal import prepare_environment


def run_app(
    source: Source, folder: Path | None = None, *, title: str = "spectop", read_only: bool = False
) -> SessionState | None:
    """Runs the screens until the operator leaves, and returns the last state that was shown.

    Args:
        source: a running engine or a saved session; closed at the end, which the engine does not notice.
        folder: the session's folder, for the screens that read its requests.
        title: name of the terminal's window.
        read_only: nothing can be commanded from these screens.
    """
    prepare_environment(os.environ)
    gc.disable()  # nothing that is made on the way to the first screen is garbage; the application enables it again
    try:
        from tui.spectop import SpectopApp

        app = SpectopApp(source, title=title, folder=folder, read_only=read_only)
        app.run()
    finally:
        gc.enable()
    return app.facts.state if app.facts.state.session else None
