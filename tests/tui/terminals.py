"""Real terminals for end-to-end tests: a private tmux server, and a private sshd to reach one through."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 60.0


class Tmux:
    """A tmux server of its own with one session.

    Args:
        folder: where its socket is.
        size: columns and rows.
        env: environment of what runs in it.
    """

    def __init__(self, folder: Path, size: tuple[int, int], env: dict[str, str]) -> None:
        self._socket = str(folder / "tmux.sock")
        columns, rows = size
        self._env = {**env, "TERM": "xterm-256color"}
        self._run(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            str(columns),
            "-y",
            str(rows),
            "sh",
            "-c",
            "exec sh",
        )
        self._run("set-option", "-g", "remain-on-exit", "on")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, *words],
            capture_output=True,
            text=True,
            check=True,
            env=self._env,
            timeout=20,
        )
        return done.stdout

    def type(self, line: str) -> None:
        """Types a line and Enter."""
        self._run("send-keys", "-t", "t", "-l", line)
        self._run("send-keys", "-t", "t", "Enter")

    def press(self, *keys: str) -> None:
        """Presses keys by tmux's names."""
        self._run("send-keys", "-t", "t", *keys)

    def text(self) -> str:
        """What is on the screen."""
        return self._run("capture-pane", "-p", "-t", "t")

    def wait_for(self, *wanted: str, gone: str = "", deadline_s: float = DEADLINE_S) -> str:
        """Waits until all texts are on the screen (and `gone` is not); returns it."""
        end = time.monotonic() + deadline_s
        while True:
            shown = self.text()
            if all(w in shown for w in wanted) and not (gone and gone in shown):
                return shown
            if time.monotonic() > end:
                raise AssertionError(f"waited for {wanted}, without {gone!r}:\n{shown}")
            time.sleep(0.05)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the terminal's size."""
        self._run("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def pane_pid(self) -> int:
        """The shell's process."""
        return int(self._run("display-message", "-p", "-t", "t", "#{pane_pid}"))

    def close(self) -> None:
        """Ends the server and what runs in it: terminals vanish."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], check=False, capture_output=True, timeout=20)


@contextmanager
def sshd(folder: Path) -> Iterator[list[str]]:
    """Runs an sshd on a free port of this machine; yields the client's command, host included."""
    keys = folder / "ssh"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True, timeout=30)
    (keys / "authorized").write_text((keys / "user.pub").read_text())
    (keys / "authorized").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = keys / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys / 'host'}\nAuthorizedKeysFile {keys / 'authorized'}\n"
        f"PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    with (keys / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stderr=log, stdin=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > end or server.poll() is not None:
                        raise AssertionError((keys / "log").read_text()) from None
                    time.sleep(0.05)
            yield [
                *("ssh", "-tt", "-q", "-p", str(port), "-i", str(keys / "user"), "-o", "StrictHostKeyChecking=no"),
                *("-o", f"UserKnownHostsFile={keys / 'known'}", f"{getpass.getuser()}@127.0.0.1"),
            ]
        finally:
            server.terminate()
            server.wait(10)
