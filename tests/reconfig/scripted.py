"""A server, its manager and its processes from a script, on a clock that jumps: minutes of waiting in milliseconds.

The code under test is the real one; only what it looks at is scripted.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from loadgen.records import Generation, GenerationRequest, Outcome, RequestRecord
from reconfig.loglines import LineAssembler, LogLine
from reconfig.managers.protocol import LogBegin, ManagerStatus
from reconfig.presets import ProofStep
from reconfig.processes import ProcessSeen
from reconfig.server import Health, Listing, ServerFacts


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits for something that the script never does")
        self.now += max(timeout, 0.0)
        return []


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Runs it here and now: a thread would take real time, and this clock would jump over it."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # whatever the work raises is for whoever awaits it
            future.set_exception(error)
        return future


T = TypeVar("T")


def run_jumping(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine on the jumping clock."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(work())


def generation(
    text: str = "a fine answer", tokens: int | None = 8, finish: str | None = "stop", **changes: Any
) -> Generation:
    """What a probe gets."""
    values: dict[str, Any] = {
        "t": 0.0, "cell": None, "rid": "probe", "purpose": "probe", "t_due": 0.0, "t_send": 0.0, "n_out": tokens,
        "finish_reason": finish, "outcome": Outcome.OK,
    }  # fmt: skip
    return Generation(record=RequestRecord(**{**values, **changes}), content=text)


class World:
    """Everything that is scripted; `at` says what changes how many seconds after the start."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {
            "status": ManagerStatus(state="stopped", words="inactive (dead)"),
            "port": False, "health": None, "facts": {}, "models": ("demo/target-27b",), "answer": None,
            "listeners": (), "alive": set(), "used_gb": 0.0, "holders": (),
        }  # fmt: skip
        self.log = b""
        self.started_at: float | None = None
        self.steps: list[tuple[float, ProofStep]] = []
        self.lines: list[LogLine] = []
        self.open_probes = 0
        self.most_open_probes = 0
        self.signals: list[tuple[int, int]] = []
        self._script: list[tuple[float, Callable[[], None]]] = []

    @property
    def now(self) -> float:
        """Seconds since the start of the script."""
        return 0.0 if self.started_at is None else asyncio.get_running_loop().time() - self.started_at

    def begin(self) -> None:
        """Starts the script's clock."""
        self.started_at = asyncio.get_running_loop().time()

    def at(self, t: float, *, log: bytes = b"", do: Callable[[], None] | None = None, **changes: Any) -> None:
        """At `t` seconds after the start, the state changes, the log grows, or something is done."""

        def change() -> None:
            self.state.update(changes)
            self.log += log
            if do is not None:
                do()

        self._script.append((t, change))
        self._script.sort(key=lambda entry: entry[0])

    def seen(self) -> dict[str, Any]:
        """The state now."""
        while self.started_at is not None and self._script and self._script[0][0] <= self.now + 1e-9:
            self._script.pop(0)[1]()
        return self.state

    def on_step(self, step: ProofStep) -> None:
        """Keeps what the operator would see."""
        self.steps.append((self.now, step))

    def shown_at(self, t: float) -> str:
        """Words and detail of the step that was shown at `t`."""
        step = [step for when, step in self.steps if when <= t][-1]
        return f"{step.words}: {step.detail}"


class ScriptedManager:
    """See `reconfig.managers.protocol.Manager`."""

    kind = "scripted"
    restarts_server = True
    pids_are_local = True
    elsewhere = False
    starts_log = True

    def __init__(self, world: World, *, stop_first: bool = False, kills_orphans: bool = False) -> None:
        self.world = world
        self.stop_first = stop_first
        self.kills_orphans = kills_orphans
        self.calls: list[str] = []
        self.log_from = 0

    async def status(self) -> ManagerStatus:
        status: ManagerStatus = self.world.seen()["status"]
        return status

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self.calls.append("prepare")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def start(self) -> None:
        self.calls.append("start")
        self.world.begin()

    async def undo(self) -> None:
        self.calls.append("undo")

    async def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        assembler = LineAssembler()
        position = len(self.world.log) if begin == "now" else self.log_from
        while True:
            self.world.seen()
            data, position = self.world.log[position:], len(self.world.log)
            for line in assembler.feed(data):
                yield line
            await asyncio.sleep(0.1)

    async def check(self) -> list[tuple[str, str, str, str]]:
        return []

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        return " ".join(arguments)

    async def leave(self) -> None:
        self.calls.append("leave")


class ScriptedServer:
    """See `reconfig.server.ServerView`."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def port_open(self) -> bool:
        return bool(self.world.seen()["port"])

    async def health(self) -> Health:
        status = self.world.seen()["health"]
        return Health(status, "connection refused" if status is None else f"HTTP {status}")

    async def facts(self) -> ServerFacts | None:
        return ServerFacts(self.world.seen()["facts"])

    async def version(self) -> str | None:
        return None

    async def listing(self) -> Listing | None:
        return Listing(self.world.seen()["models"])


class ScriptedGenerator:
    """See `loadgen.records.Generator`; an answer of `None` hangs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        self.requests.append(request)
        self.world.open_probes += 1
        self.world.most_open_probes = max(self.world.most_open_probes, self.world.open_probes)
        try:
            while True:
                answer: Generation | None = self.world.seen()["answer"]
                if answer is not None:
                    return answer
                await asyncio.sleep(0.5)
        finally:
            self.world.open_probes -= 1


class ScriptedProcesses:
    """See `reconfig.processes.ProcessTable`; a process that gets SIGKILL (or SIGTERM, if it listens to it) is gone."""

    def __init__(self, world: World, *, family: Sequence[int] = (), stubborn: Sequence[int] = ()) -> None:
        self.world = world
        self.members = tuple(family)
        self.stubborn = set(stubborn)

    def listeners(self, port: int) -> tuple[ProcessSeen, ...]:
        found: tuple[ProcessSeen, ...] = self.world.seen()["listeners"]
        return found

    def seen(self, pid: int) -> ProcessSeen | None:
        return ProcessSeen(pid, 0.0, "sglang::scheduler") if pid in self.world.seen()["alive"] else None

    def alive(self, process: ProcessSeen) -> bool:
        return process.pid in self.world.seen()["alive"]

    def family(self, pid: int) -> tuple[ProcessSeen, ...]:
        return tuple(seen for member in self.members if (seen := self.seen(member)) is not None)

    def environment(self, pid: int) -> dict[str, str] | None:
        return None

    def signal(self, process: ProcessSeen, number: int) -> None:
        self.world.signals.append((process.pid, number))
        if number == 9 or process.pid not in self.stubborn:
            self.world.state["alive"].discard(process.pid)
