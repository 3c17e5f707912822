"""What a server's log says while it starts: the phase, the progress, and the first thing that went fatally wrong.

The first fatal line is the cause; what a dying parent logs afterwards ("Received sigquit", "CancelledError") is noise.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from reconfig.effective import WINDOW_LINE
from reconfig.loglines import LogLine

TAIL = 40

_DECISIVE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("oom", re.compile(r"CUDA out of memory|\bOutOfMemoryError\b|CUDA error: out of memory")),
    (
        "arguments",
        re.compile(
            r"error: unrecognized arguments|error: argument |error: the following arguments are required|"
            r"error: ambiguous option|Unknown speculative algorithm"
        ),
    ),
    (
        "port",
        re.compile(
            r"[Aa]ddress already in use|port\b.{0,20} is (already )?(in use|used|occupied)|Errno 98|"
            r"error while attempting to bind on address"
        ),
    ),
)
_FATAL = re.compile(r"^(?:\[[^\]]*\]\s*)?(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt))\b:?\s*(.*)")
_SOURCE = re.compile(r"\s{4,}|\s+File \"")  # a traceback quotes the source line that raises
_NOISE = re.compile(r"CancelledError|KeyboardInterrupt|Received sig|BrokenPipe|EOFError|ConnectionReset")
_PERCENT = re.compile(r"(\d{1,3})%")
_LOADING = re.compile(r"(?i)load")
_PID = re.compile(r"\bpid\s*[=:]?\s*(\d+)")
_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("loading weights", re.compile(r"Load weight begin|Loading .*(shards|weights|checkpoint)|loading shards")),
    ("weights loaded", re.compile(r"Load weight end")),
    ("memory pool", re.compile(r"KV Cache is allocated|Memory pool end")),
    ("draft model", re.compile(r"draft runner")),
    ("graph capture", re.compile(r"(?i)captur\w* .*(graph|batches).*(begin|%)|capture cuda graph begin")),
    ("warming up", re.compile(r"Uvicorn running|Application startup complete")),
    ("ready", re.compile(r"fired up and ready")),
)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a server did not come up, as its log tells it.

    Attributes:
        kind: "oom", "arguments", "port" (each decides at once), or "error" (decides once the process is gone).
        line: the first fatal line; `phase`: what the server was doing; `holder_pid`: who holds a port.
    """

    kind: str
    line: str
    phase: str | None = None
    holder_pid: int | None = None

    @property
    def decisive(self) -> bool:
        """Whether waiting any longer is pointless."""
        return self.kind != "error"

    @property
    def words(self) -> str:
        """What the operator reads."""
        during = f" during {self.phase}" if self.phase else ""
        match self.kind:
            case "oom":
                return f"CUDA out of memory{during}: {self.line}"
            case "arguments":
                return f"the server refuses its arguments: {self.line}"
            case "port":
                holder = f" (held by pid {self.holder_pid})" if self.holder_pid is not None else ""
                return f"the port is in use{holder}: {self.line}"
            case _:
                return f"{self.line}{f' ({self.phase})' if self.phase else ''}"


class LogWatch:
    """Reads the log of one start, line by line."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.cause: Cause | None = None
        self.phase: str | None = None
        self.share: float | None = None
        self.window_line: str | None = None
        self.lines = 0

    def saw(self, line: LogLine) -> None:
        """Takes one line in."""
        if line.replaces and self.tail:
            self.tail.pop()
        self.tail.append(line.text)
        self.lines += 1
        self._phase(line.text)
        if WINDOW_LINE.search(line.text):
            self.window_line = line.text
        self._cause(line.text)

    @property
    def state(self) -> str:
        """What the server is doing ("loading 55 %", "starting (graph capture)")."""
        if self.phase is None:
            return "starting"
        if self.phase == "loading weights":
            return "loading" if self.share is None else f"loading {self.share * 100:.0f} %"
        progress = "" if self.share is None else f" {self.share * 100:.0f} %"
        return f"starting ({self.phase}{progress})"

    def _phase(self, text: str) -> None:
        for phase, pattern in _PHASES:
            if pattern.search(text):
                if phase != self.phase:
                    self.share = None
                self.phase = phase
                break
        percent = _PERCENT.search(text)
        if percent is None or self.phase not in {"loading weights", "graph capture"}:
            return
        if self.phase == "loading weights" and not _LOADING.search(text):
            return
        self.share = min(int(percent.group(1)), 100) / 100
        if self.phase == "loading weights" and self.share == 1.0:
            self.phase, self.share = "weights loaded", None

    def _cause(self, text: str) -> None:
        if (self.cause is not None and self.cause.decisive) or _SOURCE.match(text):
            return
        for kind, pattern in _DECISIVE:
            if pattern.search(text):
                holder = _PID.search(text) if kind == "port" else None
                self.cause = Cause(
                    kind=kind,
                    line=text.strip(),
                    phase=self.phase,
                    holder_pid=int(holder.group(1)) if holder else None,
                )
                return
        if self.cause is None and not _NOISE.search(text):
            fatal = _FATAL.match(text.strip())
            if fatal is not None:
                self.cause = Cause(kind="error", line=text.strip(), phase=self.phase)
