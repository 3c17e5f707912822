"""How long each step may take, and how often each thing is looked at."""

from __future__ import annotations

import msgspec

from reconfig.durations import seconds
from reconfig.managers.config import ManagerConfig


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in seconds.

    Attributes:
        stop_s: the old server drains and ends (also when systemd does it inside `restart`).
        memory_s: GPU memory becomes free.
        ready_s: from the start to the open port and good health; loading takes minutes.
        probe_s: one generation of the proof; `generate_s`: until two in a row succeeded.
        settings_s: `/server_info` and the model's name.
        look_s: how often manager, log and server are looked at.
        crash_loop: so many restarts by a supervisor, without one generation, are a crash loop.
    """

    stop_s: float = 120.0
    memory_s: float = 60.0
    ready_s: float = 900.0
    probe_s: float = 60.0
    generate_s: float = 180.0
    settings_s: float = 60.0
    look_s: float = 0.25
    crash_loop: int = 3


def limits_from(config: ManagerConfig) -> Limits:
    """The limits that a manager's configuration asks for."""
    probe_s = seconds(config.probe_timeout)
    return Limits(
        stop_s=seconds(config.stop_timeout),
        memory_s=seconds(config.memory_timeout),
        ready_s=seconds(config.ready_timeout),
        probe_s=probe_s,
        generate_s=3 * probe_s,
    )
