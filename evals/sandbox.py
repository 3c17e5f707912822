"""The sandbox for model-written code: which level this machine allows, and runs in it, several at a time.

The ladder is `bwrap` (bubblewrap + seccomp + rlimits), then `landlock` (Landlock + seccomp + rlimits, where namespaces
are forbidden), then none: refused, unless the operator asked for unsafe execution. A level counts only when a probe
that runs through it finds itself confined.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import msgspec

from evals import confinement, running
from evals.confinement import LevelName, Way
from evals.errors import SandboxRefusedError
from evals.program import Program, RunResult

MEMORY_BYTES = 1 << 30
TIMEOUT_S = 10.0

_PROBE = Program(
    code=(
        "import os, socket, sys\n"
        "def tried(action):\n    try:\n        action()\n    except OSError:\n        return False\n    return True\n"
    ),
    tests=(
        "assert sys.version_info >= (3, 11), 'Python ' + sys.version.split()[0]\n"
        "assert not tried(lambda: socket.socket()), 'sockets are not refused'\n"
        "assert not tried(os.fork), 'fork is not refused'\n"
        "assert not tried(lambda: open('/etc/passwd')), '/etc can be read'\n"
        "assert not tried(lambda: open('/usr/x', 'w')), '/usr can be written'\n"
        "assert os.geteuid() != 0, 'runs as root'\n"
    ),
)


class SandboxLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The level that works on this machine.

    Attributes:
        name: rung of the ladder.
        words: what it is made of, for a screen and the log.
        why_not_higher: for each better way that was tried, why it does not work here.
        way: how programs are shut in; `None` when no level works.
    """

    name: LevelName
    words: str
    why_not_higher: tuple[str, ...] = ()
    way: Way | None = None

    @property
    def safe(self) -> bool:
        """Whether model-written code may run here without being asked for."""
        return self.name != "none"


def probe_level(highest: LevelName = "bwrap") -> SandboxLevel:
    """Finds the best level that works here by running a probe through each; takes some tens of milliseconds.

    Args:
        highest: the rung to begin with, so that a lower one can be asked for.
    """
    reasons: list[str] = []
    if not shutil.which("bwrap") and highest == "bwrap":
        reasons.append("bubblewrap is not installed (apt install bubblewrap)")
    for way in confinement.ways():
        if (highest == "landlock" and way.level == "bwrap") or highest == "none":
            continue
        reason = why_not(way)
        if reason is None:
            return SandboxLevel(name=way.level, words=way.words, why_not_higher=tuple(reasons), way=way)
        reasons.append(f"{way.words} with {way.interpreter}: {reason}")
    return SandboxLevel(name="none", words="no sandbox", why_not_higher=tuple(reasons))


def why_not(way: Way) -> str | None:
    """Runs a probe in one way; returns `None` when it finds itself confined, else why this way does not do."""
    result = running.run(way, _PROBE, timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES)
    if result.status == "passed":
        return None
    said = result.output.strip().splitlines()[-1:] or [""]
    return " ".join(part for part in (result.message, said[0]) if part)[:300] or result.status


class Sandbox:
    """Runs programs at one level, a bounded number at a time, each in a process of its own.

    Use as a context manager, or call `close`.
    """

    def __init__(
        self,
        level: SandboxLevel | None = None,
        *,
        parallel: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        unsafe: bool = False,
    ) -> None:
        """Takes a level, or probes for one.

        Args:
            level: from `probe_level`.
            parallel: runs at a time; half of the CPUs, between 1 and 8, when not given.
            memory_bytes: address space of each run.
            unsafe: run without any sandbox where no level works.

        Raises:
            SandboxRefusedError: no level works and `unsafe` is not set.
        """
        self.level = level or probe_level()
        way = self.level.way
        if way is None:
            if not unsafe:
                raise SandboxRefusedError(_refusal(self.level))
            way = confinement.unsafe_way()
            self.level = SandboxLevel(name="none", words=way.words, why_not_higher=self.level.why_not_higher, way=way)
        self._way = way
        self._memory_bytes = memory_bytes
        workers = parallel or min(8, max(1, (os.cpu_count() or 2) // 2))
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sandbox")

    async def run(
        self, program: Program, *, timeout_s: float = TIMEOUT_S, memory_bytes: int | None = None
    ) -> RunResult:
        """Runs a program; waits for a free place first. Cancelling kills the run."""
        stopper = running.Stopper()
        job = self._pool.submit(
            running.run,
            self._way,
            program,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes or self._memory_bytes,
            stopper=stopper,
        )
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            stopper.stop()
            raise
        finally:
            job.add_done_callback(lambda _: stopper.close())

    def run_blocking(
        self, program: Program, *, timeout_s: float = TIMEOUT_S, memory_bytes: int | None = None
    ) -> RunResult:
        """Runs a program in the calling thread."""
        return running.run(self._way, program, timeout_s=timeout_s, memory_bytes=memory_bytes or self._memory_bytes)

    def close(self) -> None:
        """Waits for running programs and gives the threads back."""
        self._pool.shutdown(wait=True)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refusal(level: SandboxLevel) -> str:
    reasons = "".join(f"\n  - {reason}" for reason in level.why_not_higher) or "\n  - this system is not Linux"
    return (
        "no sandbox works on this machine, so model-written code is not run:"
        f"{reasons}\nInstall bubblewrap and libseccomp2 (Debian, Ubuntu), leave the coding eval out, or pass "
        "--unsafe-exec to run the code without protection."
    )
