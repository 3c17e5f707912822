"""Health, readiness, and the flush of the cache."""

from __future__ import annotations

import asyncio

from aiohttp import web

from simserver.http import SERVER, respond

_HEALTH_S = 1.0
_FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. "
    b"(When there are running or waiting requests, the operation will not be performed.)\n"
)


async def health(request: web.Request) -> web.StreamResponse:
    """`GET /health` and `/health_generate`: at least a second long; 503 while starting or stopping."""
    server = request.app[SERVER]
    if server.shutting_down():
        server.log.line("Health check request received during shutdown. Returning 503.")
        return respond(b"", 503, None)
    if not server.ready:
        return respond(b"", 503, None)
    if "hang-generate" not in server.faults:
        server.probe()
    await asyncio.sleep(min(_HEALTH_S, _HEALTH_S / server.settings.sim.speed))
    return respond(b"", 503 if server.shutting_down() else 200, None)


async def ready(request: web.Request) -> web.StreamResponse:
    """`GET /ready` and `/ping`: the flag alone."""
    server = request.app[SERVER]
    return respond(b"", 200 if server.ready and not server.stopping else 503, None)


async def flush_cache(request: web.Request) -> web.StreamResponse:
    """`GET` or `POST /flush_cache?timeout=S`: 400 while anything runs."""
    server = request.app[SERVER]
    try:
        timeout = float(request.query.get("timeout", 0))
    except ValueError:
        timeout = 0.0
    if timeout > 0:
        await server.scheduler.wait_idle(timeout)
    if not server.scheduler.flush():
        waiting, running = len(server.scheduler.waiting), len(server.scheduler.running)
        server.log.line(
            f"Cache not flushed because there are pending requests. #queue-req: {waiting}, #running-req: {running}",
            scheduler=True,
        )
        return respond(b"Flush cache failed.\n", 400, None)
    server.log.line("Cache flushed successfully!", scheduler=True)
    return respond(_FLUSHED, 200, None)
