"""One load process as the engine holds it: started, written to, listened to, and missed when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable

from loadgen.errors import WorkerLost
from loadgen.messages import Command, Report, frame, read_report

CLOSE_LIMIT_S = 5.0
STDERR_LINES = 40


class LoadProcess:
    """One load process and the pipes to it.

    Args:
        number: its place in the pool.
        process: as started.
        on_report: takes its number and each of its reports.

    Attributes:
        running: single generations that it runs.
        lost: set when it ended.
        reports: the task that reads its reports; done when the process has ended.
    """

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, on_report: Callable[[int, Report], None]
    ) -> None:
        self.number = number
        self.process = process
        self.running = 0
        self.lost: WorkerLost | None = None
        self._on_report = on_report
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        loop = asyncio.get_running_loop()
        self._errors = loop.create_task(self._read_errors())
        self.reports = loop.create_task(self._read_reports())

    @classmethod
    async def spawn(cls, number: int, on_report: Callable[[int, Report], None]) -> LoadProcess:
        """Starts one."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "loadgen.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for the engine to handle
        )
        return cls(number, process, on_report)

    def send(self, command: Command) -> None:
        """Sends a command.

        Raises:
            WorkerLost: it has ended.
        """
        if self.lost is not None:
            raise self.lost
        assert self.process.stdin is not None
        self.process.stdin.write(frame(command))

    async def close(self) -> None:
        """Closes its input, which ends it; kills it when it does not end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        await self.reports
        await self._errors

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self._stderr.append(line.decode("utf-8", "replace").rstrip())

    async def _read_reports(self) -> None:
        assert self.process.stdout is not None
        while (report := await read_report(self.process.stdout)) is not None:
            self._on_report(self.number, report)
        status = await self.process.wait()
        await self._errors
        self.lost = WorkerLost(
            f"load process {self.number} (pid {self.process.pid}) ended with status {status}",
            stderr_tail="\n".join(self._stderr),
        )
