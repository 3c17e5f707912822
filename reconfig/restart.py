"""The restart itself: the old server ends, GPU memory is free, the new one is started and has opened its port.

Each step waits with a limit of its own and says what it is waiting for.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import msgspec

from reconfig.durations import words as duration
from reconfig.failure import NotInEffectError
from reconfig.limits import Limits
from reconfig.processes import ProcessSeen
from reconfig.situation import Onlooker, Situation
from reconfig.steps import Steps
from reconfig.waiting import wait_until
from reconfig.watching import StartWatch

KILL_LIMIT_S = 5.0
CLOCK_SLACK_S = 1.0


class GpuMemory(msgspec.Struct, frozen=True):
    """Whether the GPUs are free for the next start: in words ("70.2 GB in use"), and which processes hold memory."""

    released: bool
    words: str = ""
    holders: tuple[int, ...] = ()


GpuMemorySource = Callable[[], Awaitable[GpuMemory]]


class Restart:
    """Takes a restart's steps.

    Args:
        onlooker: who sees manager, port and server; `watch`: who follows the new start.
        steps: who is told; `limits`: of each step.
        warn: takes reasons to look twice.
    """

    def __init__(
        self, onlooker: Onlooker, watch: StartWatch, steps: Steps, limits: Limits, warn: Callable[[str], None]
    ) -> None:
        self._onlooker = onlooker
        self._manager = onlooker.manager
        self._watch = watch
        self._steps = steps
        self._limits = limits
        self._warn = warn
        self._now = asyncio.get_running_loop().time
        self._started_wall = 0.0
        self.started = 0.0

    async def stop(self, before: Situation) -> None:
        """Ends the old server; what outlives it is named, and ended only where that is wanted.

        Raises:
            ManagerError: it could not be stopped.
        """
        self._steps.begin("stop", "ending the old server (it may drain)")
        family = self._onlooker.family(before.pid)
        await self._manager.stop()
        left = self._alive(family)
        if left and self._manager.kills_orphans:
            left = await self._kill(left)
        if not left:
            self._steps.done("stop")
            return
        words = "outlived the old server and was not ended (kill_orphans is not set): " + _names(left)
        self._warn(words)
        self._steps.done("stop", words)

    async def wait_for_memory(self, gpu_memory: GpuMemorySource) -> None:
        """Waits until GPU memory is released.

        Raises:
            NotInEffectError: somebody holds it longer than the limit; they are named and not ended.
        """
        self._steps.begin("memory", "waiting until GPU memory is released")
        until = self._now() + self._limits.memory_s
        while not (memory := await gpu_memory()).released:
            self._steps.news("memory", memory.words)
            if self._now() >= until:
                holders = ", ".join(self._onlooker.named(pid) for pid in memory.holders) or "an unknown process"
                raise NotInEffectError(
                    "memory",
                    f"blocked: GPU memory is still in use after {duration(self._limits.memory_s)} ({memory.words}), "
                    f"held by {holders}: not ours to end; end it, or raise memory_timeout; where it is another job's, "
                    "on GPUs that are not the server's, name the server's own: [telemetry] devices = [0, 1, ...]",
                )
            await asyncio.sleep(self._limits.look_s)
        self._steps.done("memory", memory.words)

    def refuse_foreign_listener(self) -> None:
        """After a stop nobody may be on the port: a start would fail on it, minutes later.

        Raises:
            NotInEffectError: somebody is.
        """
        left = self._onlooker.listeners() if self._manager.stop_first else ()
        if left:
            raise NotInEffectError(
                "port",
                f"port {self._onlooker.port} is in use by {_names(left)}, not started by this manager: end it first",
            )

    async def start(self, instructions: str) -> None:
        """Starts what was prepared.

        Raises:
            ManagerError: it could not be started.
        """
        self._steps.begin("start", "starting the server", instructions)
        self._started_wall = time.time()
        await self._manager.start()
        self.started = self._now()
        self._steps.done("start")

    async def wait_until_old_is_gone(self, before: Situation) -> None:
        """Waits until the old instance can't answer any more, and the manager calls the running one another.

        Raises:
            NotInEffectError: it is still there after the limit.
        """
        self._steps.begin("old-gone", "waiting until the old process is gone")
        until = self._now() + self._limits.stop_s
        refused = False
        while True:
            left = self._alive(before.listeners)
            new = self._watch.is_new
            if new is None and not before.listeners and self._watch.status is not None:
                facts = await self._onlooker.server_facts()
                refused = refused or facts is None
                new = refused or (facts is not None and facts.instance != before.instance)
            if not left and new is not False and self._watch.status is not None:
                break
            names = _names(left) or "the old instance"
            nothing_ran = not before.facts and not before.listeners
            self._steps.news("old-gone", "no new process yet" if nothing_ran else f"{names} still runs")
            if self._now() >= until:
                raise NotInEffectError(
                    "timeout",
                    f"{names} still runs after {duration(self._limits.stop_s)}: raise stop_timeout, or end it",
                )
            await asyncio.sleep(self._limits.look_s)
        self._steps.done("old-gone", "")

    async def wait_for_port(self, known_s: float | None) -> float:
        """Waits until the new server has opened its port; the seconds that took since the start.

        Args:
            known_s: what earlier loads took, where remembered.

        Raises:
            NotInEffectError: it is not open in time.
        """
        self._steps.begin("port", "waiting for the new server to open its port")
        while True:
            passed_s = self._now() - self.started
            if await self._onlooker.opened():
                listeners = await asyncio.to_thread(self._onlooker.listeners)
                if not listeners or self._is_ours(listeners):
                    break
                self._steps.news("port", f"the port is answered by {_names(listeners)}, which is not the new server")
            else:
                self._tell_progress(passed_s, known_s)
            if passed_s >= self._limits.ready_s:
                raise NotInEffectError(
                    "timeout",
                    f"port {self._onlooker.port} is not open after {duration(self._limits.ready_s)} "
                    f"({self._watch.log.state}): raise ready_timeout if it only needs longer",
                )
            await asyncio.sleep(self._limits.look_s)
        self._steps.done("port", f"open after {duration(passed_s)}")
        return passed_s

    def _is_ours(self, listeners: tuple[ProcessSeen, ...]) -> bool:
        """Whether one of them was started after us, or belongs to what the manager runs."""
        if any(listener.started >= self._started_wall - CLOCK_SLACK_S for listener in listeners):
            return True
        status = self._watch.status
        family = self._onlooker.family(status.pid if status is not None else None)
        return any(listener in family for listener in listeners)

    def _tell_progress(self, passed_s: float, known_s: float | None) -> None:
        state = self._watch.log.state
        share = self._watch.log.share
        if known_s is not None:
            left_s = known_s - passed_s
            state += f", about {duration(left_s)} left" if left_s > 0 else f", longer than usual ({duration(known_s)})"
            share = min(passed_s / known_s, 0.99) if share is None and known_s > 0 else share
        self._steps.news("port", state, share)

    async def _kill(self, processes: list[ProcessSeen]) -> list[ProcessSeen]:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                self._onlooker.processes.signal(process, number)
            if await wait_until(lambda: not self._alive(processes), limit_s=KILL_LIMIT_S, every_s=self._limits.look_s):
                break
        return self._alive(processes)

    def _alive(self, processes: tuple[ProcessSeen, ...] | list[ProcessSeen]) -> list[ProcessSeen]:
        return [process for process in processes if self._onlooker.processes.alive(process)]


def _names(processes: tuple[ProcessSeen, ...] | list[ProcessSeen]) -> str:
    return ", ".join(process.words for process in processes)
