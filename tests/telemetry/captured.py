"""Answers recorded from real servers, replayed byte for byte over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

DATA = Path(__file__).parent / "data"


def raw(server: str, name: str) -> bytes:
    """Returns a recorded HTTP answer, head and chunk framing included."""
    return (DATA / server / f"{name}.raw").read_bytes()


def body(server: str, name: str) -> str:
    """Returns the recorded answer's body as text."""
    head, _, rest = raw(server, name).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest.decode()
    whole = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        whole, rest = whole + rest[:length], rest[length + 2 :]
    return whole.decode()


def answer(status: str, text: str = "") -> bytes:
    """Returns a made-up answer."""
    content = text.encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content


class Replay:
    """A server whose answers are bytes by path; `asked` counts requests, `None` means never to answer."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | None] = {}
        self.asked: dict[str, int] = {}
        self.heads: list[str] = []
        self.url = ""
        self.arrived = asyncio.Event()
        self.handling: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self.handle(reader, writer))
        self.handling.add(task)
        task.add_done_callback(self.handling.discard)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.reply(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        self.arrived.set()
        path = head.split(" ")[1].partition("?")[0]
        self.asked[path] = self.asked.get(path, 0) + 1
        content = self.answers.get(path, answer("404 Not Found", '{"detail":"Not Found"}'))
        if content is None:
            await reader.read()
        else:
            writer.write(content)
            await writer.drain()


@asynccontextmanager
async def replaying(
    answers: dict[str, bytes | None] | None = None, port: int = 0, replay: Replay | None = None
) -> AsyncIterator[Replay]:
    """Starts a replay on a free port (or the given one) for as long as the block lasts."""
    replay = replay or Replay()
    replay.answers.update(answers or {})
    server = await asyncio.start_server(replay.accept, "127.0.0.1", port)
    replay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield replay
    for task in tuple(replay.handling):
        task.cancel()
    await asyncio.gather(*replay.handling, return_exceptions=True)
