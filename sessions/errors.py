"""Errors of the session's side, as a hierarchy; each carries words an operator can act on.

SpectopError
├── SweepFileError     the sweep file: every fault with line, key, what was found and what is allowed
├── SessionError       a session folder: not found, ambiguous, newer schema, locked by another engine
│   ├── SessionNotFound
│   ├── NewerSchema
│   ├── SessionLocked
│   └── DiskFull       no room for the log; nothing is lost yet, and the writer can try again
├── EngineLost         the engine's process went away while a terminal watched
└── ServerUnprepared   the server could not be put in the asked state (exit status 3)
"""

from __future__ import annotations


class SpectopError(Exception):
    """Anything an operator is told in words, without a traceback."""

    exit_status = 1


class SweepFileError(SpectopError):
    """Raised when a sweep file (or a command line that makes one) cannot be used; lists all faults at once."""

    exit_status = 2

    def __init__(self, path: str, faults: list[str]) -> None:
        self.path = path
        self.faults = faults
        super().__init__("\n".join(f"{path}: {fault}" for fault in faults))


class SessionError(SpectopError):
    """Raised for a session folder that cannot be used as asked."""

    exit_status = 2


class SessionNotFound(SessionError):
    """Raised when no session, or more than one, fits what was asked for."""


class NewerSchema(SessionError):
    """Raised when a session's schema version is newer than this version can read, or no version at all."""


class SessionLocked(SessionError):
    """Raised when another engine already writes to the session."""


class DiskFull(SessionError):
    """Raised when the log cannot be written for want of room; the lines are kept, `SessionLog.retry` goes on."""

    exit_status = 1


class EngineLost(SpectopError):
    """Raised when a running engine went away without ending its session."""


class ServerUnprepared(SpectopError):
    """Raised when the server could not be put in the asked state."""

    exit_status = 3
