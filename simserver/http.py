"""The HTTP rim: uvicorn's headers, error bodies, authorisation, access log, and the writing of streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from simserver.job import Job
from simserver.state import ARRIVED, RefusedError, Server
from simserver.wire import Shared

SERVER: web.AppKey[Server] = web.AppKey("server", Server)
_SOURCE = "/sgl-workspace/sglang/python/sglang/srt/entrypoints/http_server.py"
_HANDLERS = {
    "/v1/chat/completions": (1870, "openai_v1_chat_completions"),
    "/v1/completions": (1858, "openai_v1_completions"),
    "/generate": (940, "generate_request"),
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def respond(
    body: bytes, status: int = 200, content_type: str | None = "application/json", allow: str | None = None
) -> web.Response:
    """Returns a whole answer with uvicorn's headers in uvicorn's order."""
    headers = {"date": formatdate(usegmt=True), "server": "uvicorn"}
    if allow is not None:
        headers["allow"] = allow
    headers["content-length"] = str(len(body))
    if content_type is not None:
        headers["content-type"] = content_type
    headers["vary"] = "Origin"
    return web.Response(body=body, status=status, headers=headers)


def json_response(value: Any, status: int = 200) -> web.Response:
    """Returns a value as JSON, keys in their order."""
    return respond(msgspec.json.encode(value), status)


def error_response(error: RefusedError) -> web.Response:
    """Returns SGLang's error body: no `error` wrapper around it."""
    return json_response(
        {"object": "error", "message": str(error), "type": error.kind, "param": None, "code": error.status},
        error.status,
    )


def invalid(path: str, problem: dict[str, Any]) -> web.Response:
    """Returns the body of a request that did not fit its schema."""
    line, name = _HANDLERS.get(path, (1870, "handler"))
    message = (
        f"1 validation error:\n  {problem!r}\n\n"
        f'  File "{_SOURCE}", line {line}, in {name}\n    POST {path} [{problem!r}]'
    )
    return json_response(
        {"object": "error", "message": message, "type": "Bad Request", "param": None, "code": 400}, 400
    )


class InvalidBodyError(Exception):
    """A body that is no JSON object or lacks a field; carries what pydantic would have said."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem))
        self.problem = problem


async def json_body(request: web.Request) -> dict[str, Any]:
    """Returns the request's JSON object.

    Raises:
        InvalidBodyError: there is none.
    """
    raw = await request.read()
    if not raw:
        raise InvalidBodyError({"type": "missing", "loc": ("body",), "msg": "Field required", "input": None})
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = "unexpected end of data" if "truncated" in str(error) else str(error)
        raise InvalidBodyError(
            {
                "type": "json_invalid",
                "loc": ("body", len(raw)),
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": reason},
            }
        ) from None
    if not isinstance(body, dict):
        raise InvalidBodyError(
            {
                "type": "model_attributes_type",
                "loc": ("body",),
                "msg": "Input should be a valid dictionary or object to extract fields from",
                "input": body,
            }
        )
    return body


def whole_number(body: dict[str, Any], key: str) -> int | None:
    """Returns an integer field, `None` where it is absent or null.

    Raises:
        InvalidBodyError: it is something else.
    """
    value = body.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    raise InvalidBodyError(_no_number("int", "integer", key, value, "an integer"))


def real_number(body: dict[str, Any], key: str) -> float | None:
    """Returns a number field, `None` where it is absent or null.

    Raises:
        InvalidBodyError: it is something else.
    """
    value = body.get(key)
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidBodyError(_no_number("float", "number", key, value, "a number")) from None


def _no_number(kind: str, noun: str, key: str, value: Any, what: str) -> dict[str, Any]:
    message = f"Input should be a valid {noun}"
    if isinstance(value, str):
        kind, message = f"{kind}_parsing", f"{message}, unable to parse string as {what}"
    else:
        kind = f"{kind}_type"
    return {"type": kind, "loc": ("body", key), "msg": message, "input": value}


def sub_object(body: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns an object field, an empty one where it is absent or null.

    Raises:
        InvalidBodyError: it is something else.
    """
    value = body.get(key)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    message = "Input should be a valid dictionary or object to extract fields from"
    raise InvalidBodyError({"type": "model_attributes_type", "loc": ("body", key), "msg": message, "input": value})


def _missing_route(error: web.HTTPException) -> web.Response:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods - {"HEAD"}))
        return respond(b'{"detail":"Method Not Allowed"}', 405, allow=allowed)
    return respond(b'{"detail":"Not Found"}', 404)


async def drop_default_type(_: web.Request, response: web.StreamResponse) -> None:
    """Takes away the content type that aiohttp adds to bodies that name none."""
    if response.headers.get("Content-Type") == "application/octet-stream":
        del response.headers["Content-Type"]


@web.middleware
async def rim(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Checks the key, counts, answers errors in the server's own words, and writes the access log."""
    ARRIVED.set(time.perf_counter_ns())
    server = request.app[SERVER]
    counters = server.counters
    endpoint = (request.path, request.method)
    simulated = request.path.startswith("/sim/")
    if not simulated:
        counters.http_requests[endpoint] = counters.http_requests.get(endpoint, 0) + 1
        counters.http_active[endpoint] = counters.http_active.get(endpoint, 0) + 1
    try:
        if not _authorised(server, request):
            response: web.StreamResponse = json_response({"error": "Unauthorized"}, 401)
        else:
            response = await handler(request)
    except web.HTTPException as error:
        response = _missing_route(error)
    except InvalidBodyError as error:
        response = invalid(request.path, error.problem)
    except RefusedError as error:
        response = error_response(error)
    finally:
        if not simulated:
            counters.http_active[endpoint] -= 1
    if not simulated:
        answered = (*endpoint, response.status)
        counters.http_responses[answered] = counters.http_responses.get(answered, 0) + 1
        if not response.prepared:
            log_access(server, request, response.status)
    return response


def _authorised(server: Server, request: web.Request) -> bool:
    key = server.settings.args["api_key"]
    if key is None or request.path.startswith(("/health", "/metrics", "/sim/")):
        return True
    return request.headers.get("Authorization") == f"Bearer {key}"


def log_access(server: Server, request: web.Request, status: int) -> None:
    """Writes uvicorn's access line."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    where = f"{peer[0]}:{peer[1]}" if peer else "-"
    reason = HTTPStatus(status).phrase
    server.log.uvicorn(f'{where} - "{request.method} {request.path_qs} HTTP/1.1" {status} {reason}')


async def run_stream(
    server: Server, request: web.Request, shared: Shared, jobs: Sequence[Job], *, headers_at_once: bool
) -> web.StreamResponse:
    """Answers with server-sent events, from the first token (or at once) to the last.

    Args:
        server: the server.
        request: the request that is answered.
        shared: where the sinks of its jobs write.
        jobs: the jobs of its choices.
        headers_at_once: `/generate` sends its headers before there is anything to say, the OpenAI routes do not.
    """
    outcome = "aborted"
    try:
        if not headers_at_once:
            await shared.first
        response = web.StreamResponse(
            headers={
                "date": formatdate(usegmt=True),
                "server": "uvicorn",
                "content-type": "text/event-stream; charset=utf-8",
                "vary": "Origin",
            }
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        log_access(server, request, 200)
        transport = request.transport
        if transport is None:
            raise asyncio.CancelledError
        shared.attach(transport)
        outcome = await shared.done
        if outcome == "stalled":
            close(server, jobs, outcome)
            await asyncio.get_running_loop().create_future()
        if outcome == "cut":
            transport.abort()
        else:
            await response.write_eof()
    except asyncio.CancelledError:
        if outcome == "aborted":
            server.disconnected(jobs)
        raise
    close(server, jobs, outcome)
    return response


async def run_whole(server: Server, shared: Shared, jobs: Sequence[Job]) -> None:
    """Waits until all jobs have ended."""
    try:
        await shared.done
    except asyncio.CancelledError:
        server.disconnected(jobs)
        raise
    close(server, jobs, "ok")


def close(server: Server, jobs: Sequence[Job], outcome: str) -> None:
    """Tells the truth how the jobs ended."""
    for job in jobs:
        aborted = outcome == "ok" and job.finish is not None and job.finish.kind == "abort"
        server.truth.closed(job, "aborted" if aborted else outcome)
