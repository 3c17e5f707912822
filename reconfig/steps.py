"""The steps of putting a preset in effect, as they are told to the operator while they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from reconfig.presets import ProofStep

NAMES = ("stop", "memory", "start", "old-gone", "port", "health", "generate", "settings", "model")


class Steps:
    """Keeps the steps and tells each change of one.

    Args:
        clock: seconds since the session's start.
        on_step: called with the whole step at each change.
        clean: takes keys out of a text.
    """

    def __init__(
        self, clock: Callable[[], float], on_step: Callable[[ProofStep], None], clean: Callable[[str], str] = str
    ) -> None:
        self._clock = clock
        self._on_step = on_step
        self._clean = clean
        self._steps: dict[str, ProofStep] = {}

    @property
    def taken(self) -> tuple[ProofStep, ...]:
        """Every step begun so far, in order."""
        return tuple(self._steps.values())

    @property
    def current(self) -> str | None:
        """The step that is running."""
        return next((name for name, step in reversed(self._steps.items()) if step.state == "running"), None)

    def begin(self, name: str, words: str, detail: str = "") -> None:
        """Starts a step (again)."""
        known = self._steps.get(name)
        started = known.started_t if known is not None and known.started_t is not None else self._clock()
        self._put(ProofStep(name=name, words=words, state="running", detail=detail, started_t=started))

    def news(self, name: str, detail: str, share: float | None = None) -> None:
        """The latest of a running step; the same news twice is told once."""
        step = self._steps[name]
        if (step.detail, step.share) != (detail, share):
            self._change(name, detail=detail, share=share)

    def done(self, name: str, detail: str | None = None) -> None:
        """Ends a step well."""
        changes: dict[str, Any] = {} if detail is None else {"detail": detail}
        self._change(name, state="done", share=None, ended_t=self._clock(), **changes)

    def failed(self, detail: str) -> None:
        """Ends the running step badly."""
        name = self.current
        if name is not None:
            self._change(name, state="failed", detail=detail, ended_t=self._clock())

    def _change(self, name: str, **changes: Any) -> None:
        self._put(msgspec.structs.replace(self._steps[name], **changes))

    def _put(self, step: ProofStep) -> None:
        clean = msgspec.structs.replace(step, detail=self._clean(step.detail))
        self._steps[step.name] = clean
        self._on_step(clean)
