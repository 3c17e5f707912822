"""What the server tells about itself: models, settings, loads."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from simserver.http import SERVER, json_response, respond
from simserver.state import VERSION, Server, kv_bytes

_ONLY_TOP = frozenset({"custom_sigquit_handler"})


def memory_usage(server: Server) -> dict[str, Any]:
    """Returns GB of weights, KV cache and graphs."""
    gpu = server.settings.profile.gpu
    graphs = round(gpu.graphs_bytes / 2**30, 3)
    speculative = server.settings.speculative
    return {
        "weight": round(gpu.weights_bytes / 2**30, 3),
        "kvcache": round(kv_bytes(server.settings) / 2**30, 3),
        "startup_available": 4.1,
        "token_capacity": server.scheduler.capacity,
        "token_capacity_swa": None,
        "graph": {
            "prefill": 0.0,
            "decode": 0.0 if speculative else graphs,
            "target_verify": round(graphs * 0.75, 3) if speculative else 0.0,
            "draft_prefill": 0.0,
            "draft_decode": round(graphs * 0.25, 3) if speculative else 0.0,
            "draft_extend": 0.0,
        },
    }


def server_info(server: Server) -> dict[str, Any]:
    """Returns `/server_info`: resolved arguments, then what the scheduler knows, then its own view of both."""
    settings = server.settings
    startup = {key: value for key, value in server.startup_time.items() if key != "tokenizer_e2e"}
    internal = {key: value for key, value in settings.args.items() if key not in _ONLY_TOP}
    internal["pp_max_micro_batch_size"] = server.scheduler.max_running
    internal |= {
        "world_size": settings.args["tp_size"],
        "startup_time": startup,
        "effective_max_running_requests_per_dp": server.scheduler.max_running,
        "last_gen_throughput": round(server.counters.last_throughput, 2),
        "memory_usage": memory_usage(server),
        "decode_cuda_graph_bs": [
            size for size in range(1, server.scheduler.graph_limit + 1) if size < 9 or not size % 8
        ],
        "decode_cuda_graph_memory_gb": round(settings.profile.gpu.graphs_bytes / 2**30, 3),
    }
    lifetime = server.counters.lifetime_accept_length
    if lifetime is not None and settings.speculative:
        internal["avg_spec_accept_length"] = lifetime
    if settings.environment.get("SGLANG_EXPOSE_OWN_ENV_VARS", "").lower() in ("1", "true"):
        internal["env_vars"] = settings.environment
    return {
        **settings.args,
        "launch_command": settings.launch_command,
        "status": "ready",
        "max_total_num_tokens": server.scheduler.capacity,
        "max_req_input_len": server.context_length - 6,
        "startup_time": server.startup_time,
        "hicache_object_layout": {
            "enabled": False,
            "backend": None,
            "page_size": settings.args["page_size"],
            "hicache_object_layout": {"pools": []},
            "reason": "Hierarchical cache is disabled",
        },
        "kv_events": None,
        "internal_states": [internal],
        "version": VERSION,
        "frontend": "python",
    }


async def get_server_info(request: web.Request) -> web.StreamResponse:
    """`GET /server_info`, and its deprecated twin `/get_server_info`."""
    server = request.app[SERVER]
    _deprecate(server, request)
    return json_response(server_info(server))


def _deprecate(server: Server, request: web.Request) -> None:
    if request.path.startswith("/get_"):
        better = "/" + request.path.removeprefix("/get_")
        server.log.line(
            f"Endpoint '{request.path}' is deprecated and will be removed in a future version. "
            f"Please use '{better}' instead."
        )


async def get_model_info(request: web.Request) -> web.StreamResponse:
    """`GET /model_info`, and its deprecated twin."""
    server = request.app[SERVER]
    _deprecate(server, request)
    args, profile = server.settings.args, server.settings.profile
    capture = [4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, 128, *range(144, 257, 16), *range(288, 513, 32)]
    return json_response(
        {
            "model_path": args["model_path"],
            "served_model_name": args["served_model_name"],
            "tokenizer_path": args["tokenizer_path"],
            "is_generation": True,
            "preferred_sampling_params": args["preferred_sampling_params"],
            "weight_version": args["weight_version"],
            "load_format": args["load_format"],
            "reasoning_parser": args["reasoning_parser"],
            "tool_call_parser": args["tool_call_parser"],
            "disaggregation_mode": args["disaggregation_mode"],
            "has_image_understanding": profile.name == "kimi-k26",
            "has_audio_understanding": False,
            "model_type": profile.model_type,
            "architectures": [profile.architecture],
            "embedding": {
                "family": "none",
                "task": "none",
                "execution": "none",
                "attention": "none",
                "pooling": "model_defined",
                "normalize": False,
                "postprocessor": "none",
                "tokenizer_special_tokens": "model_default",
                "supports_dimensions": False,
                "supports_token_embeddings": False,
                "supports_multimodal": False,
                "requires_embedding_flag": False,
                "auto_enable_embedding": False,
                "bcg_eligibility": "disabled",
                "safe_disable_kv_cache": False,
                "safe_disable_radix_cache": False,
                "safe_disable_chunked_prefill": False,
                "enabled": False,
                "matryoshka_dimensions": [],
                "bcg": {
                    "prefill_backend": "disabled",
                    "enabled": False,
                    "capture_token_budget": 4096,
                    "capture_batch_sizes": capture,
                },
                "cache": {
                    "kv_cache_disabled": False,
                    "radix_cache_disabled": bool(args["disable_radix_cache"]),
                    "chunked_prefill_disabled": False,
                },
            },
        }
    )


def _card(server: Server) -> dict[str, Any]:
    return {
        "id": server.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": server.model_name,
        "parent": None,
        "max_model_len": server.context_length,
    }


async def models(request: web.Request) -> web.StreamResponse:
    """`GET /v1/models`."""
    return json_response({"object": "list", "data": [_card(request.app[SERVER])]})


async def model(request: web.Request) -> web.StreamResponse:
    """`GET /v1/models/{name}`."""
    server = request.app[SERVER]
    name = request.match_info["name"]
    if name == server.model_name:
        return json_response(_card(server))
    error = {
        "message": f"The model '{name}' does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    return json_response({"error": error}, 404)


async def loads(request: web.Request) -> web.StreamResponse:
    """`GET /v1/loads`: as last published; some numbers only with `--enable-metrics`."""
    server = request.app[SERVER]
    counters, scheduler, settings = server.counters, server.scheduler, server.settings
    view = scheduler.published
    metered = bool(settings.args["enable_metrics"])
    lifetime = counters.lifetime_accept_length
    if request.query.get("format") == "prometheus":
        lines = [
            f'sglang_num_running_reqs{{dp_rank="0"}} {view.running}',
            f'sglang_num_waiting_reqs{{dp_rank="0"}} {view.waiting}',
            f'sglang_token_usage{{dp_rank="0"}} {view.usage}',
        ]
        if settings.speculative:
            lines.append(f'sglang_spec_accept_length{{dp_rank="0"}} {lifetime or 0.0}')
        return respond(("\n".join(lines) + "\n").encode(), 200, "text/plain; version=0.0.4; charset=utf-8")
    memory = memory_usage(server)
    load: dict[str, Any] = {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": view.running,
        "num_waiting_reqs": view.waiting,
        "num_waiting_uncached_tokens": view.waiting_uncached,
        "num_used_tokens": view.used,
        "num_total_tokens": view.used,
        "num_active_tokens": view.used,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": scheduler.capacity,
        "max_running_requests": scheduler.max_running,
        "token_usage": round(view.usage, 4),
        "gen_throughput": round(counters.gen_throughput, 2) if metered else 0.0,
        "cache_hit_rate": counters.cache_hit_rate if metered else 0.0,
        "utilization": 0.0,
        "total_prefill_uncached_tokens": counters.prefill_computed,
        "total_prefill_busy_us": counters.prefill_busy_us,
        "decode_moments": None,
    }
    parts = {part for part in request.query.get("include", "all").split(",") if part}
    everything = "all" in parts
    if everything or "memory" in parts:
        load["memory"] = {
            "weight_gb": memory["weight"],
            "kv_cache_gb": memory["kvcache"],
            "graph_gb": round(sum(memory["graph"].values()), 3),
            "token_capacity": scheduler.capacity,
        }
    if (everything or "spec" in parts) and settings.speculative and lifetime is not None:
        load["speculative"] = {
            "accept_length": lifetime,
            "accept_rate": counters.accept_rate if metered else 0.0,
        }
    if everything or "disagg" in parts:
        load["disaggregation"] = {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
    if everything or "queues" in parts:
        load["queues"] = {
            "waiting": view.waiting,
            "grammar": 0,
            "paused": 0,
            "retracted": 0,
            "prealloc_ready": 0,
        }
    gpu = settings.profile.gpu
    return json_response(
        {
            "timestamp": datetime.now(UTC).isoformat(),
            "version": VERSION,
            "accelerator": gpu.name,
            "num_accelerators": gpu.count,
            "loads": [load],
        }
    )
