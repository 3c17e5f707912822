"""A server that plays recorded reads over a real socket, in step with the client's clock.

Each piece is one chunk of the body, written only when the client has consumed the one before it; the client's clock is
set to the piece's own time before it is written. So the milliseconds of a recording come out exactly, however slow the
machine is.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from loadgen.client import Client, Flight
from loadgen.records import Generation, GenerationRequest, Message
from loadgen.spec import Target

STEP_LIMIT_S = 20.0


class ScriptedClock:
    """A clock that says what it was set to."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> int:
        return round(self.now_ms * 1e6)


class Piece:
    """One read: bytes that arrive at a time."""

    def __init__(self, t_ms: float, data: bytes) -> None:
        self.t_ms = t_ms
        self.data = data


def read_pieces(path: Path) -> list[Piece]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Piece(line["t_ms"], base64.b64decode(line["b64"])) for line in lines]


class Replay:
    """What is served, and what was asked."""

    def __init__(self, pieces: list[Piece], *, status: int, content_type: str, end: str) -> None:
        self.pieces = pieces
        self.status = status
        self.content_type = content_type
        self.end = end
        self.clock = ScriptedClock()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._consumed = 0
        self._more = asyncio.Event()

    def watch(self, flight: Flight) -> None:
        """Counts the bytes that the client's reading was fed."""
        feed = flight.reading.feed

        def counted(data: bytes, t_ns: int) -> None:
            feed(data, t_ns)
            self._consumed += len(data)
            self._more.set()

        flight.reading.feed = counted  # type: ignore[method-assign]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.decode().lower().split("\r\n") if line.startswith("content-length:")
        )
        path = head.split(b" ", 2)[1].decode()
        self.asked.append((path, json.loads(await reader.readexactly(length))))
        if path == "/abort_request":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
            return
        head_lines = (f"HTTP/1.1 {self.status} X", f"content-type: {self.content_type}", "transfer-encoding: chunked")
        writer.write("\r\n".join((*head_lines, "", "")).encode())
        await self._play(writer)

    async def _play(self, writer: asyncio.StreamWriter) -> None:
        written = 0
        for piece in self.pieces:
            self.clock.now_ms = piece.t_ms
            writer.write(b"%x\r\n%b\r\n" % (len(piece.data), piece.data))
            written += len(piece.data)
            if self.status == 200:
                await self._until_consumed(written)
        if self.end == "reset":
            writer.transport.abort()
            return
        if self.end == "cut":
            writer.close()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def _until_consumed(self, count: int) -> None:
        async with asyncio.timeout(STEP_LIMIT_S):
            while self._consumed < count:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def serving(replay: Replay) -> AsyncIterator[str]:
    server = await asyncio.start_server(replay.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def request_for(path: str, **changes: Any) -> GenerationRequest:
    route = {"/generate": "generate", "/v1/completions": "completions"}.get(path, "chat")
    fields: dict[str, Any] = {"rid": "r-1", "route": route, "keep_text": True, "max_tokens": 64}
    if route == "chat":
        fields["messages"] = (Message("user", "demo"),)
    else:
        fields["text"] = "demo"
    return GenerationRequest(**(fields | changes))


async def play(
    pieces: list[Piece],
    *,
    path: str = "/v1/chat/completions",
    status: int = 200,
    content_type: str = "text/event-stream; charset=utf-8",
    end: str = "clean_eof",
    target: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Generation, Replay]:
    """Runs one request against a replay, and returns what came of it."""
    replay = Replay(pieces, status=status, content_type=content_type, end=end)
    async with serving(replay) as url:
        client = Client(
            Target(base_url=url, model="demo/target-27b", **(target or {})),
            origin_ns=0,
            connections=8,
            clock_ns=replay.clock,
        )
        try:
            generation = await client.generate(request_for(path, **changes), on_flight=replay.watch)
        finally:
            await client.close()
    return generation, replay
