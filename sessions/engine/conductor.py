"""The engine's state machine: asks the plan what comes next, does it, and obeys commands in between.

What an interruption does is decided here and nowhere else: a cell that is left goes back to waiting (or is skipped),
a preset that is being put in effect is given up cleanly, and nothing that was measured is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from reconfig.durations import words as duration
from sessions.commands import Command, Reply
from sessions.engine.applying import Applying
from sessions.engine.checking import Checking
from sessions.engine.measuring import Measuring
from sessions.engine.neighbours import marks_from_neighbours
from sessions.events import (
    LEFT,
    CellEnded,
    CellKey,
    CellMarked,
    CellReset,
    CommandReceived,
    NoteAdded,
    PhaseChanged,
    PresetAdded,
    PresetSkipped,
    PresetsReordered,
)
from sessions.plan import ApplyPreset, MeasureCell, RunCoding, RunLossless, Step, anything_left, next_step, plan_cells
from sessions.recorder import Recorder
from sessions.state import CellState, SessionState
from sessions.sweep import Sweep

Ending = Literal["finished", "failed", "stopped"]
DISK_CHECK_S = 1.0


class Conductor:
    """Runs a plan to its end.

    Args:
        sweep: what is asked.
        recorder: the state and the log.
        applying, measuring, checking: the three things that can be done.
    """

    def __init__(
        self, sweep: Sweep, recorder: Recorder, applying: Applying, measuring: Measuring, checking: Checking
    ) -> None:
        self._sweep = sweep
        self._recorder = recorder
        self._applying = applying
        self._measuring = measuring
        self._checking = checking
        self._paused = False
        self._woken = asyncio.Event()
        self._wanted: str | None = None
        self._stop: Literal["", "now", "after-cell"] = ""
        self._doing: asyncio.Task[bool] | None = None
        self._step: Step | None = None
        self._failures = 0

    @property
    def state(self) -> SessionState:
        """The session's state."""
        return self._recorder.state

    async def run(self) -> tuple[Ending, str]:
        """Does step after step until nothing is left, too much failed, or the operator stops it."""
        self._catch_up()
        while True:
            await self._gate()
            if self._stop:
                return "stopped", "as asked"
            step = next_step(self.state, self._wanted)
            if step is None:
                return "finished", self._tally()
            self._step = step
            self._doing = asyncio.create_task(self._do(step))
            try:
                good = await self._doing
            except asyncio.CancelledError:
                if not self._doing.cancelled() or (current := asyncio.current_task()) is None or current.cancelling():
                    self._doing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._doing
                    raise
                continue
            finally:
                self._step = None
            if good:
                self._failures = 0 if isinstance(step, MeasureCell) else self._failures
            elif isinstance(step, RunCoding | RunLossless) or self._status(step) not in ("skipped", "waiting"):
                self._failures += 1
            if self._failures >= self._sweep.limits.max_failures:
                return "failed", f"{self._failures} failures in a row; {self._tally()}"

    def _catch_up(self) -> None:
        """Does what an engine that was killed did not come to do after its last cell, switch or eval."""
        for name, preset in self.state.presets.items():
            if preset.status == "not-in-effect":
                self._without(name)
            elif preset.status == "skipped":
                self._skip_cells(name)
        measured = [cell.key for cell in self.state.cells.values() if cell.status == "measured"]
        for key in measured:
            self._mark_neighbours(key)
        if measured:
            self._checking.suspect()

    async def _gate(self) -> None:
        """Waits while the sweep is paused or the disk is full; a preset asked for by hand passes a pause."""
        while self._recorder.disk_full or (self._paused and self._wanted is None):
            if self._stop:
                return
            if self.state.phase != "paused":
                why = "the disk is full" if self._recorder.disk_full else "as asked"
                self._recorder.happen(PhaseChanged(phase="paused", preset=self.state.current_preset, words=why))
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DISK_CHECK_S if self._recorder.disk_full else None):
                    await self._woken.wait()

    async def _do(self, step: Step) -> bool:
        match step:
            case ApplyPreset(name):
                good = await self._applying.apply(self.state.presets[name].preset)
                if self._status(step) == "waiting":
                    return False
                self._wanted = None if self._wanted == name else self._wanted
                if good:
                    self._take_up_again(name)
                else:
                    self._without(name)
                return good
            case RunCoding(name):
                return await self._checking.coding(name)
            case RunLossless(name):
                return await self._checking.lossless(name)
            case MeasureCell(cell):
                good = await self._measuring.measure(cell, self.state.presets[cell.preset].preset)
                if good:
                    self._mark_neighbours(cell)
                    self._checking.suspect()
                elif self._cell(step).status == "failed" and self._recorder.disk_full:
                    self._recorder.happen(CellReset(cell=cell, reason="the disk was full"))
                return good

    def _mark_neighbours(self, measured: CellKey) -> None:
        for key, mark in marks_from_neighbours(self.state, measured, self._sweep):
            figures = self.state.cells[key.text].figures
            if figures is not None and mark not in figures.marks:
                self._recorder.happen(CellMarked(cell=key, mark=mark))

    def _without(self, name: str) -> None:
        """Ends the cells of a preset that is not in effect: they get no figures at all."""
        reason = self.state.presets[name].reason
        for cell in list(self.state.cells.values()):
            if cell.key.preset == name and cell.status == "waiting":
                self._recorder.happen(
                    CellEnded(cell=cell.key, run=cell.key.text, outcome="not-in-effect", reason=reason)
                )

    def _status(self, step: ApplyPreset | MeasureCell) -> str:
        return self._cell(step).status if isinstance(step, MeasureCell) else self.state.presets[step.preset].status

    def _take_up_again(self, name: str) -> None:
        """A preset that failed before and is in effect now: its cells are measured after all."""
        for cell in list(self.state.cells.values()):
            if cell.key.preset == name and cell.status == "not-in-effect":
                self._recorder.happen(CellReset(cell=cell.key, reason="its preset is in effect now"))

    def _cell(self, step: MeasureCell) -> CellState:
        return self.state.cells[step.cell.text]

    def _tally(self) -> str:
        cells = self.state.cells.values()
        measured = sum(1 for c in cells if c.status == "measured")
        lost = [name for name, p in self.state.presets.items() if p.status == "not-in-effect"]
        missing = f"; not in effect: {', '.join(lost)}" if lost else ""
        return f"{measured} of {len(cells)} cells measured{missing}"

    async def obey(self, command: Command) -> Reply:
        """Carries a command out and says what will happen, or why not."""
        if command.name == "note":
            self._recorder.happen(NoteAdded(text=command.argument))
            return Reply(ok=True, words="noted")
        if self.state.status != "running":
            return Reply(ok=False, words=f"the session has {self.state.status}")
        self._recorder.happen(CommandReceived(command=command.name, argument=command.argument))
        commands: dict[str, Callable[[Command], Awaitable[Reply]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "skip": self._skip,
            "repeat": self._repeat,
            "apply": self._apply,
            "stop": self._stop_now,
            "stop-after-cell": self._stop_after_cell,
            "add-preset": self._add_preset,
            "skip-preset": self._skip_preset,
            "reorder": self._reorder,
        }
        return await commands[command.name](command)

    async def _pause(self, _: Command) -> Reply:
        self._paused = True
        return Reply(ok=True, words="pausing when the present step is done")

    async def _resume(self, _: Command) -> Reply:
        self._paused = False
        self._woken.set()
        return Reply(ok=True, words="going on")

    async def _skip(self, command: Command) -> Reply:
        if command.argument:
            cell = self.state.cells.get(command.argument)
            if isinstance(self._step, MeasureCell) and self._step.cell.text == command.argument:
                return await self._skip(Command(name="skip"))
            if cell is None:
                return Reply(ok=False, words=f'no cell is called "{command.argument}"')
            if cell.status != "waiting":
                return Reply(ok=False, words=f"{command.argument} is {cell.status} already; nothing is skipped")
            self._recorder.happen(
                CellEnded(cell=cell.key, run=cell.key.text, outcome="skipped", reason="skipped by the operator")
            )
            return Reply(ok=True, words=f"{command.argument} will not be measured")
        if isinstance(self._step, MeasureCell):
            await self._measuring.drop("skipped by the operator")
            return Reply(ok=True, words="the running cell is skipped")
        if isinstance(self._step, ApplyPreset):
            name = self._step.preset
            self._without_asking_again(name)
            await self._leave_step()
            return Reply(ok=True, words=f"{name} is skipped")
        return Reply(ok=False, words="nothing is running that can be skipped")

    async def _repeat(self, command: Command) -> Reply:
        if command.argument:
            cell = self.state.cells.get(command.argument)
        else:
            ended = [c for c in self.state.cells.values() if c.ended_t is not None]
            cell = max(ended, key=lambda c: c.ended_t or 0.0, default=None)
        if cell is None or cell.status in ("waiting", "running"):
            return Reply(ok=False, words="there is no such finished cell")
        if (preset := self.state.presets[cell.key.preset]).status in ("not-in-effect", "skipped"):
            words = (
                f"{cell.key.preset} is {preset.status.replace('-', ' ')}: apply it first, that measures its cells too"
            )
            return Reply(ok=False, words=words)
        self._recorder.happen(CellReset(cell=cell.key, reason="repeated by the operator"))
        return Reply(ok=True, words=f"{cell.key.text} will be measured again")

    async def _apply(self, command: Command) -> Reply:
        preset = self.state.presets.get(command.argument)
        if preset is None:
            return Reply(ok=False, words=f'no preset is called "{command.argument}"')
        if preset.status == "in-effect":
            return Reply(ok=False, words=f"{command.argument} is in effect already")
        if isinstance(self._step, ApplyPreset) and self._step.preset == command.argument:
            return Reply(ok=False, words=f"{command.argument} is being put in effect already")
        if not anything_left(self.state, command.argument):
            words = f"everything under {command.argument} is measured; ask for a cell to be repeated, then apply it"
            return Reply(ok=False, words=words)
        self._wanted = command.argument
        self._woken.set()
        await self._leave_step()
        takes = f", about {duration(self.state.load_s_expected)}" if self.state.load_s_expected else ""
        restarts = f": the server restarts{takes}" if self.state.restarts else ""
        paused = "; the sweep stays paused" if self._paused else ""
        return Reply(ok=True, words=f"switching to {command.argument}{restarts}{paused}")

    async def _stop_now(self, _: Command) -> Reply:
        self._stop = "now"
        self._woken.set()
        await self._leave_step()
        return Reply(ok=True, words="stopping; everything measured so far is kept")

    async def _stop_after_cell(self, _: Command) -> Reply:
        self._stop = "after-cell"
        self._woken.set()
        return Reply(ok=True, words="stopping when the present step is done")

    async def _add_preset(self, command: Command) -> Reply:
        preset = command.preset
        if preset is None:
            return Reply(ok=False, words="no preset was given")
        if preset.name in self.state.presets:
            return Reply(ok=False, words=f'a preset is called "{preset.name}" already')
        if (why := self._applying.cannot_express(preset)) is not None:
            return Reply(ok=False, words=why)
        m = self._sweep.matrix
        cells = plan_cells([preset], m.contexts, m.concurrency, m.temperatures, m.repeats)
        self._recorder.happen(PresetAdded(preset=preset, cells=cells))
        return Reply(ok=True, words=f"{preset.name} is planned after the others ({len(cells)} cells)")

    async def _skip_preset(self, command: Command) -> Reply:
        preset = self.state.presets.get(command.argument)
        if preset is None:
            return Reply(ok=False, words=f'no preset is called "{command.argument}"')
        running = self._step
        if isinstance(running, ApplyPreset) and running.preset == command.argument:
            return await self._skip(Command(name="skip"))
        self._without_asking_again(command.argument)
        if isinstance(running, MeasureCell) and running.cell.preset == command.argument:
            await self._measuring.drop("its preset is skipped by the operator")
        return Reply(ok=True, words=f"{command.argument} is skipped")

    async def _reorder(self, command: Command) -> Reply:
        order = tuple(name.strip() for name in command.argument.split(",") if name.strip())
        unknown = [name for name in order if name not in self.state.presets]
        if unknown:
            return Reply(ok=False, words=f"no preset is called {', '.join(unknown)}")
        self._recorder.happen(PresetsReordered(order=order))
        return Reply(ok=True, words="the order is changed")

    def _without_asking_again(self, name: str) -> None:
        """Skips a preset and the cells it has left, whether or not it was asked for before."""
        self._wanted = None if self._wanted == name else self._wanted
        self._recorder.happen(PresetSkipped(preset=name, reason="skipped by the operator"))
        self._skip_cells(name)

    def _skip_cells(self, name: str) -> None:
        for cell in list(self.state.cells.values()):
            if cell.key.preset == name and cell.status == "waiting":
                self._recorder.happen(
                    CellEnded(cell=cell.key, run=cell.key.text, outcome="skipped", reason="its preset is skipped")
                )

    async def _leave_step(self) -> None:
        """Leaves what is being done now: a cell goes back to waiting, anything else is given up."""
        step, doing = self._step, self._doing
        if step is None or doing is None or doing.done():
            return
        if isinstance(step, MeasureCell):
            await self._measuring.drop(LEFT)
            await asyncio.wait([doing])
            if self._cell(step).status == "skipped":
                self._recorder.happen(
                    CellReset(cell=step.cell, reason="dropped for another step; measured again later")
                )
            return
        doing.cancel()
        await asyncio.wait([doing])
        if isinstance(step, ApplyPreset) and self._step is None and not self._stop:
            words = f"gave up putting {step.preset} in effect"
            self._recorder.happen(PhaseChanged(phase="idle", words=words))
