"""Why a preset could not be put in effect: the one exception inside this package, turned into words by `putting`."""

from __future__ import annotations


class NotInEffectError(Exception):
    """Raised by a step that failed; the words are the operator's.

    Attributes:
        cause: the kind of failure ("oom", "arguments", "port", "crash loop", "exited", "unit", "permission", "stopped",
            "timeout", "memory", "key", "generate", "setting", "model", "instance").
    """

    def __init__(self, cause: str, words: str) -> None:
        super().__init__(words)
        self.cause = cause
        self.words = words
