"""What a sandbox is given to run, what it may use, and how a run ended."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["passed", "failed", "load_failed", "exited", "timeout", "sandbox"]
Phase = Literal["start", "load", "tests"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: the preamble and the answer's code, then the tests that judge it.

    Attributes:
        entry_point: name that must exist once the code is loaded, or "".
        preamble: trusted source run before the code in its module (imports that a problem's statement makes).
    """

    code: str
    tests: str
    entry_point: str = ""
    preamble: str = ""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one run ended.

    Attributes:
        status: `passed` only when the token came back; `load_failed`: the answer's own top level raised; `exited`:
            the process left without a report; `sandbox`: the program was never started properly.
        error: type of the exception; `message`: its text; `line`: in the tests (or in the answer, when loading).
        output: the end of what it printed, `output_bytes` of how many; `output_capped`: whether
            some were dropped.
        wall_s: seconds from handing over the code to the end; `start_s`: seconds until the program was ready.
    """

    status: Status
    error: str = ""
    message: str = ""
    line: int | None = None
    phase: Phase = "start"
    output: str = ""
    output_bytes: int = 0
    output_capped: bool = False
    exit_status: int | None = None
    wall_s: float = 0.0
    start_s: float = 0.0


def limits(timeout_s: float, memory_bytes: int) -> dict[str, int]:
    """Returns the resource limits of a run: names without RLIMIT_, values in seconds, bytes and counts."""
    return {
        "AS": memory_bytes,
        "CPU": int(timeout_s) + 2,
        "FSIZE": 16 << 20,
        "NPROC": 64,
        "NOFILE": 64,
        "CORE": 0,
    }
