"""Whatever runs the server: systemd, a child of ours, commands of the operator, or the operator.

`manager_from` is the only place that turns a sweep file's `[server.manager]` into one of them; it imports the one that
is asked for, since most commands, and the screens, read configurations and manage nothing.
"""

from __future__ import annotations

from pathlib import Path

from reconfig.managers.config import CommandConfig, ManagerConfig, ManualConfig, ProcessConfig, SystemdConfig
from reconfig.managers.protocol import Manager, ManagerError, ManagerStatus

__all__ = [
    "CommandConfig",
    "Manager",
    "ManagerConfig",
    "ManagerError",
    "ManagerStatus",
    "ManualConfig",
    "ProcessConfig",
    "SystemdConfig",
    "manager_from",
]


def manager_from(config: ManagerConfig, *, state_dir: Path) -> Manager:
    """The manager that a configuration asks for.

    Args:
        config: the `[server.manager]` table.
        state_dir: a folder of ours for the server's log and process number, where the configuration names none.
    """
    match config:
        case SystemdConfig():
            from reconfig.managers.systemd import SystemdManager

            return SystemdManager(config)
        case ProcessConfig():
            from reconfig.managers.process import ProcessManager

            return ProcessManager(config, state_dir=state_dir)
        case CommandConfig():
            from reconfig.managers.command import CommandManager

            return CommandManager(config)
        case ManualConfig():
            from reconfig.managers.manual import ManualManager

            return ManualManager(config)
