"""`/sim/*`: the truth, the GPUs and the faults. The real server has none of these."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from simserver.faults import KINDS, UnknownFaultError
from simserver.http import SERVER, json_body, json_response


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "0") not in ("0", "false", "")


async def truth(request: web.Request) -> web.StreamResponse:
    """`GET /sim/truth?rid=|prefix=&text=1&chunks=1`; `DELETE` forgets the finished requests."""
    server = request.app[SERVER]
    if request.method == "DELETE":
        server.truth.clear()
        return json_response({"cleared": True})
    jobs = server.truth.select(rid=request.query.get("rid"), prefix=request.query.get("prefix", ""))
    report = server.truth.report(jobs, text=_flag(request, "text"), chunks=_flag(request, "chunks"))
    gpu = server.gpus.readings()
    return json_response(
        {
            **report,
            "speed": server.settings.sim.speed,
            "seed": server.settings.sim.seed,
            "running": len(server.scheduler.running),
            "waiting": len(server.scheduler.waiting),
            "faults": server.faults.active,
            "energy_j": sum(one.get("energy_j") or 0.0 for one in gpu["gpus"]),
        }
    )


async def gpus(request: web.Request) -> web.StreamResponse:
    """`GET /sim/gpus`: all GPUs as they are now."""
    return json_response(request.app[SERVER].gpus.readings())


async def fault(request: web.Request) -> web.StreamResponse:
    """`GET /sim/fault` lists; `POST {"set": ["NAME=VALUE"], "clear": ["NAME"]}` changes; `{"clear": "all"}` clears."""
    server = request.app[SERVER]
    if request.method == "POST":
        body = await json_body(request)
        cleared: Any = body.get("clear") or []
        if cleared == "all":
            server.faults.clear()
        else:
            for name in [cleared] if isinstance(cleared, str) else cleared:
                server.faults.clear(str(name))
        wanted: Any = body.get("set") or []
        try:
            for spec in [wanted] if isinstance(wanted, str) else wanted:
                server.faults.set(str(spec))
        except UnknownFaultError as error:
            return json_response({"error": str(error)}, 400)
        server.scheduler.kick()
    known = {
        name: {"default": kind.default, "what": kind.words, "start_only": kind.start_only}
        for name, kind in KINDS.items()
    }
    return json_response({"active": server.faults.active, "known": known})
