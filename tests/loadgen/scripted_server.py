"""A server that does as a script says, connection by connection, and a client of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from loadgen.client import Client
from loadgen.records import GenerationRequest, Message
from loadgen.spec import DialectName, Target

LIMIT_S = 20.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

Serve = Callable[["Connection"], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(content: str | None = None, finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    delta = {} if content is None else {"content": content}
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": usage}
    return chunk(f"data: {json.dumps(body)}\n\n".encode())


ANSWER = event("hello") + event(finish="stop", usage={"completion_tokens": 1})
DONE = chunk(b"data: [DONE]\n\n")


class Connection:
    """One connection of a client, as a server's script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[str, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
        return head.split(" ", 2)[1], await self.reader.readexactly(length)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Waits until the client has closed the connection."""
        async with asyncio.timeout(LIMIT_S):
            while await self.reader.read(1000):
                pass


class Script:
    """A server that does as a script says, connection by connection; aborts are noted."""

    def __init__(self, *serves: Serve) -> None:
        self.serves = list(serves)
        self.answers_aborts = True
        self.connections = 0
        self.aborted: list[dict[str, Any]] = []
        self.paths: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            self.connections += 1
            await self._serve(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _serve(self, connection: Connection) -> None:
        path, body = await connection.request()
        if path == "/abort_request":
            self.aborted.append(json.loads(body))
            if not self.answers_aborts:
                await connection.gone()
                return
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        self.paths.append(path)
        await self.serves.pop(0)(connection)


@asynccontextmanager
async def scripted(*serves: Serve, dialect: DialectName = "sglang") -> AsyncIterator[tuple[Client, Script]]:
    script = Script(*serves)
    server = await asyncio.start_server(script.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(
        Target(base_url=f"http://127.0.0.1:{port}", model="m", dialect=dialect), origin_ns=0, connections=64
    )
    try:
        yield client, script
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


def request(**changes: Any) -> GenerationRequest:
    given: dict[str, Any] = {"rid": "our-id", "messages": (Message("user", "hi"),), "keep_text": True}
    return GenerationRequest(**(given | changes))


async def whole_answer(connection: Connection) -> None:
    await connection.send(HEAD + ANSWER + DONE + END)


async def closes_at_once(connection: Connection) -> None:
    connection.writer.transport.abort()
