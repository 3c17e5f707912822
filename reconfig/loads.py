"""How long earlier starts took, by model and machine: what an ETA is made of.

Kept in `$XDG_STATE_HOME/spectop/loads.json`.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from pathlib import Path

import msgspec

KEPT = 8


class LoadMemory:
    """Remembers the seconds from a start to the open port.

    Args:
        path: the file; the default is in the user's state folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path if path is not None else default_path()

    def expected_s(self, model: str, host: str) -> float | None:
        """Median of the remembered loads in seconds, `None` when there is none."""
        loads = self._read().get(_key(model, host), [])
        return statistics.median(loads) if loads else None

    def remember(self, model: str, host: str, seconds: float) -> None:
        """Adds one load; a file that can't be written costs an ETA and nothing else."""
        known = self._read()
        key = _key(model, host)
        known[key] = [*known.get(key, []), round(seconds, 2)][-KEPT:]
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self.path.parent, suffix=".part")
            with os.fdopen(number, "wb") as file:
                file.write(msgspec.json.encode(known))
            Path(name).replace(self.path)

    def _read(self) -> dict[str, list[float]]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, list[float]])
        except (OSError, msgspec.DecodeError):
            return {}


def default_path() -> Path:
    """`$XDG_STATE_HOME/spectop/loads.json`."""
    return state_folder() / "loads.json"


def state_folder() -> Path:
    """Where we keep what outlives a session: `$XDG_STATE_HOME/spectop`."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "spectop"


def _key(model: str, host: str) -> str:
    return f"{model} @ {host}"
