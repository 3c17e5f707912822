"""The HTTP server's life: bound after the load, 503 while warming up, draining and still answering after SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import time
from typing import Any

from aiohttp import web

from simserver import exposition, generate_routes, health_routes, info_routes, openai_routes, sim_routes
from simserver.gpus import Gpus
from simserver.http import SERVER, drop_default_type, rim
from simserver.log import ServerLog
from simserver.settings import Settings
from simserver.state import Server

_KEEP_ALIVE_S = 5.0
# Collections over many live requests would show as late steps.
_GC_THRESHOLDS = (50_000, 20, 100)
_LARGEST_BODY = 64 * 2**20


def build_app(server: Server) -> web.Application:
    """Returns the application with all its routes."""
    app = web.Application(middlewares=[rim], client_max_size=_LARGEST_BODY)
    app[SERVER] = server
    app.on_response_prepare.append(drop_default_type)
    get, post = app.router.add_get, app.router.add_post
    post("/v1/chat/completions", openai_routes.chat)
    post("/v1/completions", openai_routes.completions)
    for path in ("/tokenize", "/v1/tokenize"):
        post(path, openai_routes.tokenize)
    for path in ("/detokenize", "/v1/detokenize"):
        post(path, openai_routes.detokenize)
    post("/generate", generate_routes.generate)
    post("/abort_request", generate_routes.abort_request)
    get("/v1/models", info_routes.models, allow_head=False)
    get("/v1/models/{name:.+}", info_routes.model, allow_head=False)
    for path in ("/server_info", "/get_server_info"):
        get(path, info_routes.get_server_info, allow_head=False)
    for path in ("/model_info", "/get_model_info"):
        get(path, info_routes.get_model_info, allow_head=False)
    get("/v1/loads", info_routes.loads, allow_head=False)
    for path in ("/health", "/health_generate"):
        get(path, health_routes.health, allow_head=False)
    for path in ("/ready", "/ping"):
        get(path, health_routes.ready, allow_head=False)
    get("/flush_cache", health_routes.flush_cache, allow_head=False)
    post("/flush_cache", health_routes.flush_cache)
    get("/metrics", exposition.metrics, allow_head=False)
    get("/sim/truth", sim_routes.truth, allow_head=False)
    app.router.add_delete("/sim/truth", sim_routes.truth)
    get("/sim/gpus", sim_routes.gpus, allow_head=False)
    get("/sim/fault", sim_routes.fault, allow_head=False)
    post("/sim/fault", sim_routes.fault)
    return app


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock


async def serve(settings: Settings, log: ServerLog, gpus: Gpus, startup_time: dict[str, Any]) -> int:
    """Serves until a SIGTERM has been drained; returns the exit status."""
    server = Server(settings, log, gpus, startup_time)
    host, port = str(settings.args["host"]), int(settings.args["port"])
    pid = os.getpid()
    log.uvicorn(f"Started server process [{pid}]")
    log.uvicorn("Waiting for application startup.")
    log.uvicorn("Application startup complete.")
    try:
        if "port-in-use" in settings.faults:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        sock = _bind(host, port)
    except OSError as error:
        log.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): "
            f"{(error.strerror or '').lower()}",
            "ERROR",
        )
        log.uvicorn("Waiting for application shutdown.")
        log.uvicorn("Application shutdown complete.")
        return 1
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    runner = web.AppRunner(
        build_app(server), access_log=None, handler_cancellation=True, keepalive_timeout=_KEEP_ALIVE_S
    )
    await runner.setup()
    await web.SockSite(runner, sock, backlog=2048, shutdown_timeout=0.5).start()
    log.uvicorn(f"Uvicorn running on http://{host}:{sock.getsockname()[1]} (Press CTRL+C to quit)")
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    warming = asyncio.create_task(_warm_up(server))
    await stop.wait()
    server.stopping = True
    log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    warming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await warming
    if settings.environment.get("SGL_FORCE_SHUTDOWN", "").lower() not in ("1", "true"):
        await _drain(server)
    log.uvicorn("Shutting down")
    await runner.cleanup()
    log.uvicorn("Waiting for application shutdown.")
    log.uvicorn("Application shutdown complete.")
    log.uvicorn(f"Finished server process [{pid}]")
    return 0


async def _warm_up(server: Server) -> None:
    await asyncio.sleep(server.settings.sim.warmup_seconds)
    server.log.line(
        "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, "
        "#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 28.32",
        scheduler=True,
    )
    server.ready = True
    server.log.line("The server is fired up and ready to roll!")


async def _drain(server: Server) -> None:
    """Goes on answering until nothing runs; looks at it every few seconds, as the real one does."""
    poll = server.settings.sim.drain_poll_seconds
    least = time.monotonic() + (server.faults.number("slow-old-process") or 0.0)
    while True:
        await asyncio.sleep(poll)
        unfinished = [job.rid for job in server.scheduler.unfinished]
        server.log.line(
            f"Gracefully exiting... Remaining number of requests {len(unfinished)}. "
            f"Remaining requests remaining_rids={unfinished}."
        )
        if not unfinished and time.monotonic() >= least:
            return
