"""The server's own log on standard error: SGLang's line format, uvicorn's lines, and the loader's progress bar."""

from __future__ import annotations

import contextlib
import sys
import time


class ServerLog:
    """Writes log lines as the real server does.

    Attributes:
        rank: what scheduler lines carry after the time (` TP0` with tensor parallelism).
    """

    def __init__(self, tp_size: int) -> None:
        self.rank = " TP0" if tp_size > 1 else ""

    def line(self, text: str, *, scheduler: bool = False) -> None:
        """Writes one line; `scheduler` marks it with the rank."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self.raw(f"[{stamp}{self.rank if scheduler else ''}] {text}\n")

    def raw(self, text: str) -> None:
        """Writes text as it is: progress bars end their updates with a carriage return, not with a line feed."""
        with contextlib.suppress(OSError):  # a real server's logging survives a full disk, too
            sys.stderr.write(text)
            sys.stderr.flush()

    def uvicorn(self, text: str, level: str = "INFO") -> None:
        """Writes a line of the HTTP server."""
        self.line(f"{level + ':':<10}{text}")


def progress(done: int, total: int, elapsed_s: float) -> str:
    """Returns one update of the checkpoint loader's progress bar."""
    share = 100 * done // total
    if done:
        each = elapsed_s / done
        left = each * (total - done)
        rate = f"{each:.2f}s/it" if each >= 1 else f"{1 / max(each, 1e-6):.2f}it/s"
        times = f"{_clock(elapsed_s)}<{_clock(left)}, {rate:>9}"
    else:
        times = "00:00<?, ?it/s"
    return f"\rLoading safetensors checkpoint shards: {share:3d}% Completed | {done}/{total} [{times}]"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
