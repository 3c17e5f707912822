"""A body given away as it comes: every piece in order, and how each kind of body ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from loadgen.body import Take, push
from tests.loadgen.scripted_server import chunk

LIMIT_S = 20.0
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Script:
    """A server that writes what it is told, and sees when its client has gone."""

    def __init__(self) -> None:
        self.writer: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.writer.set_result(writer)
        while await reader.read(1000):
            pass
        self.gone.set()
        writer.close()

    async def send(self, data: bytes) -> None:
        writer = await self.writer
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Script, str]]:
    script = Script()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    async with asyncio.timeout(LIMIT_S):
        yield script, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


class Taken:
    """Takes pieces, and tells when so many have come."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._waiters: list[tuple[int, asyncio.Event]] = []

    def __call__(self, data: bytes) -> None:
        self.pieces.append(data)
        for count, event in self._waiters:
            if len(self.pieces) >= count:
                event.set()

    async def has(self, count: int) -> None:
        event = asyncio.Event()
        self._waiters.append((count, event))
        if len(self.pieces) < count:
            await event.wait()


@asynccontextmanager
async def pushed(take: Take, head: bytes = CHUNKED) -> AsyncIterator[tuple[Script, asyncio.Task[None]]]:
    """A response that has begun and is being given away; the connection is let go at the end."""
    async with scripted() as (script, url), aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.get(url))
        await script.send(head)
        async with await asked as response:
            yield script, asyncio.create_task(push(response.content, take))


async def test_every_piece_in_order_and_the_connection_serves_again() -> None:
    async with scripted() as (script, url), aiohttp.ClientSession() as session:
        for first in (b"one", b"uno"):
            taken = Taken()
            asked = asyncio.create_task(session.get(url))
            await script.send(CHUNKED + chunk(first))
            async with await asked as response:
                reading = asyncio.create_task(push(response.content, taken))
                await taken.has(1)
                await script.send(chunk(b"two"))
                await taken.has(2)
                await script.send(chunk(b"three") + chunk(b"four") + b"0\r\n\r\n")
                await reading
            assert taken.pieces == [first, b"two", b"three", b"four"]
        assert not script.gone.is_set()


@pytest.mark.parametrize(
    ("head", "rest", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", b""),
        (CHUNKED, b"0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"four", b"four"),
    ],
    ids=["empty", "none", "no chunks", "by length"],
)
async def test_bodies_of_every_form(head: bytes, rest: bytes, body: bytes) -> None:
    taken = Taken()
    async with pushed(taken, head) as (script, reading):
        await script.send(rest)
        await reading
    assert b"".join(taken.pieces) == body


async def test_a_body_cut_off_raises_after_all_that_came() -> None:
    taken = Taken()
    async with pushed(taken) as (script, reading):
        await script.send(chunk(b"a part"))
        await taken.has(1)
        (await script.writer).close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await reading
    assert taken.pieces == [b"a part"]


async def test_what_the_taker_raises_is_raised_and_it_is_left_alone() -> None:
    seen: list[bytes] = []

    def take(data: bytes) -> None:
        seen.append(data)
        raise ValueError("not this")

    async with pushed(take) as (script, reading):
        await script.send(chunk(b"one") + chunk(b"two"))
        with pytest.raises(ValueError, match="not this"):
            await reading
    async with asyncio.timeout(LIMIT_S):
        await script.gone.wait()
    assert seen == [b"one"]


async def test_a_cancelled_read_takes_nothing_more() -> None:
    taken = Taken()
    async with pushed(taken) as (script, reading):
        await script.send(chunk(b"one"))
        await taken.has(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await script.send(chunk(b"late") + b"0\r\n\r\n")
    assert taken.pieces == [b"one"]
