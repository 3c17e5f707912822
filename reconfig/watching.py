"""Watching a server while it starts and while it is measured, so that its end is known at once and never waited out.

`StartWatch` decides that a start has failed; `wait_for_trouble` that a proven instance is no longer the one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from reconfig.failure import NotInEffectError
from reconfig.limits import Limits
from reconfig.loglines import LogLine
from reconfig.logwatch import LogWatch
from reconfig.managers.protocol import LogBegin, Manager, ManagerStatus
from reconfig.presets import Proof
from reconfig.redaction import Redactor

SETTLE_S = 0.6
STOPPED_FOR_S = 0.8
LOOKS_THAT_AGREE = 2
"""One failing status command is no ended server."""
CONFIRM_S = 0.3
"""After a first look that shows trouble, a second one so much later must show the same."""
REMOTE_LOOK_S = 2.0
"""Between two looks over ssh or docker, which cost a login or a process each, all night beside the measurement."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A proven instance that is no longer what it was.

    Attributes:
        cause: "stopped", "exited", "restarted" or "oom"; the instance must be put in effect again.
        words: what the operator reads; `log_tail`: the last lines of its log.
    """

    cause: str
    words: str
    log_tail: tuple[str, ...] = ()


class StartWatch:
    """Follows the manager and the log of one start.

    Args:
        manager: whatever starts the server.
        limits: how often to look, and how many restarts are a crash loop.
        on_log: called with each line of the server's log.
        clean: takes keys out of a line.
    """

    def __init__(
        self,
        manager: Manager,
        limits: Limits,
        on_log: Callable[[LogLine], None],
        clean: Callable[[str], str] | None = None,
    ) -> None:
        self.log = LogWatch()
        self.status: ManagerStatus | None = None
        self.old_facts: dict[str, str] = {}
        self._manager = manager
        self._limits = limits
        self._on_log = on_log
        self._clean = clean or Redactor().clean
        self._stopped_since: float | None = None
        self._failed_looks = 0

    @property
    def is_new(self) -> bool | None:
        """Whether the manager runs another instance than before; `None` when it can't tell."""
        if self.status is None or not self.status.facts:
            return None if self.status is None or self.status.state == "unknown" else False
        return self.status.facts != self.old_facts

    async def beside(self, work: Awaitable[None]) -> None:
        """Runs the work and the watch side by side; whichever ends first decides.

        Raises:
            NotInEffectError: the start has failed, or the work has.
        """
        steps = asyncio.ensure_future(work)
        watch = asyncio.create_task(self.run())
        try:
            await asyncio.wait({steps, watch}, return_when=asyncio.FIRST_COMPLETED)
            await (steps if steps.done() else watch)
        finally:
            for task in (steps, watch):
                task.cancel()
            await asyncio.gather(steps, watch, return_exceptions=True)

    async def run(self) -> None:
        """Runs until the start has failed.

        Raises:
            NotInEffectError: it has failed; the cause is the first fatal line of the log where there is one.
        """
        reader = asyncio.create_task(self.read_log())
        try:
            while True:
                self.status = await self._manager.status()
                problem = self._problem(self.status)
                if problem is not None:
                    await asyncio.sleep(SETTLE_S)
                    raise self._with_cause(*problem)
                await asyncio.sleep(self._limits.look_s)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def read_log(self, begin: LogBegin = "start") -> None:
        """Reads the log for as long as there is one."""
        async with contextlib.aclosing(self._manager.log_lines(begin)) as lines:  # type: ignore[type-var]
            async for line in lines:
                clean = LogLine(self._clean(line.text), line.replaces)
                self.log.saw(clean)
                self._on_log(clean)

    def _problem(self, status: ManagerStatus) -> tuple[str, str] | None:
        cause = self.log.cause
        if cause is not None and cause.decisive:
            return cause.kind, cause.words
        if status.restarts >= self._limits.crash_loop:
            return "crash loop", f"crash loop: started again {status.restarts} times and never ready; {status.words}"
        self._failed_looks = self._failed_looks + 1 if status.state == "failed" else 0
        if status.state == "failed" and (status.cause is not None or self._failed_looks >= LOOKS_THAT_AGREE):
            return status.cause or "exited", status.words
        now = asyncio.get_running_loop().time()
        if status.state != "stopped":
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since >= STOPPED_FOR_S:
            return "stopped", f"the server was stopped while it started, not by us: {status.words}"
        return None

    def _with_cause(self, kind: str, words: str) -> NotInEffectError:
        cause = self.log.cause
        if cause is None or kind in {"unit", "stopped"}:
            return NotInEffectError(kind, words)
        if cause.decisive:
            return NotInEffectError(cause.kind if kind != "crash loop" else kind, _joined(words, cause.words))
        return NotInEffectError(kind, _joined(words, cause.words))


async def wait_for_trouble(
    proof: Proof,
    manager: Manager,
    *,
    on_log: Callable[[LogLine], None] | None = None,
    clean: Callable[[str], str] | None = None,
    look_s: float = 0.5,
) -> Trouble:
    """Waits until a proven instance has ended, was replaced, or ran out of memory; run it beside a cell and cancel it.

    A busy server that answers 503 on its health path is no trouble: only the manager and the log are asked. Trouble is
    told when two looks in a row show the same, out of memory in the log at once.

    Args:
        proof: of the instance; its facts are compared with the manager's.
        manager: whatever runs the server.
        on_log: called with each further line of the server's log.
        clean: takes keys out of lines and words: `redactor_for(target.api_key, preset.env).clean`; what is only known
            as a key (a line that holds it bare) is hidden by this alone.
        look_s: seconds between looks; never less than `REMOTE_LOOK_S` where the manager runs commands elsewhere.
    """
    clean = clean or Redactor().clean
    watch = StartWatch(manager, Limits(look_s=look_s), on_log or (lambda _: None), clean)
    wanted = manager_facts(proof)
    if manager.pids_are_local:
        confirm_s = min(look_s, CONFIRM_S)
    else:
        look_s = confirm_s = max(look_s, REMOTE_LOOK_S)
    reader = asyncio.create_task(watch.read_log("now"))
    suspected: str | None = None
    try:
        while True:
            trouble = _trouble(await manager.status(), wanted)
            sure = trouble is not None and trouble[0] == suspected
            suspected = trouble[0] if trouble is not None else None
            cause = watch.log.cause
            if cause is not None and cause.kind == "oom":
                trouble, sure = ("oom", cause.words), True
            if trouble is not None and sure:
                await asyncio.sleep(SETTLE_S)
                kind, words = trouble
                cause = watch.log.cause
                if cause is not None and kind == "exited":
                    words = _joined(words, cause.words)
                return Trouble(cause=kind, words=clean(words), log_tail=tuple(watch.log.tail))
            await asyncio.sleep(look_s if suspected is None else confirm_s)
    finally:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader


def manager_facts(proof: Proof) -> dict[str, str]:
    """The manager's part of a proven instance's facts."""
    return {name.removeprefix("manager "): text for name, text in proof.instance.items() if name.startswith("manager ")}


def _trouble(status: ManagerStatus, wanted: dict[str, str]) -> tuple[str, str] | None:
    if status.state == "stopped":
        return "stopped", f"the server was stopped by someone else: {status.words}"
    if status.state == "failed":
        return "exited", f"the server has ended: {status.words}"
    if status.state == "stopping":
        return "stopped", f"the server is being stopped by someone else: {status.words}"
    if wanted and status.facts and status.facts != wanted:
        return "restarted", f"the server was restarted by someone else: {status.words}"
    return None


def _joined(words: str, more: str) -> str:
    return words if more in words else f"{words}; {more}"
