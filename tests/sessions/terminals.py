"""Terminals for tests: a pseudo-terminal that is read or not, and a real sshd on loopback to come through."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.sessions.engines import free_port

SPECTOP = str(Path(sys.executable).with_name("spectop"))
LIMIT_S = 60.0


def wait_for(what: Callable[[], bool], words: str, limit_s: float = LIMIT_S) -> None:
    """Waits until a condition holds; fails with the words when it does not in time."""
    until = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < until, f"waited {limit_s:.0f} s in vain: {words}"
        time.sleep(0.02)


class Terminal:
    """A program on a pseudo-terminal of its own, or on pipes.

    Args:
        command: what runs in it.
        pty: a terminal of 100 x 30; otherwise pipes.
        env: added to this process's environment.
    """

    def __init__(self, command: list[str], *, pty: bool = True, env: dict[str, str] | None = None) -> None:
        self.output = b""
        self._reading = threading.Event()
        self._reading.set()
        if pty:
            self._fd, inside = os.openpty()
            fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        else:
            self._fd, inside = os.pipe()
        self.process = subprocess.Popen(
            command,
            stdin=inside if pty else subprocess.DEVNULL,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(inside)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            self._reading.wait()
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.output += data

    def shows(self, words: str) -> None:
        """Waits until the program has written something."""
        wait_for(lambda: words.encode() in self.output, f"{words!r} in {self.output[-2000:]!r}")

    def stall(self) -> None:
        """Stops reading, as Ctrl-S does; what is in the terminal's buffer stays there."""
        self._reading.clear()

    def go_on(self) -> None:
        """Reads on."""
        self._reading.set()

    def kill(self) -> None:
        """Ends the program at once, and gives the terminal back."""
        self._reading.set()
        self.process.kill()
        self.process.wait()
        self._reader.join(timeout=5.0)
        os.close(self._fd)


class Sshd:
    """A running sshd of ours: how to come in, and how to cut its connections."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._port = port
        self._process = process

    def client(self, *options: str) -> list[str]:
        """Returns the beginning of a command line that runs the rest of it through this sshd."""
        return [
            "ssh", "-F", "none", *options, "-p", str(self._port), "-i", str(self._folder / "client"),
            "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self._folder}/known",
            "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "127.0.0.1",
        ]  # fmt: skip

    def cut(self) -> None:
        """Kills the server's side of all connections."""
        for child in psutil.Process(self._process.pid).children():
            child.send_signal(signal.SIGKILL)


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Runs an sshd on loopback with a configuration, port, host key and client key of its own."""
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/sshd.pid\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", config], stdout=log, stderr=log)
    running = Sshd(folder, port, server)

    def answers() -> bool:
        return subprocess.run([*running.client(), "true"], check=False, capture_output=True).returncode == 0

    try:
        wait_for(answers, "sshd answers")
        yield running
    finally:
        server.terminate()
        server.wait(timeout=20)
