"""The `[server.manager]` table of a sweep file, one struct for each `kind`.

The only place that knows the keys of a manager's configuration and their defaults. A table that can't be meant is
refused when it is made (`ValueError`, all faults in one message), so that no later step has to.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconfig.managers import judging

Duration = str | int | float


class _Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Keys that every kind has.

    Attributes:
        ready_timeout: from the start to good health; minutes of silence while weights load are normal.
        stop_timeout: how long an old server may drain.
        probe_timeout: limit of one generation of the proof.
        memory_timeout: how long GPU memory may take to become free.
        kill_orphans: whether processes that outlive their server may be killed.
    """

    ready_timeout: Duration = "15m"
    stop_timeout: Duration = "2m"
    probe_timeout: Duration = "60s"
    memory_timeout: Duration = "60s"
    kill_orphans: bool = False

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        limits = {name: getattr(self, name) for name in self.__struct_fields__ if name.endswith("_timeout")}
        yield from judging.durations(limits, may_be_zero=("stop_timeout", "memory_timeout"))


class SystemdConfig(_Common, frozen=True, kw_only=True, tag="systemd"):
    """A systemd unit, changed by a drop-in of ours.

    Attributes:
        unit: the service; ".service" may be left out.
        arguments: the environment variable in the unit that carries a preset's flags (`ExecStart=... $NAME`).
        exec_start: instead: the whole command without a preset's flags, as an argument list.
        systemctl, journalctl: argument lists, so that `ssh` or `sudo` can stand before them.
        write: what stands before `tee`, `mv`, ... where the drop-in is not written here by us (`["ssh", "gpu1"]`).
        user: a unit of the user's own systemd.
        dropin_dir: where the drop-in goes: `<dropin_dir>/<unit>.d/<dropin_name>`.
    """

    unit: str
    arguments: str | None = None
    exec_start: list[str] | None = None
    systemctl: list[str] = msgspec.field(default_factory=lambda: ["systemctl"])
    journalctl: list[str] = msgspec.field(default_factory=lambda: ["journalctl"])
    write: list[str] = []
    user: bool = False
    dropin_dir: str | None = None
    dropin_name: str = "50-spectop.conf"

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        yield from judging.unit(self.unit)
        if (self.arguments is None) == (self.exec_start is None):
            yield (
                "systemd needs one of two: arguments = the unit's environment variable that carries the flags, or "
                "exec_start = the whole command as a list"
            )
        yield from judging.variable(self.arguments)
        if self.exec_start is not None:
            yield from judging.command("exec_start", self.exec_start, example='["/usr/bin/python3", "-m", "..."]')
            yield from judging.placeholders("exec_start", self.exec_start)
        yield from judging.command("systemctl", self.systemctl, example='["systemctl"]')
        yield from judging.command("journalctl", self.journalctl, example='["journalctl"]')
        if self.write:
            yield from judging.command("write", self.write, example='["sudo", "-n"]')
        elsewhere = {"journalctl": self.journalctl, **({"write": self.write} if self.dropin_dir is None else {})}
        yield from judging.same_machine(self.systemctl, elsewhere)
        yield from judging.dropin(self.dropin_dir, self.dropin_name)


class ProcessConfig(_Common, frozen=True, kw_only=True, tag="process"):
    """A child of ours.

    Attributes:
        command: the server's command without a preset's flags; they are added at its end, or where an element is
            "{arguments}".
        env: further environment variables for every preset; `cwd`: the working folder.
        log: the file that takes its output; a file in the session's own folder when left out.
    """

    command: list[str]
    env: dict[str, str] = {}
    cwd: str | None = None
    log: str | None = None

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        yield from judging.command("command", self.command, example='["python3", "-m", "sglang.launch_server", ...]')
        yield from judging.placeholders("command", self.command)
        yield from judging.environment(self.env)


class CommandConfig(_Common, frozen=True, kw_only=True, tag="command"):
    """Commands of the operator, as argument lists.

    Elements: "{arguments}" becomes a preset's flags, one element each; "{quoted_arguments}" one element that a shell
    splits again (for ssh); "{env}" becomes NAME=VALUE elements, "{env:-e}" the same with "-e" before each.

    Attributes:
        start: starts the server and returns with status 0; `stop`: ends it and returns.
        status: exit status 0 while the server runs; its output tells one start from another.
        log: follows the log of the newest start (`docker logs --follow NAME`).
        start_timeout: limit of the start command itself.
    """

    start: list[str]
    stop: list[str]
    status: list[str] | None = None
    log: list[str] | None = None
    env: dict[str, str] = {}
    start_timeout: Duration = "60s"

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        yield from judging.command("start", self.start, example='["docker", "run", ..., "{arguments}"]')
        yield from judging.placeholders("start", self.start, needed=bool(self.start))
        yield from judging.command("stop", self.stop, example='["docker", "stop", "NAME"]')
        for key, words in (("status", self.status), ("log", self.log)):
            if words is not None:
                yield from judging.command(key, words, example=f'["docker", ..., "NAME"], or no {key} at all')
        yield from judging.environment(self.env)


class ManualConfig(_Common, frozen=True, kw_only=True, tag="manual"):
    """The operator restarts the server; the product says what is needed, and proves it afterwards.

    Attributes:
        command: the server's command without a preset's flags, to be shown in full.
    """

    command: list[str] = []
    ready_timeout: Duration = "1h"

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.command:
            yield from judging.command("command", self.command, example='["python3", "-m", "..."]')
        yield from judging.placeholders("command", self.command)


ManagerConfig = SystemdConfig | ProcessConfig | CommandConfig | ManualConfig
