"""Puts a preset in effect through `reconfig` and tells every step; finds out afterwards what the server now is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from loadgen.errors import TargetError, WorkerLost
from loadgen.pool import WorkerPool
from loadgen.spec import Target
from loadgen.target import detect_target
from reconfig.flags import CannotExpress, arguments
from reconfig.limits import Limits, limits_from
from reconfig.loads import LoadMemory
from reconfig.managers.protocol import Manager, ManagerError
from reconfig.presets import Preset, Proof, ProofStep
from reconfig.putting import prove_running, put_in_effect
from reconfig.redaction import redactor_for
from reconfig.restart import GpuMemory
from reconfig.vocabularies import vocabulary_from
from sessions.engine.guarding import Guard
from sessions.engine.measuring import Measuring
from sessions.engine.watching import Watch
from sessions.events import Phase, PhaseChanged, PresetProved, ProofStepChanged, Said
from sessions.recorder import Recorder
from sessions.sweep import Sweep

STEP_INTERVAL_S = 0.25
COME_BACK_S = 60.0
"""How long a server that is measured as it stands may be away before it is given up."""
PHASE_OF_STEP: dict[str, Phase] = {"generate": "probing", "settings": "checking", "model": "checking"}


class Applying:
    """Puts presets in effect, one at a time.

    Args:
        sweep: what is asked.
        recorder: where every step goes.
        pool: runs the proof's generations, and is told of the new server.
        watch: takes the server's log, and forgets the old server's counters.
        manager: whatever starts the server.
        memory: earlier loads on this machine.
        measuring: is told of the new server.
        target: the server as the sweep file tells it.
        guard: remembers the proven server.
        gpu_memory: tells whether the GPUs are free, where that can be seen.
    """

    def __init__(
        self,
        sweep: Sweep,
        recorder: Recorder,
        pool: WorkerPool,
        watch: Watch,
        manager: Manager,
        memory: LoadMemory,
        measuring: Measuring,
        target: Target,
        guard: Guard,
        gpu_memory: Callable[[], Awaitable[GpuMemory]] | None = None,
    ) -> None:
        self._sweep = sweep
        self._recorder = recorder
        self._pool = pool
        self._watch = watch
        self._manager = manager
        self._memory = memory
        self._measuring = measuring
        self._target = target
        self._guard = guard
        self._gpu_memory = gpu_memory
        self._vocabulary = vocabulary_from(sweep.flags)
        self._clean = redactor_for(target.api_key, *(preset.env for preset in sweep.expanded())).clean
        self._first_found: dict[str, str | None] | None = None
        self._told: dict[str, tuple[ProofStep, float]] = {}

    def cannot_express(self, preset: Preset) -> str | None:
        """Returns why the sweep's vocabulary has no words for a preset, or `None` when it has."""
        try:
            arguments(preset, self._vocabulary)
        except CannotExpress as error:
            return str(error)
        return None

    async def apply(self, preset: Preset) -> bool:
        """Puts a preset in effect and proves it; returns whether it is.

        A failure on a full disk proves nothing, since the server's log may be cut off: the preset goes on waiting.
        """
        words = f"{'proving' if self._sweep.as_it_stands else 'putting'} {preset.name}"
        words += "" if self._sweep.as_it_stands else " in effect"
        self._recorder.happen(PhaseChanged(phase="reconfiguring", preset=preset.name, words=words))
        self._told.clear()
        await self._guard.forget()
        try:
            proof = await self._proof_with_workers(preset)
        except WorkerLost as error:
            proof = Proof(preset=preset.name, in_effect=False, cause="client", failure=f"a load process died: {error}")
        proof = self._as_first_found(replace(proof, preset=preset.name))
        if proof.in_effect:
            proof = await self._settle(proof)
        for warning in proof.warnings:
            self._recorder.happen(Said(level="warning", words=warning))
        if not proof.in_effect and self._recorder.disk_full:
            words = f"the disk is full; {preset.name} is tried again when there is room ({proof.failure})"
            self._recorder.happen(PhaseChanged(phase="idle", words=words))
            return False
        self._recorder.happen(PresetProved(proof=proof))
        self._recorder.sync()
        return proof.in_effect

    async def _proof_with_workers(self, preset: Preset) -> Proof:
        """Proves, with new load processes where one has died meanwhile."""
        try:
            await self._pool.retarget(self._target)
            return await self._proof(preset)
        except WorkerLost:
            await self._pool.start()
            return await self._proof(preset)

    def _as_first_found(self, proof: Proof) -> Proof:
        """Refuses a server that is measured as it stands and came back with other settings than it had at first."""
        if not (self._sweep.as_it_stands and proof.in_effect):
            return proof
        found = {name: proof.instance.get(name) for name in ("server launch_command",)} | {"model": proof.model}
        first, self._first_found = self._first_found, self._first_found or found
        if first is None or first == found:
            return proof
        changed = ", ".join(
            f"{name}: {first[name]} at first, {found[name]} now" for name in found if first[name] != found[name]
        )
        return replace(
            proof, in_effect=False, cause="setting", failure=f"the server was restarted with other settings ({changed})"
        )

    async def leave(self) -> None:
        """Leaves the server as the sweep file says."""
        wish = self._sweep.leave
        await self._guard.forget()
        try:
            if wish == "stopped":
                self._recorder.happen(PhaseChanged(phase="idle", words="stopping the server, as the sweep asks"))
                await self._manager.stop()
            else:
                preset = self._recorder.state.presets.get(wish)
                if preset is not None and preset.status != "in-effect":
                    await self.apply(preset.preset)
                await self._manager.leave()
        except ManagerError as error:
            words = self._clean(f'the server was not left as asked ("{wish}"): {error}')
            self._recorder.happen(Said(level="error", words=words))

    async def _proof(self, preset: Preset) -> Proof:
        limits = limits_from(self._sweep.server.manager)
        if self._sweep.as_it_stands:
            return await self._proof_as_it_stands(preset, limits)
        return await put_in_effect(
            preset,
            vocabulary=self._vocabulary,
            manager=self._manager,
            target=self._target,
            generator=self._pool,
            limits=limits,
            on_step=lambda step: self._step(preset.name, step),
            on_log=self._watch.logged,
            clock=self._recorder.now,
            gpu_memory_free=self._gpu_memory,
            memory_of_loads=self._memory,
        )

    async def _proof_as_it_stands(self, preset: Preset, limits: Limits) -> Proof:
        """Proves a server that is not ours to restart; one that was there before is given a while to come back."""
        deadline = self._recorder.now() + (COME_BACK_S if self._first_found is not None else 0.0)
        while True:
            proof = await prove_running(
                None,
                target=self._target,
                generator=self._pool,
                limits=limits,
                on_step=lambda step: self._step(preset.name, step),
                on_log=self._watch.logged,
                clock=self._recorder.now,
            )
            if proof.cause != "port" or self._recorder.now() >= deadline:
                return proof
            await asyncio.sleep(1.0)

    async def _settle(self, proof: Proof) -> Proof:
        """Finds out what the proven server is, and tells everybody who talks to it."""
        wanted = self._sweep.server
        try:
            target = await detect_target(
                wanted.base_url, wanted.model, self._target.api_key, wanted.dialect or self._target.dialect
            )
        except TargetError as error:
            return replace(proof, in_effect=False, failure=str(error), cause="model")
        await self._pool.retarget(target)
        self._measuring.target = target
        self._watch.new_server(_pid(proof))
        await self._guard.remember(proof, self._clean)
        return replace(proof, model=proof.model or target.model)

    def _step(self, preset: str, step: ProofStep) -> None:
        now = self._recorder.now()
        before, told = self._told.get(step.name, (None, 0.0))
        if before is not None and before.state == step.state and now - told < STEP_INTERVAL_S:
            return
        self._told[step.name] = (step, now)
        self._recorder.happen(ProofStepChanged(preset=preset, step=step))
        phase = PHASE_OF_STEP.get(step.name, "reconfiguring")
        if step.state == "running" and phase != self._recorder.state.phase:
            self._recorder.happen(PhaseChanged(phase=phase, preset=preset))


def _pid(proof: Proof) -> int | None:
    text = proof.instance.get("manager pid") or proof.instance.get("listener pid") or ""
    return int(text) if text.isdigit() and int(text) != os.getpid() else None
