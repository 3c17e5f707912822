"""What the screens cost: bytes through a terminal, CPU, the time from a key to its repaint, the first paint.

The screens run in a process of their own on a pseudo terminal, `benchmarks.screen`: fed by a scripted sweep of 16 cells
in the shape of a real one, or by a finished one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

SIZES = ((120, 40), (80, 24))
SECONDS = 12.0
KEYS = 40
AIPERF_STARTS_S, AIPERF_SECONDS = 45.0, 25.0
SETTLE_S = 3.0
LIMITS = {"idle": 100.0, "busy": 20_000.0}
CPU_LIMIT, KEY_LIMIT_MS, PAINT_LIMIT_S = 6.0, 50.0, 1.0
_NAMES = re.compile(rb"tok/s|t/s user|TTFT p50|TTFT p99|accept|J/token|% vs ref")


class Screen:
    """A process on a pseudo terminal.

    Args:
        command: what runs.
        size: columns and rows.
        folder: where it runs, or here.
    """

    def __init__(self, command: list[str], size: tuple[int, int], folder: str | None = None) -> None:
        columns, rows = size
        self.started = time.perf_counter()
        pid, self.fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
            env["SSH_CONNECTION"] = "127.0.0.1 1 127.0.0.1 22"
            for name in ("NO_COLOR", "TMUX", "LC_ALL", "TEXTUAL_COLOR_SYSTEM"):
                env.pop(name, None)
            if folder is not None:
                os.chdir(folder)
            os.execvpe(command[0], command, env)
        self.process = psutil.Process(pid)

    def read(self, seconds: float, until: re.Pattern[bytes] | None = None) -> bytes:
        """Reads what is drawn for a time, or until a pattern was drawn."""
        out = b""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            ready, _, _ = select.select([self.fd], [], [], left)
            if ready:
                try:
                    out += os.read(self.fd, 65536)
                except OSError:  # the process is gone, and with it the terminal's other end
                    break
                if until is not None and until.search(out):
                    break
        return out

    def press(self, key: bytes) -> float | None:
        """Presses a key that changes the figure of the matrix; returns the seconds to its repaint."""
        begin = time.perf_counter()
        os.write(self.fd, key)
        drawn = self.read(2.0, _NAMES)
        return time.perf_counter() - begin if _NAMES.search(drawn) else None

    def close(self) -> None:
        """Ends the process."""
        self.process.terminate()
        self.read(0.5)
        try:
            self.process.wait(10)
        except psutil.TimeoutExpired:
            self.process.kill()
        os.close(self.fd)


def measure(kind: str, size: tuple[int, int]) -> dict[str, float]:
    """Returns the figures of one run."""
    screen = Screen([sys.executable, "-m", "benchmarks.screen", kind], size)
    try:
        drawn = screen.read(20.0, re.compile(rb"tok/s"))
        assert b"tok/s" in drawn, drawn[-2000:]
        paint = time.perf_counter() - screen.started
        screen.read(SETTLE_S)
        before = screen.process.cpu_times()
        begin = time.perf_counter()
        sent = len(screen.read(SECONDS))
        wall = time.perf_counter() - begin
        after = screen.process.cpu_times()
        took: list[float] = []
        for _ in range(KEYS):
            if (seconds := screen.press(b"m")) is not None:
                took.append(seconds * 1000)
            screen.read(0.06)
    finally:
        screen.close()
    took.sort()
    return {
        "bytes_s": sent / wall,
        "cpu": (after.user + after.system - before.user - before.system) / wall * 100,
        "key_p50_ms": statistics.median(took),
        "key_p95_ms": took[max(0, int(len(took) * 0.95) - 1)],
        "keys": float(len(took)),
        "paint_s": paint,
    }


_TOKENIZER = """
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
vocab = {c: i for i, c in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "</s>"])}
made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
words = {"eos_token": "</s>", "bos_token": "</s>", "pad_token": "</s>"}
PreTrainedTokenizerFast(tokenizer_object=made, **words).save_pretrained("tokenizer")
"""


def aiperf(program: str, size: tuple[int, int]) -> tuple[float, float]:
    """Returns bytes a second and CPU % of AIPerf's dashboard while it measures 8 users of the simulated server.

    A tokenizer of bytes is made for it, because it would fetch one.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "simserver",
            "--model-path",
            "simulated",
            "--port",
            str(port),
            "--sim-load-seconds",
            "0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [Path(program).with_name("python"), "-c", _TOKENIZER], cwd=folder, check=True, capture_output=True
        )
        command = [program, "profile", "-m", "simulated", "--url", f"http://127.0.0.1:{port}", "--ui", "dashboard"]
        command += ["--endpoint-type", "chat", "--streaming", "--concurrency", "8", "--benchmark-duration", "90"]
        command += ["--tokenizer", f"{folder}/tokenizer", "--isl", "300", "--osl", "100"]
        screen = Screen(command, size, folder)
        try:
            screen.read(AIPERF_STARTS_S)
            before = screen.process.cpu_times()
            begin = time.perf_counter()
            sent = len(screen.read(AIPERF_SECONDS))
            wall = time.perf_counter() - begin
            after = screen.process.cpu_times()
            family = screen.process.children(recursive=True)
        finally:
            server.terminate()
        screen.close()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
    return sent / wall, (after.user + after.system - before.user - before.system) / wall * 100


def beside() -> None:
    """Prints the same of AIPerf's dashboard, where it is installed."""
    program = os.environ.get("SPECTOP_AIPERF") or shutil.which("aiperf")
    if program is None:
        print("AIPerf is not installed (SPECTOP_AIPERF names its command): no figures of its dashboard")
        return
    sent, cpu = aiperf(program, SIZES[0])
    print(f"{'aiperf 120x40':<16}{sent:>10.0f}{cpu:>8.1f}  (its dashboard while it measures 8 users)")


def main() -> None:
    """Prints a line a run, and what was held."""
    print(f"{'screen':<16}{'bytes/s':>10}{'CPU %':>8}{'key p50 ms':>12}{'key p95 ms':>12}{'first paint s':>15}")
    held = True
    for kind in ("idle", "busy"):
        for size in SIZES:
            f = measure(kind, size)
            name = f"{kind} {size[0]}x{size[1]}"
            print(
                f"{name:<16}{f['bytes_s']:>10.0f}{f['cpu']:>8.1f}{f['key_p50_ms']:>12.1f}{f['key_p95_ms']:>12.1f}"
                f"{f['paint_s']:>15.2f}"
            )
            held &= f["bytes_s"] <= LIMITS[kind] and f["cpu"] <= CPU_LIMIT and f["key_p95_ms"] <= KEY_LIMIT_MS
            held &= f["paint_s"] <= PAINT_LIMIT_S
    beside()
    load = os.getloadavg()[0]
    print(
        f"limits: idle 100 B/s, busy 20 kB/s, CPU 6 %, key p95 50 ms, first paint 1 s: {'held' if held else 'NOT held'}"
    )
    print(f"the machine's load meanwhile: {load:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
