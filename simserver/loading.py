"""The simulated load: it takes its time, and writes the real server's log lines in their order."""

from __future__ import annotations

import importlib
import time
from typing import Any

from simserver.gpus import Gpus
from simserver.log import ServerLog, progress
from simserver.settings import Settings
from simserver.state import kv_bytes, kv_capacity

_UPDATES = 16


def load(settings: Settings, log: ServerLog) -> tuple[Gpus, dict[str, Any]] | None:
    """Takes the time of the load and writes its log; returns `None` when it dies on the way."""
    profile, total = settings.profile, settings.sim.load_seconds
    gpus = Gpus(profile.gpu, settings.faults, kv_bytes(settings), settings.sim.seed)
    memory = profile.gpu.memory_bytes / 2**30
    weights = profile.gpu.weights_bytes / 2**30
    crash = settings.faults.number("crash-while-loading")
    began = time.monotonic()
    log.line("Init parallel begin.", scheduler=True)
    log.line(f"Init parallel ends. elapsed={0.02 * total:.2f} s", scheduler=True)
    log.line(f"Load weight begin. avail mem={memory - 0.7:.2f} GB", scheduler=True)
    # The HTTP side is imported now: the load takes as long as it was told to, with the import in it.
    importlib.import_module("simserver.serve")
    updates = min(_UPDATES, profile.shards)
    for update in range(updates + 1):
        share = update / updates
        _wait_until(began + total * 0.8 * share)
        if crash is not None and share >= crash:
            _die(log, profile.gpu.name, memory)
            return None
        done = round(share * profile.shards)
        log.raw(progress(done, profile.shards, time.monotonic() - began))
        gpus.set_loaded(share)
    log.raw("\n")
    loaded = time.monotonic() - began
    free = memory - 0.7 - weights
    log.line(
        f"Load weight end. elapsed={loaded:.2f} s, type={profile.architecture}, avail mem={free:.2f} GB, "
        f"mem usage={weights:.2f} GB.",
        scheduler=True,
    )
    kv = kv_bytes(settings) / 2**30
    log.line(
        f"KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: {kv_capacity(settings)}, KV size: {kv:.2f} GB",
        scheduler=True,
    )
    log.line(f"Memory pool end. avail mem={free - kv:.2f} GB", scheduler=True)
    _draft_lines(settings, log)
    log.line(
        f"Capture decode CUDA graph begin. This can take up to several minutes. avail mem={free - kv:.2f} GB",
        scheduler=True,
    )
    _wait_until(began + total)
    graphs = profile.gpu.graphs_bytes / 2**30
    log.line(
        f"Capture decode CUDA graph end. Time elapsed: {0.2 * total:.2f} s. mem usage={graphs:.2f} GB. "
        f"avail mem={free - kv - graphs:.2f} GB.",
        scheduler=True,
    )
    args = settings.args
    log.line(
        f"max_total_num_tokens={kv_capacity(settings)}, chunked_prefill_size={args['chunked_prefill_size']}, "
        f"max_prefill_tokens={args['max_prefill_tokens']}, max_running_requests={args['max_running_requests'] or 256}, "
        f"context_len={args['context_length']}, available_gpu_mem={free - kv - graphs:.2f} GB",
        scheduler=True,
    )
    gpus.set_loaded(1.0)
    whole = time.monotonic() - began
    phases = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
    times: dict[str, Any] = {
        "load_weight": loaded,
        "kv_cache_allocation": 0.02 * total,
        "scheduler_e2e": whole,
        "cuda_graph": {phase: 0.1 * total if "decode" in phase else 0.0 for phase in phases},
        "tokenizer_e2e": time.monotonic() - began,
    }
    graph_times = ", ".join(f"{phase}={seconds:.2f}" for phase, seconds in times["cuda_graph"].items())
    log.line(
        f"Engine startup timings (s): load_weight={loaded:.2f}, "
        f"kv_cache_allocation={times['kv_cache_allocation']:.2f}, scheduler_e2e={whole:.2f}, "
        f"cuda_graph={{{graph_times}}}, tokenizer_e2e={times['tokenizer_e2e']:.2f}"
    )
    return gpus, times


def _draft_lines(settings: Settings, log: ServerLog) -> None:
    args = settings.args
    if args["speculative_algorithm"] not in ("DFLASH", "DDTREE"):
        return
    name = args["speculative_algorithm"]
    block = settings.verification.depth + 1
    backend = args["speculative_draft_attention_backend"] or args["attention_backend"]
    log.line(
        f"Initialized {'DFLASH'} draft runner. attention_backend={backend}, model=DFlashDraftModel, "
        f"block_size={block}, draft_window_size={settings.window}, compact_cache={settings.window is not None}",
        scheduler=True,
    )
    log.line(
        "DFLASH draft runner ready. mask_token=<|MASK|>, mask_token_id=163838, mask_token_id_override=None, "
        "noise_embed_scale=None",
        scheduler=True,
    )
    log.line("DFLASH fused KV materialization enabled. n_layers=6, num_kv_heads=8, head_dim=128", scheduler=True)
    if block != settings.profile.block_size:
        log.line(
            f"DFLASH block size mismatch: using speculative_num_draft_tokens={block} but draft config "
            f"block_size={settings.profile.block_size}.",
            scheduler=True,
        )
    if settings.verification.kind == "tree":
        log.line(
            f"{name} tree verify enabled. budget={settings.verification.budget}, topk={settings.verification.topk}, "
            f"draft_token_num={settings.verification.width}",
            scheduler=True,
        )


def _die(log: ServerLog, gpu: str, memory: float) -> None:
    log.raw("\n")
    log.line(
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has a total capacity of "
        f"{memory:.2f} GiB of which 512.00 MiB is free.",
        scheduler=True,
    )
    log.line(f"Received sigquit from a child process. It usually means the child failed. ({gpu})")


def _wait_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
