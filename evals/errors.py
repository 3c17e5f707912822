"""What can go wrong in an eval before anything is judged.

EvalError                 the base: its text is for the operator, and says what to do
├── SandboxRefusedError   no sandbox works here, and unsafe execution was not asked for
├── ProblemSetError       a problem set is unknown, or its file cannot be read
└── AnswerFileError       a saved answer cannot be read
"""

from __future__ import annotations


class EvalError(Exception):
    """Base of this package's errors; the text is meant for the operator."""


class SandboxRefusedError(EvalError):
    """No sandbox level works on this machine; raised before any model-written code would run."""


class ProblemSetError(EvalError):
    """A problem set's name is unknown, or its file is not what it should be (names file, line and key)."""


class AnswerFileError(EvalError):
    """A saved answer is not what it should be (names the file and the key)."""
