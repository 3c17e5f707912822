"""One run of one program in one way of shutting it in: starts it, talks with it, drains its output, ends it.

Blocking, and meant for a thread of its own: it depends on no event loop. The parent trusts only the random token that
it gives out after the tests have ended; everything else that comes from inside is a hint for the operator.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time

import msgspec

from evals import confinement, syscall_filter
from evals.program import Phase, Program, RunResult, limits

OUTPUT_KEPT = 64 << 10
OUTPUT_DRAINED = 16 << 20
START_LIMIT_S = 20.0
_REPORT_LIMIT = 64 << 10
_END_LIMIT_S = 5.0


class Stopper:
    """Ends a run from another thread. Close it when the run is over."""

    def __init__(self) -> None:
        self._signal = os.eventfd(0, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Readable once the run is to stop."""
        return self._signal

    def stop(self) -> None:
        """Asks the run to end now; it kills its process, and everything in its sandbox goes with it."""
        os.eventfd_write(self._signal, 1)

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._signal)


def run(
    way: confinement.Way, program: Program, *, timeout_s: float, memory_bytes: int, stopper: Stopper | None = None
) -> RunResult:
    """Runs `program` and returns how it ended; never raises for anything that the program does.

    Args:
        way: how it is shut in.
        program: what is run.
        timeout_s: wall seconds for loading and tests together; starting the sandbox is not counted.
        memory_bytes: address space.
        stopper: lets another thread end the run.
    """
    reports_out, reports_in = os.pipe2(os.O_CLOEXEC)
    filter_fd: int | None = None
    try:
        if way.level == "bwrap":
            filter_fd = _filter_descriptor()
        started = time.monotonic()
        start = confinement.launch(way, reports_in, limits(timeout_s, memory_bytes), filter_fd)
        process = _start(start)
    except OSError as error:
        os.close(reports_out)
        return RunResult(status="sandbox", error=type(error).__name__, message=str(error))
    finally:
        os.close(reports_in)
        if filter_fd is not None:
            os.close(filter_fd)
    with process:
        return _Run(process, reports_out, program, timeout_s, started, stopper).to_its_end()


def _start(start: confinement.Launch) -> subprocess.Popen[bytes]:
    identity = start.drop_to
    return subprocess.Popen(
        start.arguments,
        env=start.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=start.pass_fds,
        user=identity,
        group=identity,
        extra_groups=None if identity is None else [],
        cwd=start.folder,
        start_new_session=True,
    )


def _filter_descriptor() -> int:
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, syscall_filter.compiled(may_execute=True))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class _Run:
    """The conversation with one process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reports: int,
        program: Program,
        timeout_s: float,
        started: float,
        stopper: Stopper | None,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._reports = reports
        self._program = program
        self._timeout_s = timeout_s
        self._started = started
        self._ready_at: float | None = None
        self._deadline = started + START_LIMIT_S
        self._token = secrets.token_hex(16)
        self._phase: Phase = "start"
        self._outgoing = b""
        self._unread = b""
        self._tail = b""
        self._output_bytes = 0
        self._ended: RunResult | None = None
        self._selector = selectors.DefaultSelector()
        if stopper is not None:
            self._selector.register(stopper, selectors.EVENT_READ, self._stopped)

    def to_its_end(self) -> RunResult:
        """Talks until the program reports, leaves, or runs out of time; then ends it and collects its output."""
        for descriptor in (self._stdin, self._stdout, self._reports):
            os.set_blocking(descriptor, False)
        self._selector.register(self._stdout, selectors.EVENT_READ, self._read_output)
        self._selector.register(self._reports, selectors.EVENT_READ, self._read_reports)
        try:
            while not self._over():
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self._ended = self._out_of_time()
                    continue
                for key, _ in self._selector.select(left):
                    key.data()
                    if self._over():
                        break
            return self._collected()
        finally:
            self._selector.close()
            os.close(self._reports)
            self._process.kill()

    def _over(self) -> bool:
        return self._ended is not None

    def _stopped(self) -> None:
        self._ended = RunResult(status="exited", message="stopped from outside")

    def _out_of_time(self) -> RunResult:
        if self._ready_at is None:
            return RunResult(status="sandbox", message=f"not ready after {START_LIMIT_S:g} s")
        where = "while loading" if self._phase == "load" else "in the tests"
        message = f"no result after {self._timeout_s:g} s, {where}"
        if self._output_bytes >= OUTPUT_DRAINED:
            message += f"; held after it had printed {OUTPUT_DRAINED >> 20} MiB"
        return RunResult(status="timeout", message=message)

    def _read_output(self) -> None:
        try:
            part = os.read(self._stdout, 1 << 18)
        except BlockingIOError:
            return
        if not part:
            self._selector.unregister(self._stdout)
            return
        self._output_bytes += len(part)
        self._tail = (self._tail + part)[-OUTPUT_KEPT:]
        if self._output_bytes >= OUTPUT_DRAINED:
            self._selector.unregister(self._stdout)  # its next write blocks until time is up

    def _read_reports(self) -> None:
        try:
            part = os.read(self._reports, 1 << 16)
        except BlockingIOError:
            return
        self._unread += part
        while not self._over() and b"\n" in self._unread:
            record, _, self._unread = self._unread.partition(b"\n")
            self._heard(record.decode("utf-8", "replace").split("\0"))
        if not self._over() and (not part or len(self._unread) > _REPORT_LIMIT):
            self._ended = self._left()

    def _heard(self, fields: list[str]) -> None:
        match fields:
            case ["ready", _] if self._phase == "start":
                self._ready_at = time.monotonic()
                self._deadline = self._ready_at + self._timeout_s
                self._phase = "load"
                self._say(self._program.preamble, self._program.code, self._program.entry_point)
            case ["loaded"] if self._phase == "load":
                self._phase = "tests"
                self._say(self._program.tests)
            case ["done"] if self._phase == "tests":
                self._say(self._token)
            case ["token", token] if self._phase == "tests" and secrets.compare_digest(token, self._token):
                self._ended = RunResult(status="passed")
            case ["failed", where, error, line, message]:
                self._ended = RunResult(
                    status="load_failed" if where == "load" else "failed",
                    error=error,
                    message=message.replace("\\n", "\n"),
                    line=int(line) if line.isdecimal() else None,
                )
            case _:
                self._ended = RunResult(status="exited", message="it spoke in the harness's place")

    def _say(self, *texts: str) -> None:
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            self._outgoing += b"%d\n" % len(encoded) + encoded
        if self._stdin not in self._selector.get_map():
            self._selector.register(self._stdin, selectors.EVENT_WRITE, self._write)

    def _write(self) -> None:
        try:
            self._outgoing = self._outgoing[os.write(self._stdin, self._outgoing) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing = b""
        if not self._outgoing:
            self._selector.unregister(self._stdin)

    def _left(self) -> RunResult:
        """Says how a program ended that closed its reports without a result."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        code = self._process.poll()
        if self._ready_at is None:
            return RunResult(status="sandbox", message="the sandbox did not start")
        number = -code if code is not None and code < 0 else (code or 0) - 128
        if number == signal.SIGXCPU:
            return RunResult(status="timeout", message="out of CPU time")
        if number in set(signal.Signals):
            return RunResult(status="exited", message=f"ended by {signal.Signals(number).name} before the tests did")
        words = "closed its reports" if code is None else f"left with exit status {code}"
        return RunResult(status="exited", message=f"{words} before the tests had ended")

    def _collected(self) -> RunResult:
        ended = time.monotonic()
        self._process.kill()
        self._process.wait()
        if self._stdin in self._selector.get_map():
            self._selector.unregister(self._stdin)
        assert self._process.stdin is not None
        self._process.stdin.close()  # ends a program that bubblewrap had not yet tied to its own life
        deadline = time.monotonic() + _END_LIMIT_S
        while self._output_bytes < OUTPUT_DRAINED and (left := deadline - time.monotonic()) > 0:
            if self._stdout not in self._selector.get_map():
                break  # end of file: no process of the sandbox is left that could write
            if any(key.fd == self._stdout for key, _ in self._selector.select(left)):
                self._read_output()
        capped = self._output_bytes > len(self._tail)
        return msgspec.structs.replace(
            self._ended or self._out_of_time(),
            phase=self._phase,
            output=self._tail.decode("utf-8", "replace"),
            output_bytes=self._output_bytes,
            output_capped=capped,
            exit_status=self._process.returncode,
            wall_s=ended - (self._ready_at or self._started),
            start_s=(self._ready_at or ended) - self._started,
        )
