"""A simulated server as a real process, and raw HTTP to talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
_DEADLINE_S = 30.0
_BOUND = re.compile(r"Uvicorn running on http://[^:]+:(\d+)")


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer, byte for byte.

    Attributes:
        headers: names and values in their order and case.
        chunks: payloads of the HTTP chunks, empty for answers that are not chunked.
        complete: the last chunk arrived (or all of the content length).
    """

    status: str
    headers: list[tuple[str, str]]
    body: bytes
    chunks: list[bytes]
    complete: bool

    @property
    def code(self) -> int:
        return int(self.status.split()[1])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Data of the server-sent events, parsed; `[DONE]` stays text."""
        found = []
        for block in self.body.decode().split("\n\n"):
            if block.startswith("data: "):
                data = block.removeprefix("data: ")
                found.append(data if data == "[DONE]" else json.loads(data))
        return found


def parse_answer(raw: bytes) -> Answer:
    head, _, rest = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines[1:])]
    lower = {name.lower(): value for name, value in headers}
    if lower.get("transfer-encoding") != "chunked":
        return Answer(lines[0], headers, rest, [], len(rest) >= int(lower.get("content-length", 0)))
    chunks, complete = [], False
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            complete = True
            break
        chunks.append(rest[:length])
        rest = rest[length + 2 :]
    return Answer(lines[0], headers, b"".join(chunks), chunks, complete)


def capture(name: str) -> Answer:
    """A recorded answer of the real server."""
    return parse_answer((DATA / f"{name}.raw").read_bytes())


def capture_request(name: str) -> tuple[str, str, str | None]:
    """Method, path and body of the request that a recorded answer belongs to."""
    request = json.loads((DATA / f"{name}.request.json").read_text())["request"]
    return request["method"], request["path"], request["body"]


@dataclass
class Sim:
    """A running simulated server."""

    process: subprocess.Popen[bytes]
    log_path: Path
    port: int = 0

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode()

    def wait_log(self, text: str) -> None:
        until(lambda: text in self.log or self.process.poll() is not None, f"{text!r} in the log")
        assert text in self.log, self.log[-2000:]

    def exchange(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, timeout: float = 30.0
    ) -> Answer:
        with self.open(method, path, body, headers=headers, timeout=timeout) as sock:
            raw = b""
            with contextlib.suppress(ConnectionResetError):
                while data := sock.recv(65536):
                    raw += data
        return parse_answer(raw)

    @contextlib.contextmanager
    def open(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, timeout: float = 30.0
    ) -> Iterator[socket.socket]:
        data = body.encode() if isinstance(body, str) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
            yield sock

    def get(self, path: str) -> Any:
        return self.exchange("GET", path).json

    def chat(self, prompt: str, **extra: Any) -> Answer:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "temperature": 0, **extra}
        return self.exchange("POST", "/v1/chat/completions", body)

    def stream(self, prompt: str, **extra: Any) -> Answer:
        options = {"stream_options": {"include_usage": True}, "return_spec_tokens_details": True}
        return self.chat(prompt, **{"stream": True, **options, **extra})

    def truth(self, query: str = "") -> Any:
        return self.get(f"/sim/truth?{query}")

    def fault(self, *, set: str | list[str] = (), clear: str | list[str] = ()) -> Any:  # type: ignore[assignment]
        return self.exchange("POST", "/sim/fault", {"set": set, "clear": clear})

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_DEADLINE_S)


def until(condition: Any, what: str, deadline_s: float = _DEADLINE_S) -> None:
    """Waits for a condition, looking often."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        time.sleep(0.01)


def launch(tmp_path: Path, *flags: str, port: int = 0, env: dict[str, str] | None = None) -> Sim:
    """Starts a server and returns at once; `--sim-load-seconds 0` unless given."""
    log_path = tmp_path / f"server-{time.monotonic_ns()}.log"
    argv = [sys.executable, "-m", "simserver", "--model-path", "models/kimi", "--port", str(port)]
    if "--sim-load-seconds" not in flags:
        argv += ["--sim-load-seconds", "0"]
    if "--sim-warmup-seconds" not in flags:
        argv += ["--sim-warmup-seconds", "0"]
    with log_path.open("wb") as log:
        process = subprocess.Popen([*argv, *flags], stderr=log, stdout=log, env={**os.environ, **(env or {})})
    return Sim(process, log_path, port)


@contextlib.contextmanager
def running(tmp_path: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Sim]:
    """A server that is ready; ended at the end, with its process reaped."""
    sim = launch(tmp_path, *flags, env=env)
    try:
        sim.wait_log("The server is fired up")
        found = _BOUND.search(sim.log)
        assert found is not None
        sim.port = int(found.group(1))
        yield sim
    finally:
        sim.process.kill()
        sim.process.wait(_DEADLINE_S)
