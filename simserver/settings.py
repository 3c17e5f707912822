"""What the server runs on, once the command line is resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simserver.acceptance import Verification
from simserver.faults import Faults
from simserver.profiles import Profile


class StartError(Exception):
    """The server refuses to start with these flags, as the real one does with a ValueError."""


@dataclass(frozen=True)
class SimSettings:
    """The simulation's own settings.

    Attributes:
        speed: simulated seconds a real second.
        load_seconds, warmup_seconds: real seconds from start to bound port, and from there to ready.
        drain_poll_seconds: real seconds between looks at the remaining requests after SIGTERM.
        eval_pass_rate: probability that a known coding problem is answered rightly.
        history: finished requests that the truth keeps.
    """

    seed: int
    speed: float
    load_seconds: float
    warmup_seconds: float
    drain_poll_seconds: float
    eval_pass_rate: float
    history: int


@dataclass(frozen=True)
class Settings:
    """Everything the server runs on, resolved.

    Attributes:
        args: SGLang's resolved arguments in its own order, as `/server_info` shows them.
        launch_command: the arguments as typed.
        topk_in_effect, window_in_effect: what the simulation does, faults included.
    """

    args: dict[str, Any]
    launch_command: str
    profile: Profile
    verification: Verification
    chain_quality: str | None
    window: int | None
    sim: SimSettings
    faults: Faults
    environment: dict[str, str]
    notes: tuple[str, ...]

    @property
    def speculative(self) -> bool:
        """Whether anything is drafted at all."""
        return self.verification.kind != "none"

    @property
    def draft_tokens(self) -> int:
        """The draft tokens a step that the server shows, 0 without speculation."""
        return int(self.args["speculative_num_draft_tokens"] or 0)
