"""Which processes there are: who listens on a port, what belongs to a server, what outlived it.

The only place that uses psutil. What may not be read (another user's process) is unknown, never guessed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
from typing import Protocol

import msgspec
import psutil

FORWARDERS = frozenset({"ssh", "autossh", "sshd", "sshd-session", "socat", "kubectl", "oc"})
"""Programs that listen for a server of another machine; they outlive its restarts and hold no GPU."""


class ProcessSeen(msgspec.Struct, frozen=True):
    """A process, told apart from a later one with the same number by its start time (seconds since the epoch)."""

    pid: int
    started: float
    name: str = ""

    @property
    def words(self) -> str:
        """How it is named to the operator."""
        return f"pid {self.pid} ({self.name})" if self.name else f"pid {self.pid}"

    @property
    def forwards(self) -> bool:
        """Whether it only forwards a port, so that the server is elsewhere."""
        return self.name.partition(":")[0] in FORWARDERS


class ProcessTable(Protocol):
    """Whatever knows the machine's processes; nothing of it raises."""

    def listeners(self, port: int) -> tuple[ProcessSeen, ...]:
        """The processes that listen on a TCP port; empty when there is none or it may not be read."""
        ...

    def seen(self, pid: int) -> ProcessSeen | None:
        """A living process by its number."""
        ...

    def alive(self, process: ProcessSeen) -> bool:
        """Whether this very process still runs."""
        ...

    def family(self, pid: int) -> tuple[ProcessSeen, ...]:
        """A process with all its descendants and its whole process group."""
        ...

    def environment(self, pid: int) -> dict[str, str] | None:
        """The environment of a process, where it may be read."""
        ...

    def signal(self, process: ProcessSeen, number: int) -> None:
        """Sends a signal to this very process, if it still runs."""
        ...


class LocalProcesses:
    """This machine's processes."""

    def listeners(self, port: int) -> tuple[ProcessSeen, ...]:
        """See `ProcessTable`."""
        try:
            connections = psutil.net_connections(kind="tcp")
        except (psutil.Error, OSError):
            return ()
        pids = {
            connection.pid
            for connection in connections
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        }
        return tuple(seen for pid in sorted(pid for pid in pids if pid) if (seen := self.seen(pid)) is not None)

    def seen(self, pid: int) -> ProcessSeen | None:
        """See `ProcessTable`."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return ProcessSeen(pid, process.create_time(), process.name())
        except (psutil.Error, OSError):
            return None

    def alive(self, process: ProcessSeen) -> bool:
        """See `ProcessTable`."""
        now = self.seen(process.pid)
        return now is not None and abs(now.started - process.started) < 0.02

    def family(self, pid: int) -> tuple[ProcessSeen, ...]:
        """See `ProcessTable`."""
        pids = {pid}
        with contextlib.suppress(psutil.Error, OSError):
            pids.update(child.pid for child in psutil.Process(pid).children(recursive=True))
        for other in psutil.pids():
            with contextlib.suppress(OSError):
                if os.getpgid(other) == pid:
                    pids.add(other)
        return tuple(seen for number in sorted(pids) if (seen := self.seen(number)) is not None)

    def environment(self, pid: int) -> dict[str, str] | None:
        """See `ProcessTable`."""
        try:
            environment: dict[str, str] = psutil.Process(pid).environ()
        except (psutil.Error, OSError):
            return None
        return environment

    def marked(self, variable: str) -> tuple[tuple[ProcessSeen, str], ...]:
        """The processes that lead a session of their own and have an environment variable, with its value."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError):
                if os.getsid(pid) == pid and (value := (self.environment(pid) or {}).get(variable)) is not None:
                    found.append((self.seen(pid), value))
        return tuple((process, value) for process, value in found if process is not None)

    def command(self, pid: int) -> list[str]:
        """The command line of a process; empty where it may not be read."""
        try:
            words: list[str] = psutil.Process(pid).cmdline()
        except (psutil.Error, OSError):
            return []
        return words

    def signal(self, process: ProcessSeen, number: int) -> None:
        """See `ProcessTable`."""
        if self.alive(process):
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.Signals(number))


def is_this_machine(host: str) -> bool:
    """Whether a host name or address is this machine's own, without asking a name server."""
    if host in {"localhost", socket.gethostname()}:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return True
    own = {entry.address.split("%")[0] for entries in psutil.net_if_addrs().values() for entry in entries}
    return str(address) in own
