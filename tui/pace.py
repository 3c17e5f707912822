"""How often the screen is drawn: four times a second at most, less where the terminal does not keep up.

A terminal that stops reading (a hung link, Ctrl-S, copy mode) must not stop the application: frames are left out
while output waits to be written, so the writer's queue never fills up by drawing.
"""

from __future__ import annotations

from collections.abc import Callable

FASTEST_S = 0.25
SLOWEST_S = 2.0
TICK_S = 1.0
"""Seconds between ticks of the elapsed times while nothing else happens."""


class Pace:
    """Decides whether a frame may be drawn now, and when the next may be.

    Args:
        backlog: returns how many pieces of output wait to be written to the terminal.
        period_s: seconds between frames on a terminal that keeps up.
    """

    def __init__(self, backlog: Callable[[], int], period_s: float = FASTEST_S) -> None:
        self._backlog = backlog
        self._fastest = period_s
        self.period_s = period_s

    def may_draw(self) -> bool:
        """Tells whether the terminal has taken what it was sent; slows down when not, and recovers in steps."""
        if self._backlog() > 1:
            self.period_s = min(max(SLOWEST_S, self._fastest), self.period_s * 2)
            return False
        self.period_s = max(self._fastest, self.period_s * 0.8)
        return True
