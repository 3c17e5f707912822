"""Keeps keys out of everything that is shown or kept: server logs, start lines and settings can all hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_FLAG = re.compile(r"(--[\w-]*(?:api-key|token|secret|password)[ =]+)(\"[^\"]*\"|'[^']*'|[^\s'\",\]]+)", re.IGNORECASE)
_VALUE = re.compile(
    r"""(["']?\w*(?:api_?key|_token|secret|password)["']?\s*[=:]\s*)("[^"]+"|'[^']+'|[^\s,'"}\]]+)""", re.IGNORECASE
)
_NOTHING = frozenset({"none", "null", "false", "true", '""', "''"})
_SECRET_NAME = re.compile(r"(?i)((^|[_-])(api)?key|(^|[_-])token|secret|password|credentials?)$")


class Redactor:
    """Hides known keys wherever they stand, and the values of arguments and settings that are named like one.

    Args:
        keys: the keys that are known.
    """

    def __init__(self, keys: Iterable[str | None] = ()) -> None:
        self._keys = sorted({key for key in keys if key}, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """The text without keys."""
        for key in self._keys:
            text = text.replace(key, HIDDEN)
        return _VALUE.sub(_hidden, _FLAG.sub(_hidden, text))


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is nobody's business."""
    return _SECRET_NAME.search(name) is not None


def _hidden(match: re.Match[str]) -> str:
    return match.group(0) if match.group(2).lower() in _NOTHING else match.group(1) + HIDDEN
