"""The server as a systemd unit: a drop-in carries the preset, `restart` puts it in effect.

How the unit fares is asked of systemd (`systemctl show`). The log of exactly one start is asked of the journal by its
invocation id, so that no line of the old process is ever taken for one of the new.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence

from reconfig.durations import seconds
from reconfig.loglines import LogLine
from reconfig.managers.config import SystemdConfig
from reconfig.managers.dropin import DropIn
from reconfig.managers.judging import over_ssh
from reconfig.managers.protocol import LogBegin, ManagerError, ManagerStatus, State
from reconfig.managers.quoting import as_shell_line, systemd_command, systemd_environment, with_arguments
from reconfig.managers.running import Ran, follow, not_permitted, run

COMMAND_LIMIT_S = 20.0
LINGER_S = 1.0
_SHOWN = (
    "LoadState,ActiveState,SubState,Result,MainPID,InvocationID,NRestarts,ExecMainStatus,ExecMainCode,LoadError,Job"
)
_HOST = re.compile(r"-H|--host(=|$)")  # systemctl's own way to another machine
_NOT_FOUND = re.compile(r"(?i)not found|not loaded|no such file|does not exist")


class SystemdManager:
    """See `Manager`."""

    kind = "systemd"
    restarts_server = True
    stop_first = False
    starts_log = True

    def __init__(self, config: SystemdConfig) -> None:
        self._config = config
        self.kills_orphans = config.kill_orphans
        self.unit = config.unit if config.unit.endswith(".service") else f"{config.unit}.service"
        user = ["--user"] if config.user else []
        self._systemctl = [*config.systemctl, *user]
        self._journalctl = [*config.journalctl, *user]
        first = [word for word in config.systemctl if word not in {"sudo", "-n", "-E"}]
        self.pids_are_local = len(first) == 1 and first[0].rsplit("/", 1)[-1] == "systemctl"
        self.elsewhere = over_ssh(config.systemctl) or any(_HOST.match(word) for word in config.systemctl)
        folder = config.dropin_dir or (
            f"{os.environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.geteuid()}')}/systemd/user"
            if config.user
            else "/run/systemd/system"
        )
        self.dropin = DropIn(f"{folder.rstrip('/')}/{self.unit}.d", config.dropin_name, tuple(config.write))
        self._invocation = ""
        self._before_start: str | None = None
        self._starts: list[str] = []
        self._undo_needed = False

    async def status(self) -> ManagerStatus:
        """See `Manager`."""
        try:
            ran = await run([*self._systemctl, "show", self.unit, f"--property={_SHOWN}"], limit_s=COMMAND_LIMIT_S)
        except ManagerError as error:
            return ManagerStatus(state="unknown", words=str(error))
        if ran.status != 0:
            return ManagerStatus(state="unknown", words=f"systemctl show {self.unit}: {ran.said}")
        shown = dict(line.split("=", 1) for line in ran.out.splitlines() if "=" in line)
        if shown.get("LoadState") == "not-found":
            return ManagerStatus(state="failed", words=f"unit {self.unit} was not found", cause="unit")
        return self._read(shown)

    async def prepare(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Writes the drop-in (whole or not at all) and has systemd read it."""
        status = await self.status()
        if status.cause == "unit":
            raise ManagerError(f"{status.words}: correct unit in [server.manager]", "unit")
        self._undo_needed = True
        await self.dropin.write(self._text(arguments, env))
        await self._ctl("daemon-reload")

    async def stop(self) -> None:
        """See `Manager`."""
        await self._ctl("stop", self.unit, limit_s=seconds(self._config.stop_timeout) + COMMAND_LIMIT_S)

    async def start(self) -> None:
        """See `Manager`."""
        status = await self.status()
        self._before_start = status.facts.get("invocation", self._invocation)
        self._starts.clear()
        # A unit that failed often is refused by systemd until its failures are forgotten.
        with contextlib.suppress(ManagerError):
            await run([*self._systemctl, "reset-failed", self.unit], limit_s=COMMAND_LIMIT_S)
        try:
            await self._ctl("restart", "--no-block", self.unit)
        except ManagerError:
            raise
        except BaseException:
            self._undo_needed = False  # it may be restarting already, with what was prepared
            raise
        self._undo_needed = False

    async def undo(self) -> None:
        """See `Manager`."""
        if not self._undo_needed:
            return
        self._undo_needed = False
        with contextlib.suppress(ManagerError):
            if await self.dropin.put_back():
                await self._ctl("daemon-reload")

    async def log_lines(self, begin: LogBegin = "start") -> AsyncIterator[LogLine]:
        """See `Manager`."""
        lines: asyncio.Queue[LogLine] = asyncio.Queue()
        followed = (self._before_start or "") if begin == "start" else ""
        past = "0" if begin == "now" else "all"
        followers: list[asyncio.Task[None]] = []
        if begin != "start":
            await self.status()
        try:
            while True:
                if self._invocation and self._invocation != followed:
                    followed = self._invocation
                    followers.append(asyncio.create_task(self._follow(followed, past, lines)))
                    past = "all"
                    for old in followers[:-1]:
                        asyncio.get_running_loop().call_later(LINGER_S, old.cancel)
                try:
                    async with asyncio.timeout(0.2):
                        yield await lines.get()
                except TimeoutError:
                    continue
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    async def check(self) -> list[tuple[str, str, str, str]]:
        """See `Manager`."""
        status = await self.status()
        if status.state == "unknown":
            return [("manager", "wrong", f"systemd: {status.words}", "correct systemctl in [server.manager]")]
        if status.cause == "unit":
            return [("manager", "wrong", f"systemd: {status.words}", "correct unit in [server.manager]")]
        found = [("manager", "good", f"systemd: {self.unit}: {status.words}", "")]
        found.append(await self._check_rights())
        if self._config.arguments is not None:
            ran = await run([*self._systemctl, "show", self.unit, "--property=ExecStart"], limit_s=COMMAND_LIMIT_S)
            if not re.search(rf"\$\{{?{re.escape(self._config.arguments)}\b", ran.out):
                found.append(
                    (
                        "arguments",
                        "warning",
                        f"ExecStart of {self.unit} does not name ${self._config.arguments}: unless a script that it "
                        "starts reads the variable, a preset's flags reach nobody",
                        f"end ExecStart with ${self._config.arguments}, or give exec_start",
                    )
                )
        return found

    def instructions(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        """See `Manager`."""
        return f"{as_shell_line([*self._systemctl, 'restart', self.unit], {})} with {self.dropin.path}"

    async def leave(self) -> None:
        """See `Manager`; nothing of ours keeps the unit."""

    async def remove_dropin(self) -> None:
        """Takes our drop-in away, so that the unit's next start is its own again.

        Raises:
            ManagerError: not permitted.
        """
        await self.dropin.remove()
        await self._ctl("daemon-reload")

    def _text(self, arguments: Sequence[str], env: Mapping[str, str]) -> str:
        lines = [
            "# Written by spectop: the preset in effect. Remove this file to have the unit as it was.",
            "[Service]",
        ]
        if self._config.exec_start is not None:
            lines += [
                "ExecStart=",
                f"ExecStart={systemd_command(with_arguments(self._config.exec_start, arguments, {}))}",
            ]
        elif self._config.arguments is not None:
            lines.append(systemd_environment(self._config.arguments, as_shell_line(arguments, {})))
        lines += [systemd_environment(name, value) for name, value in sorted(env.items())]
        return "\n".join(lines) + "\n"

    def _read(self, shown: Mapping[str, str]) -> ManagerStatus:
        active, sub = shown.get("ActiveState", ""), shown.get("SubState", "")
        invocation = shown.get("InvocationID", "")
        pid = int(shown.get("MainPID") or 0) or None
        if invocation:
            self._invocation = invocation
            if invocation != self._before_start and invocation not in self._starts:
                self._starts.append(invocation)
        restarts = max(int(shown.get("NRestarts") or 0), len(self._starts) - 1)
        states: dict[str, State] = {
            "active": "running",
            "reloading": "running",
            "activating": "starting",
            "deactivating": "stopping",
            "inactive": "stopped",
            "failed": "failed",
        }
        state = states.get(active, "unknown")
        if state in {"stopped", "failed"} and shown.get("Job", "0") not in {"", "0"}:
            state = "starting"  # a restart of ours is under way
        words = f"{active} ({sub})"
        if sub == "auto-restart" or state == "failed":
            words += f": result {shown.get('Result')}, last exit status {shown.get('ExecMainStatus')}"
        facts = {"invocation": invocation} if invocation and state in {"running", "starting", "stopping"} else {}
        if pid is not None:
            facts["pid"] = str(pid)
        return ManagerStatus(state=state, words=words, pid=pid, facts=facts, restarts=restarts)

    async def _ctl(self, *words: str, limit_s: float = COMMAND_LIMIT_S) -> Ran:
        command = [*self._systemctl, *words]
        ran = await run(command, limit_s=limit_s)
        if ran.status != 0:
            raise _said_no(" ".join(command), ran)
        return ran

    async def _follow(self, invocation: str, past: str, lines: asyncio.Queue[LogLine]) -> None:
        of_systemd = "USER_INVOCATION_ID" if self._config.user else "INVOCATION_ID"
        matches = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"{of_systemd}={invocation}"]
        command = [*self._journalctl, *matches, "--follow", f"--lines={past}", "--output=cat", "--no-pager", "--quiet"]
        with contextlib.suppress(ManagerError):
            async for line in follow(command):
                lines.put_nowait(line)

    async def _check_rights(self) -> tuple[str, str, str, str]:
        problem = await self.dropin.problem()
        if problem is not None:
            return ("drop-in", "wrong", problem, 'run as root, or give write = ["sudo", "-n"] in [server.manager]')
        if self.pids_are_local and not self._config.user and os.geteuid() != 0 and "sudo" not in self._config.systemctl:
            return (
                "drop-in",
                "warning",
                f"not root: systemd may refuse to restart {self.unit}",
                'systemctl = ["sudo", "-n", "systemctl"]',
            )
        return ("drop-in", "good", f"{self.dropin.path} can be written", "")


def _said_no(command: str, ran: Ran) -> ManagerError:
    if not_permitted(ran):
        cure = 'run as root, or put sudo before it: systemctl = ["sudo", "-n", "systemctl"] in [server.manager]'
        return ManagerError(f"not permitted: {command}: {ran.said}: {cure}", "permission")
    if _NOT_FOUND.search(ran.said):
        return ManagerError(f"{command}: {ran.said}: correct unit in [server.manager]", "unit")
    return ManagerError(f"{command}: {ran.said}")
