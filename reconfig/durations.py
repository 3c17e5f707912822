"""Durations as an operator writes them ("15m", "90s", 30) in seconds."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(value: str | float) -> float:
    """A duration in seconds.

    Args:
        value: a number of seconds, or a text such as "15m", "1h30m", "250ms".

    Raises:
        ValueError: the text is none of these; the words say what is allowed.
    """
    if not isinstance(value, str):
        if not 0 <= value < math.inf:
            raise ValueError(f"{value}: a duration is a number of seconds, and not less than none")
        return float(value)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|)\s*", value.strip())
    if not parts or not re.fullmatch(r"(?:\d+(?:\.\d+)?\s*(?:ms|min|s|m|h|)\s*)+", value.strip()):
        raise ValueError(f'"{value}" is not a duration: write it as "90s", "15m", "1h30m" or a number of seconds')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def words(value_s: float) -> str:
    """A duration in words of at most two units ("5 min 20 s", "0.8 s")."""
    if value_s < 10:
        return f"{value_s:.1f} s"
    if value_s < 60:
        return f"{value_s:.0f} s"
    minutes, rest = divmod(round(value_s), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
