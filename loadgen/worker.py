"""A load process: `python -m loadgen.worker`, commands on its standard input, reports on its standard output.

It reads streams and does nothing else, so that nothing disturbs its timestamps. It ends when its input is closed, which
is also what the death of the engine looks like from here.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
from collections.abc import Coroutine
from typing import Any

import uvloop

from loadgen.cell import CellRun
from loadgen.client import Client, raise_file_limit
from loadgen.messages import (
    CancelOne,
    CellFailed,
    CellPrepared,
    Command,
    Configure,
    OneDone,
    PrepareCell,
    Report,
    RunOne,
    Share,
    SkipCell,
    StartCell,
    StopStarting,
    frame,
    read_command,
)
from loadgen.precedence import take_precedence
from loadgen.records import GenerationRequest
from loadgen.spec import CellSpec
from loadgen.workload import PromptSource

ABORT_LIMIT_S = 2.0


class Worker:
    """Takes commands and runs them; everything long is a task of its own."""

    def __init__(self, out: asyncio.WriteTransport) -> None:
        self._out = out
        self._connections = raise_file_limit()
        self._client: Client | None = None
        self._number = 0
        self._ones: dict[int, asyncio.Task[None]] = {}
        self._cell: asyncio.Task[None] | None = None
        self._run: CellRun | None = None
        self._start: asyncio.Future[int] | None = None

    async def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task and lets it take its first step: one cancelled before that would end without an answer."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_die_of_a_bug)
        await asyncio.sleep(0)
        return task

    async def take(self, command: Command) -> None:
        """Runs one command, or starts what it asks for."""
        match command:
            case Configure():
                old, self._number = self._client, command.worker
                self._client = Client(command.target, origin_ns=command.origin_ns, connections=self._connections)
                if old is not None:
                    await old.close()
            case RunOne():
                one = await self._spawn(self._run_one(command.number, command.request))
                if not one.done():
                    self._ones[command.number] = one
            case CancelOne():
                if command.number in self._ones:
                    self._ones[command.number].cancel()
            case PrepareCell():
                self._start = asyncio.get_running_loop().create_future()
                self._cell = await self._spawn(self._run_cell(command.spec, command.share, self._start, self._cell))
            case StartCell():
                if self._start is not None and not self._start.done():
                    self._start.set_result(command.at_ns)
            case StopStarting():
                if self._run is not None:
                    self._run.stop_starting()
            case SkipCell():
                if self._run is not None:
                    self._run.stop_starting()
                if self._cell is not None:
                    self._cell.cancel()

    async def close(self) -> None:
        """Aborts what is running, and ends."""
        tasks = [*self._ones.values(), *([self._cell] if self._cell is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABORT_LIMIT_S)
        if self._client is not None:
            await self._client.close()

    def _send(self, report: Report) -> None:
        self._out.write(frame(report))

    async def _run_one(self, number: int, request: GenerationRequest) -> None:
        try:
            assert self._client is not None
            self._send(OneDone(number, await self._client.generate(request, worker=self._number)))
        finally:
            self._ones.pop(number, None)

    async def _run_cell(
        self, spec: CellSpec, share: Share, start: asyncio.Future[int], before: asyncio.Task[None] | None
    ) -> None:
        assert self._client is not None
        try:
            if before is not None:
                await asyncio.wait([before])
            if len(range(share.worker, spec.concurrency, share.workers)) > self._connections:
                raise ValueError(
                    f"{spec.concurrency} streams at once need more open files than the limit allows "
                    f"({self._connections} connections a process): raise `ulimit -n`, or use more workers"
                )
            self._run = CellRun(self._client, spec, share, PromptSource(spec), self._send)
            await self._run.warm_up()
            self._run.prepare()
            self._send(CellPrepared(share.serial))
            self._send(await self._run.run(await start))
        except asyncio.CancelledError:
            self._send(CellFailed(share.serial, ""))
            raise
        except (ValueError, OSError, ExceptionGroup) as exc:
            cause = _first(exc)
            if not isinstance(cause, ValueError | OSError):
                raise
            self._send(CellFailed(share.serial, str(cause)))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _die_of_a_bug(task: asyncio.Task[None]) -> None:
    """Ends the process when a task failed in a way that nobody foresaw: the engine sees the process die, and why."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(70)


async def main() -> None:
    """Serves commands until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    # Reports go to a descriptor of their own: a stray print anywhere must not land between them.
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, reports)
    worker = Worker(out)
    gc.collect()
    gc.freeze()
    while (command := await read_command(reader)) is not None:
        await worker.take(command)
    await worker.close()
    out.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_precedence()
    uvloop.run(main())
