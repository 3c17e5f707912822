"""Keeps keys out of everything that is shown or kept: server logs, start lines and settings can all hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_PLAIN = r"""[^\s"',}\])]+"""
# `--api-key VALUE`, `--api-key=VALUE`, and the same as elements of a list in Python's or JSON's way.
_FLAG = re.compile(
    r"""(?<![\w-])(--[\w-]*(?:api[_-]?key|token|secret|password)(?:["']\s*,\s*|\s*=\s*|\s+))"""
    rf"""("[^"]*"|'[^']*'|(?!--){_PLAIN})""",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"""(?<!\w)(["']?\w*(?:api[_-]?key|_token|secret|password)["']?\s*[=:]\s*)("[^"]+"|'[^']+'|[^\s,'"}\]]+)""",
    re.IGNORECASE,
)
_BEARER = re.compile(rf"(\bBearer\s+)({_PLAIN})", re.IGNORECASE)
# A header as text, as an entry of a mapping, or as a pair of byte strings.
_HEADER = re.compile(
    r"""((?<!\w)authorization(?:["']\s*,\s*|["']?\s*[:=]\s*)(?:b?["'])?(?:(?:Bearer|Basic|Token|Digest)\s+)?)"""
    rf"({_PLAIN})",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(://[^/\s:@]*:)([^/\s@]+)(?=@)")
_RULES = (_FLAG, _VALUE, _BEARER, _HEADER, _ADDRESS)
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
        for rule in _RULES:
            text = rule.sub(_hidden, text)
        return text


def redactor_for(api_key: str | None, *environments: Mapping[str, str]) -> Redactor:
    """The redactor of one server: it knows the key that is sent to it, and what is secret in its environment.

    Args:
        api_key: of the target.
        environments: variables that the server is given (a preset's `env`); those that are named like a secret count.
    """
    secrets = [value for given in environments for name, value in given.items() if is_secret(name)]
    return Redactor([api_key, *secrets])


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is nobody's business."""
    return _SECRET_NAME.search(name) is not None


def _hidden(match: re.Match[str]) -> str:
    return match.group(0) if match.group(2).lower() in _NOTHING else match.group(1) + HIDDEN
