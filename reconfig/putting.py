"""Puts a preset in effect on the server, and proves it; or proves what is in effect on a server as it stands.

The one place where the order of the steps is decided: prepare, stop, memory, start, old instance gone, port, health,
two generations, settings, model, and at the end once more that it is still the same instance.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loadgen.records import Generator
from loadgen.spec import Target
from reconfig.effective import compare
from reconfig.expectations import Expected, expectations
from reconfig.failure import NotInEffectError
from reconfig.flags import CannotExpress, Vocabulary, arguments, left_out
from reconfig.limits import Limits
from reconfig.loads import LoadMemory
from reconfig.loglines import LogLine
from reconfig.managers.config import ManualConfig
from reconfig.managers.manual import ManualManager
from reconfig.managers.protocol import Manager, ManagerError
from reconfig.presets import Preset, Proof, ProofStep, SettingFound
from reconfig.processes import ProcessTable
from reconfig.proof import Prover
from reconfig.redaction import redactor_for
from reconfig.restart import GpuMemorySource, Restart
from reconfig.server import ServerView
from reconfig.situation import Onlooker, Situation
from reconfig.steps import Steps
from reconfig.vocabularies import VOCABULARIES
from reconfig.watching import StartWatch

OPERATOR_LOOK_S = 0.5
BUSY_S = 60.0


async def put_in_effect(
    preset: Preset,
    *,
    vocabulary: Vocabulary,
    manager: Manager,
    target: Target,
    generator: Generator,
    limits: Limits | None = None,
    on_step: Callable[[ProofStep], None] | None = None,
    on_log: Callable[[LogLine], None] | None = None,
    clock: Callable[[], float] | None = None,
    gpu_memory_free: GpuMemorySource | None = None,
    memory_of_loads: LoadMemory | None = None,
    server: ServerView | None = None,
    processes: ProcessTable | None = None,
) -> Proof:
    """Restarts the server under a preset and proves that it is in effect; expected failures are told in the proof.

    Args:
        preset: what is asked for.
        vocabulary: how this server spells it.
        manager: whatever starts the server.
        target: the server; an empty model name stands for whatever it serves.
        generator: runs the two generations.
        limits: of each step, in seconds.
        on_step: called at each change of a step.
        on_log: called with each line of the server's log.
        clock: seconds since the session's start, for the steps' times.
        gpu_memory_free: asked again and again after the stop, until GPU memory is released.
        memory_of_loads: earlier loads, for an ETA.
        server: who asks the server, where that is not HTTP.
        processes: who knows the processes, where that is not this machine.
    """
    asked = _Asked(preset, vocabulary, manager, target, generator, limits or Limits(), clock, server, processes)
    putting = _Putting(asked, on_step, on_log)
    return await putting.proof(putting.restart_and_prove(preset, gpu_memory_free, memory_of_loads))


async def prove_running(
    preset: Preset | None,
    *,
    target: Target,
    generator: Generator,
    vocabulary: Vocabulary | None = None,
    manager: Manager | None = None,
    limits: Limits | None = None,
    on_step: Callable[[ProofStep], None] | None = None,
    on_log: Callable[[LogLine], None] | None = None,
    clock: Callable[[], float] | None = None,
    server: ServerView | None = None,
    processes: ProcessTable | None = None,
) -> Proof:
    """Proves that a running server generates, and that a preset is in effect on it; restarts nothing.

    Args:
        preset: what it should have; `None` for a server as it stands.
        target: the server; an empty model name stands for whatever it serves.
        generator: runs the two generations.
        vocabulary: how this server spells a preset.
        manager: for its facts and its log, where it is known who runs the server.
        limits: of each step, in seconds.
        on_step: called at each change of a step.
        on_log: called with each line of the server's log.
        clock: seconds since the session's start, for the steps' times.
        server: who asks the server, where that is not HTTP.
        processes: who knows the processes, where that is not this machine.
    """
    asked = _Asked(
        preset,
        vocabulary or VOCABULARIES["mainline"],
        manager or ManualManager(ManualConfig()),
        target,
        generator,
        limits or Limits(),
        clock,
        server,
        processes,
    )
    putting = _Putting(asked, on_step, on_log)
    return await putting.proof(putting.prove_as_it_stands())


@dataclass(frozen=True)
class _Asked:
    preset: Preset | None
    vocabulary: Vocabulary
    manager: Manager
    target: Target
    generator: Generator
    limits: Limits
    clock: Callable[[], float] | None
    server: ServerView | None
    processes: ProcessTable | None


class _Putting:
    def __init__(
        self, asked: _Asked, on_step: Callable[[ProofStep], None] | None, on_log: Callable[[LogLine], None] | None
    ) -> None:
        self._preset = asked.preset
        self._vocabulary = asked.vocabulary
        self._manager = asked.manager
        self._target = asked.target
        self._limits = asked.limits
        self._now = asyncio.get_running_loop().time
        self._begun = self._now()
        self._clean = redactor_for(asked.target.api_key, asked.preset.env if asked.preset else {}).clean
        self._steps = Steps(
            asked.clock or (lambda: self._now() - self._begun), on_step or (lambda _: None), self._clean
        )
        self._watch = StartWatch(asked.manager, asked.limits, on_log or (lambda _: None), self._clean)
        self._onlooker = Onlooker(asked.target, asked.manager, asked.server, asked.processes)
        self._prover = Prover(
            target=asked.target,
            server=self._onlooker.server,
            generator=asked.generator,
            limits=asked.limits,
            steps=self._steps,
        )
        self._proven: Situation | None = None
        self._load_s: float | None = None

    async def proof(self, work: Awaitable[None]) -> Proof:
        """Runs the work and says in a proof how it ended."""
        failure: NotInEffectError | None = None
        try:
            await work
        except NotInEffectError as error:
            failure = error
        except ManagerError as error:
            failure = NotInEffectError(error.cause, str(error))
        except CannotExpress as error:
            failure = NotInEffectError("vocabulary", str(error))
        if failure is not None:
            self._steps.failed(failure.words)
        return Proof(
            preset=self._preset.name if self._preset is not None else "as it stands",
            in_effect=failure is None,
            steps=self._steps.taken,
            settings=tuple(self._cleaned(found) for found in self._prover.settings),
            instance={
                name: self._clean(text)
                for name, text in (self._proven.identity if self._proven is not None else {}).items()
            },
            generations=tuple(self._prover.generations),
            failure=self._clean(failure.words) if failure is not None else None,
            cause=failure.cause if failure is not None else None,
            warnings=tuple(self._prover.warnings),
            model=self._prover.model,
            log_tail=tuple(self._watch.log.tail),
            took_s=self._now() - self._begun,
            load_s=self._load_s,
        )

    def _cleaned(self, found: SettingFound) -> SettingFound:
        shown = self._clean(found.found) if found.found is not None else None
        return SettingFound(found.setting, self._clean(found.asked), shown, found.source, found.ok)

    async def restart_and_prove(
        self, preset: Preset, gpu_memory: GpuMemorySource | None, loads: LoadMemory | None
    ) -> None:
        """All steps, with a restart."""
        flags, env = arguments(preset, self._vocabulary)
        expected = expectations(preset, self._vocabulary)
        instructions = self._manager.instructions(flags, env)
        if not self._manager.restarts_server:
            without = left_out(preset, self._vocabulary)
            if without:
                instructions = f"leave out {', '.join(without)}; {instructions}"
            await self._ask_operator(instructions, expected)
            await self._prove(expected)
            return
        before = await self._onlooker.look()
        self._watch.old_facts = before.facts
        restart = Restart(self._onlooker, self._watch, self._steps, self._limits, self._prover.warnings.append)
        try:
            await self._manager.prepare(flags, env)
            if self._manager.stop_first or gpu_memory is not None:
                await restart.stop(before)
            if gpu_memory is not None:
                await restart.wait_for_memory(gpu_memory)
            restart.refuse_foreign_listener()
            await restart.start(instructions)
        finally:
            # A start that was reached keeps what was prepared; anything before it leaves no trace.
            await asyncio.shield(self._manager.undo())
        known_s = loads.expected_s(self._target.model, self._onlooker.host) if loads is not None else None
        await self._watch.beside(self._from_start(restart, before, expected, known_s))
        if loads is not None and self._load_s is not None:
            loads.remember(self._target.model, self._onlooker.host, self._load_s)

    async def prove_as_it_stands(self) -> None:
        """The proof alone, of a server as it stands."""
        expected = expectations(self._preset, self._vocabulary) if self._preset is not None else []
        self._steps.begin("port", f"is {self._onlooker.host}:{self._onlooker.port} open?")
        if not await self._onlooker.server.port_open():
            raise NotInEffectError(
                "port", f"nothing answers at {self._target.base_url}: start the server, or correct base_url"
            )
        self._steps.done("port")
        reader = asyncio.create_task(self._watch.read_log("running"))
        try:
            until = self._now() + min(self._limits.ready_s, BUSY_S)
            await self._prover.wait_until_healthy(until, lambda: self._watch.log.state, must=False)
            await self._prove(expected)
            cause = self._watch.log.cause
            if cause is not None and cause.kind == "oom":
                self._prover.warnings.append(f"the server's log shows {cause.words}")
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _from_start(
        self, restart: Restart, before: Situation, expected: list[Expected], known_s: float | None
    ) -> None:
        await restart.wait_until_old_is_gone(before)
        self._load_s = await restart.wait_for_port(known_s)
        await self._healthy(restart.started + self._limits.ready_s)
        await self._prove(expected)

    async def _healthy(self, until: float) -> None:
        await self._prover.wait_until_healthy(until, lambda: self._watch.log.state)

    async def _prove(self, expected: list[Expected]) -> None:
        self._proven = await self._onlooker.look()
        await self._prover.generate_twice()
        await self._prover.check_settings(
            expected,
            log=self._watch.log,
            log_is_whole=self._manager.starts_log,
            given_env=self._onlooker.environment(self._proven.pid),
        )
        await self._prover.check_model()
        changed = self._proven.changed(await self._onlooker.look())
        if changed:
            raise NotInEffectError(
                "instance", f"the server was replaced during the proof ({', '.join(changed)} changed)"
            )

    async def _ask_operator(self, instructions: str, expected: list[Expected]) -> None:
        """Waits until the settings are there, however the operator did it; they may be there already."""
        self._steps.begin("start", "waiting for you", instructions)
        until = self._now() + self._limits.ready_s
        while True:
            facts = await self._onlooker.server_facts()
            if facts is not None:
                found = compare(expected, facts, window_line=None, log_read=False)
                wrong = [f"{setting.setting} is {setting.found}" for setting in found if not setting.ok]
                if not wrong:
                    break
                self._steps.news("start", f"now {', '.join(wrong)}; {instructions}")
            else:
                self._steps.news("start", f"nothing answers at {self._target.base_url} now; {instructions}")
            if self._now() >= until:
                raise NotInEffectError("timeout", "the server was not restarted with the preset's settings in time")
            await asyncio.sleep(OPERATOR_LOOK_S)
        self._steps.done("start")
        await self._healthy(self._now() + self._limits.ready_s)
