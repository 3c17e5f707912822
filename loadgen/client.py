"""Runs one generation over HTTP, from a request to its record: the only place that reads a stream from a server.

A client belongs to one event loop. A failure of a request is the outcome of its record; only cancellation is raised.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from loadgen import dialects
from loadgen.body import push
from loadgen.failures import Failure, before_any_answer, body_text, in_mid_stream, not_a_stream, printable
from loadgen.reading import StreamReading
from loadgen.records import Generation, GenerationRequest, Outcome
from loadgen.spec import Target
from loadgen.sse import EventTooLong
from loadgen.time_limits import TimeLimits

CONNECT_TIMEOUT_S = 10.0
STALE_CONNECTION_S = 2.0
"""A pooled connection that the server had closed fails at once; later failures are the server's and not retried."""

ABORT_TIMEOUT_S = 2.0
ABORTS_AT_ONCE = 64
ABORT_PAUSE_S = 10.0
AFTER_DONE_S = 1.0
"""How long the body may go on after `[DONE]` before the connection is closed instead of reused."""

KEEPALIVE_S = 4.0
"""Idle connections are dropped before the servers do it (after 5 s)."""

ERROR_BODY_BYTES = 64 * 1024
ERROR_BODY_TIMEOUT_S = 2.0
_WANTED_FILES = 65_536
_SPARE_FILES = 64


def raise_file_limit() -> int:
    """Raises the soft limit of open files as far as allowed, and returns how many connections it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else max(1, soft - _SPARE_FILES)


class Prepared:
    """A request ready to be sent: its body is encoded."""

    __slots__ = ("http", "request")

    def __init__(self, request: GenerationRequest, http: httpx.Request) -> None:
        self.request = request
        self.http = http


class Flight:
    """A request in flight, as live views see it.

    Attributes:
        reading: the answer so far.
        on_wire: called once, when the request's headers were handed to the socket.
        body: the response's bytes as the transport gets them, from its headers on.
    """

    __slots__ = ("body", "on_wire", "reading", "wired")

    def __init__(self, reading: StreamReading, on_wire: Callable[[], None] | None) -> None:
        self.reading = reading
        self.on_wire = on_wire
        self.wired = False
        self.body: aiohttp.StreamReader | None = None


_flight: ContextVar[Flight | None] = ContextVar("flight", default=None)


async def _headers_sent(_session: aiohttp.ClientSession, _context: SimpleNamespace, _params: Any) -> None:
    flight = _flight.get()
    if flight is not None and not flight.wired:
        flight.wired = True
        if flight.on_wire is not None:
            flight.on_wire()


async def _response_began(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
) -> None:
    flight = _flight.get()
    if flight is not None:
        flight.body = params.response.content


class Client:
    """Talks to one target.

    Args:
        target: the server under test.
        origin_ns: the session's start, `time.perf_counter_ns`.
        connections: most connections at once; an explicit number, since the transport's own default is 100.
        clock_ns: the clock of every timestamp.
    """

    def __init__(
        self,
        target: Target,
        *,
        origin_ns: int,
        connections: int,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.target = target
        self.connections = connections
        self._origin_ns = origin_ns
        self._clock_ns = clock_ns
        self._transport = AiohttpTransport(client=self._session)
        self._headers = httpx.Headers(dialects.headers(target) | {"Host": httpx.URL(target.base_url).netloc.decode()})
        self._urls: dict[str, httpx.URL] = {}
        self._aborts = asyncio.Semaphore(ABORTS_AT_ONCE)
        self._ending = asyncio.Lock()
        self._in_flight: set[str] = set()
        self._no_aborts_until = 0.0

    def _session(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_headers_sent)
        trace.on_request_end.append(_response_began)
        connector = aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=KEEPALIVE_S)
        return aiohttp.ClientSession(connector=connector, trace_configs=[trace], auto_decompress=False)

    async def close(self) -> None:
        """Closes every connection."""
        await self._transport.aclose()

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Does beforehand what can be done before a request is sent."""
        return Prepared(request, self._post(dialects.ask(self.target, request)))

    async def generate(
        self,
        request: GenerationRequest | Prepared,
        *,
        cell: str | None = None,
        slot: int = 0,
        worker: int = 0,
        due_ns: int | None = None,
        on_flight: Callable[[Flight], None] | None = None,
        on_wire: Callable[[], None] | None = None,
    ) -> Generation:
        """Runs one generation to its end.

        Args:
            request: what to ask, prepared or not.
            cell: stamped on the record.
            slot: stamped on the record.
            worker: stamped on the record.
            due_ns: scheduled start; now when `None`.
            on_flight: is given the answer as it grows, before anything is sent.
            on_wire: called when the request was really handed to a connection.

        Returns:
            The record, with the text where the request asked to keep it. A request cancelled from outside is aborted
            at the server too, and its task's cancellation goes on.
        """
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        request = prepared.request
        due = self._clock_ns() if due_ns is None else due_ns
        status: int | None = None
        failure: Failure | None = None
        self._in_flight.add(request.rid)
        try:
            for last_try in (False, True):
                reading = StreamReading(keep_text=request.keep_text, incremental=self.target.incremental_streaming)
                flight = Flight(reading, on_wire)
                _flight.set(flight)
                if on_flight is not None:
                    on_flight(flight)
                sent = self._clock_ns()
                status, failure, stale = await self._exchange(prepared.http, request, flight, sent)
                if not stale or last_try:
                    break
        finally:
            self._in_flight.discard(request.rid)
            _flight.set(None)
        over = self._clock_ns()
        # A record of a thousand chunks takes most of a millisecond. Streams often end together: the others are read
        # between one record and the next, or their chunks would be seen late.
        async with self._ending:
            await asyncio.sleep(0)
            record = reading.record(
                request,
                cell=cell,
                slot=slot,
                worker=worker,
                origin_ns=self._origin_ns,
                due_ns=due,
                sent_ns=sent,
                over_ns=over,
                http_status=status,
                failure=failure,
            )
        if record.error is not None and self.target.api_key is not None:
            record = msgspec.structs.replace(record, error=record.error.replace(self.target.api_key, "***"))
        if not request.keep_text:
            return Generation(record=record)
        return Generation(record=record, content=reading.content, reasoning=reading.reasoning)

    async def abort(self, rid: str) -> None:
        """Asks the server to abort a running request by name; that it can't be told is no error.

        SGLang aborts every request whose id begins with the given one. Where that would hit another one of this
        client's, nothing is asked: the server aborts a request soon after its connection was closed.
        """
        _flight.set(None)  # what happens to the abort's own request is nothing of the one it aborts
        asked = dialects.abort(self.target, rid)
        if asked is None or any(other.startswith(rid) and other != rid for other in self._in_flight):
            return
        async with self._aborts:
            if time.monotonic() < self._no_aborts_until:
                return
            try:
                async with asyncio.timeout(ABORT_TIMEOUT_S):
                    response = await self._transport.handle_async_request(self._post(asked))
                    await response.aclose()
            except (httpx.HTTPError, aiohttp.ClientError, OSError, TimeoutError):
                # A server that is gone or hangs would hold up hundreds of requests that are to end now.
                self._no_aborts_until = time.monotonic() + ABORT_PAUSE_S

    def _post(self, asked: dialects.Ask) -> httpx.Request:
        url = self._urls.get(asked.path)
        if url is None:
            url = self._urls[asked.path] = httpx.URL(self.target.base_url + asked.path)
        return httpx.Request(
            "POST",
            url,
            headers=self._headers,
            content=asked.body,
            extensions={"timeout": {"connect": CONNECT_TIMEOUT_S}},
        )

    async def _exchange(
        self, http_request: httpx.Request, request: GenerationRequest, flight: Flight, sent_ns: int
    ) -> tuple[int | None, Failure | None, bool]:
        """Sends and reads once.

        Returns:
            HTTP status, failure, and whether a stale pooled connection was the cause.
        """
        reading = flight.reading
        status: int | None = None
        limits: TimeLimits | None = None
        response: httpx.Response | None = None
        try:
            async with asyncio.timeout(None) as scope:
                limits = TimeLimits(request, reading, scope)
                response = await self._transport.handle_async_request(http_request)
                status = response.status_code
                if not response.is_success:
                    return status, await self._refusal(response), False
                await self._read(flight, scope)
            failure = reading.failure()
            if failure is not None and not reading.events:
                failure = not_a_stream(response.headers, reading.head) or failure
            return status, failure, False
        except TimeoutError:
            if reading.done:
                return status, reading.failure(), False
            await self.abort(request.rid)
            failed = limits.failure if limits else None
            return status, failed or Failure(Outcome.TIMEOUT, "timed out"), False
        except asyncio.CancelledError:
            await asyncio.shield(self.abort(request.rid))
            raise
        except EventTooLong as exc:
            await self.abort(request.rid)
            return status, Failure(Outcome.STREAM_ERROR, str(exc)), False
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError) as exc:
            if status is not None:
                return status, reading.failure() if reading.done else in_mid_stream(exc), False
            failure, stale = before_any_answer(exc)
            return status, failure, stale and (self._clock_ns() - sent_ns) / 1e9 < STALE_CONNECTION_S
        finally:
            if limits is not None:
                limits.close()
            if response is not None:
                await self._close(response)

    async def _read(self, flight: Flight, scope: asyncio.Timeout) -> None:
        clock, reading = self._clock_ns, flight.reading

        def take(data: bytes) -> None:
            reading.feed(data, clock())
            if reading.done and not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time() + AFTER_DONE_S)

        assert flight.body is not None  # set before the response was returned
        await push(flight.body, take)
        reading.end()

    @staticmethod
    async def _close(response: httpx.Response) -> None:
        try:
            await response.aclose()
        except (httpx.HTTPError, aiohttp.ClientError, OSError):
            return

    async def _refusal(self, response: httpx.Response) -> Failure:
        body = b""
        try:
            async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
                async for data in cast(httpx.AsyncByteStream, response.stream):
                    body += data
                    if len(body) >= ERROR_BODY_BYTES:
                        break
        except (httpx.HTTPError, aiohttp.ClientError, OSError, TimeoutError):
            pass  # the status tells enough; what came of the body is shown
        outcome = Outcome.HTTP_5XX if response.status_code >= 500 else Outcome.HTTP_4XX
        if response.is_redirect:
            where = printable(response.headers.get("location", "elsewhere"))
            return Failure(outcome, f"HTTP {response.status_code}: the server redirects to {where}")
        return Failure(outcome, f"HTTP {response.status_code}: {body_text(body)}")


class LocalGenerator:
    """Runs generations in this process; a pool does it where streams must not disturb anything else.

    Args:
        target: the server under test.
        origin_ns: the session's start, `time.perf_counter_ns`.
        connections: most generations at once.
    """

    def __init__(self, target: Target, origin_ns: int, connections: int = 64) -> None:
        self._client = Client(target, origin_ns=origin_ns, connections=connections)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Runs one generation to its end; failures are outcomes of the record."""
        return await self._client.generate(request)

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.close()
