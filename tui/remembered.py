"""Results of pure functions, kept for as long as they are asked with the same objects.

States are immutable and share what did not change, so that an object that is still the same one says "nothing new
here" without a look at what is in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def remembered(most: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Makes a pure function of immutable positional arguments return what it returned for the very same objects.

    Args:
        most: results kept; when there are more, all are forgotten. The arguments are kept with them.
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        kept: dict[tuple[int, ...], tuple[tuple[Any, ...], T]] = {}

        @functools.wraps(function)
        def ask(*arguments: Any) -> T:
            key = tuple(map(id, arguments))
            known = kept.get(key)
            if known is None:
                if len(kept) >= most:
                    kept.clear()
                known = kept[key] = (arguments, function(*arguments))
            return known[1]

        return ask

    return wrap
