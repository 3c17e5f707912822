"""Waiting for a condition that nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], *, limit_s: float, every_s: float) -> bool:
    """Looks at a condition until it holds or the limit is over; whether it holds.

    Args:
        condition: cheap and without effects.
        limit_s: seconds on the loop's clock until it is given up.
        every_s: seconds between looks.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + limit_s
    while not condition():
        if clock() >= until:
            return False
        await asyncio.sleep(min(every_s, max(until - clock(), 0.0)) or every_s)
    return True
