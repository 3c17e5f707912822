"""A small server of streams whose every token, abort and open stream is known to the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class TokenServer:
    """Speaks SGLang's chat route.

    Attributes:
        tokens: output tokens of every answer, `per_chunk` to a chunk, `delay_s` seconds before each chunk.
        running_usage: every chunk tells how many tokens there are so far; otherwise only the last one does.
        hold: when given, streams wait for it after their first chunk.
        fail_every: every n-th request (counted from 1) gets an error event instead of an end.
        asked: bodies of the requests that came, in order.
    """

    def __init__(
        self,
        *,
        tokens: int = 8,
        per_chunk: int = 2,
        delay_s: float = 0.0,
        fail_every: int = 0,
        running_usage: bool = True,
    ) -> None:
        self.tokens = tokens
        self.per_chunk = per_chunk
        self.delay_s = delay_s
        self.fail_every = fail_every
        self.running_usage = running_usage
        self.hold: asyncio.Event | None = None
        self.asked: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.open_now = self.open_most = self.connections = 0
        self.changed = asyncio.Condition()
        self.url = ""

    async def until(self, what: Any, limit_s: float = 20.0) -> None:
        """Waits until `what()` holds."""
        async with asyncio.timeout(limit_s), self.changed:
            await self.changed.wait_for(what)

    async def _note(self, step: int = 0) -> None:
        self.open_now += step
        self.open_most = max(self.open_most, self.open_now)
        async with self.changed:
            self.changed.notify_all()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
                body = json.loads(await reader.readexactly(length))
                if " /abort_request " in head:
                    self.aborted.append(body["rid"])
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    await self._note()
                else:
                    self.asked.append(body)
                    await self._note(1)
                    try:
                        await self._answer(len(self.asked), reader, writer)
                    finally:
                        await self._note(-1)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for done in range(self.per_chunk, self.tokens + 1, self.per_chunk):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            self._event(writer, {"content": " word" * self.per_chunk}, done)
            await writer.drain()
            if done == self.per_chunk and self.hold is not None:
                await self._held(self.hold, reader)
        if self.fail_every and number % self.fail_every == 0:
            self._send(writer, {"error": {"message": "broken on purpose", "code": 500}})
        else:
            self._event(writer, {}, self.tokens, finish="length")
            steps = max(1, self.tokens // self.per_chunk - 1)
            correct = steps * (self.per_chunk - 1)
            spec = {"spec_verify_ct": steps, "spec_num_correct_drafts": correct, "spec_num_proposed_drafts": 7 * steps}
            self._send(writer, {"choices": [], "sglext": {"spec_tokens_details": spec}})
        self._send(writer, None)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    @staticmethod
    async def _held(hold: asyncio.Event, reader: asyncio.StreamReader) -> None:
        """Waits to be let go, or for the client to leave."""
        waiting = asyncio.ensure_future(hold.wait())
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            done, _ = await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if leaving in done:
                raise ConnectionResetError
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.wait((waiting, leaving))

    def _event(self, writer: asyncio.StreamWriter, delta: dict[str, str], done: int, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        usage = {"prompt_tokens": 60, "total_tokens": 60 + done, "completion_tokens": done}
        self._send(writer, {"choices": [choice], "usage": usage if self.running_usage or finish else None})

    @staticmethod
    def _send(writer: asyncio.StreamWriter, value: dict[str, Any] | None) -> None:
        data = b"data: " + (b"[DONE]" if value is None else json.dumps(value).encode()) + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


@asynccontextmanager
async def token_server(**settings: Any) -> AsyncIterator[TokenServer]:
    served = TokenServer(**settings)
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0, backlog=1024)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()
