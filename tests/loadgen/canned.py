"""A server of fixed answers: raw response bytes by path, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

CAPTURES = Path(__file__).parent / "captures"
NOT_FOUND = b'HTTP/1.1 404 Not Found\r\ncontent-length: 22\r\nconnection: close\r\n\r\n{"detail":"Not Found"}'


class Asked:
    """A request that came: its method and path, its head in lower case, and its body."""

    def __init__(self, line: str, head: str, body: bytes) -> None:
        self.line = line
        self.head = head
        self.body = body


def capture(name: str) -> bytes:
    """The bytes of a real server's response, as recorded."""
    return (CAPTURES / f"{name}.raw").read_bytes()


def answer(body: str, status: str = "200 OK", kind: str = "application/json", extra: str = "") -> bytes:
    data = body.encode()
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{extra}\r\n".encode() + data


@asynccontextmanager
async def canned(answers: Mapping[str, bytes]) -> AsyncIterator[tuple[str, list[Asked]]]:
    """Serves; gives the base URL and the requests that came. Every connection is closed after its answer."""
    asked: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().split("\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
        line = head.split(" HTTP", 1)[0]
        asked.append(Asked(line, head.lower(), await reader.readexactly(length)))
        writer.write(answers.get(line.split(" ", 1)[1], NOT_FOUND))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        await server.wait_closed()
