"""`GET /metrics`: SGLang's names, types and labels in Prometheus' text format."""

from __future__ import annotations

import os

from aiohttp import web

from simserver.counters import Histogram
from simserver.http import SERVER, respond
from simserver.info_routes import memory_usage
from simserver.state import Server

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def head(self, name: str, kind: str, words: str) -> None:
        self._lines += [f"# HELP sglang:{name} {words}", f"# TYPE sglang:{name} {kind}"]

    def sample(self, name: str, labels: dict[str, str], value: float) -> None:
        shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
        self._lines.append(f"sglang:{name}{{{shown}}} {float(value)}" if shown else f"sglang:{name} {float(value)}")

    def histogram(self, name: str, labels: dict[str, str], histogram: Histogram) -> None:
        self.sample(f"{name}_sum", labels, histogram.sum)
        for limit, count in histogram.cumulative():
            self.sample(f"{name}_bucket", {**labels, "le": limit}, count)
        self.sample(f"{name}_count", labels, histogram.count)

    def text(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def exposition(server: Server) -> bytes:
    """Returns the page."""
    page = _Page()
    base = {"engine_type": "unified", "model_name": server.model_name}
    rank = {**base, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    _refresh_idle(server)
    _requests(page, server, base, rank)
    _http(page, server)
    _constants(page, server, base, rank)
    _gauges(page, server, rank)
    _live(page, server, rank)
    return page.text()


def _refresh_idle(server: Server) -> None:
    counters, scheduler = server.counters, server.scheduler
    if not scheduler.running and not scheduler.waiting:
        counters.shown_running = counters.shown_waiting = counters.shown_used = 0
        counters.gen_throughput = 0.0


def _requests(page: _Page, server: Server, base: dict[str, str], rank: dict[str, str]) -> None:
    counters = server.counters
    page.head("process_cpu_seconds_total", "counter", "Total CPU time consumed by this process (user + system)")
    page.sample("process_cpu_seconds_total", {"component": "tokenizer"}, sum(os.times()[:2]))
    page.head("num_retracted_reqs", "gauge", "The number of retracted requests.")
    page.sample("num_retracted_reqs", {**rank, "pid": str(os.getpid())}, 0)
    page.head("num_paused_reqs", "gauge", "The number of paused requests by async weight sync.")
    page.sample("num_paused_reqs", {**rank, "pid": str(os.getpid())}, 0)
    page.head("queue_time_seconds", "histogram", "Histogram of queueing time in seconds.")
    page.histogram("queue_time_seconds", rank, counters.queue)
    streams = [({**base, "is_streaming": str(on).lower()}, one) for on, one in counters.streams.items()]
    page.head("time_to_first_token_seconds", "histogram", "Histogram of time to first token in seconds.")
    for labels, one in streams:
        page.histogram("time_to_first_token_seconds", labels, one.ttft)
    page.head("e2e_request_latency_seconds", "histogram", "Histogram of End-to-end request latency in seconds")
    for labels, one in streams:
        page.histogram("e2e_request_latency_seconds", labels, one.e2e)
    page.head("request_time_per_output_token_seconds", "histogram", "Histogram of time per output token in seconds.")
    for labels, one in streams:
        page.histogram("request_time_per_output_token_seconds", labels, one.per_token)
    page.head("inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.")
    page.histogram("inter_token_latency_seconds", base, counters.itl)
    for name, words, values in (
        ("prompt_tokens_total", "Number of prefill tokens processed.", [one.prompt_tokens for _, one in streams]),
        (
            "generation_tokens_total",
            "Number of generation tokens processed.",
            [o.generation_tokens for _, o in streams],
        ),
        ("num_requests_total", "Number of requests processed.", [one.requests for _, one in streams]),
    ):
        page.head(name, "counter", words)
        for (labels, _), value in zip(streams, values, strict=True):
            page.sample(name, labels, value)
    page.head("cached_tokens_total", "counter", "Number of cached prompt tokens.")
    page.sample("cached_tokens_total", {**base, "cache_source": "device"}, counters.cached_tokens)
    if counters.aborted:
        page.head("num_aborted_requests_total", "counter", "Number of requests aborted.")
        page.sample("num_aborted_requests_total", base, counters.aborted)
    if server.settings.speculative:
        page.head("spec_verify_calls_total", "counter", "Number of speculative verify forward passes.")
        page.sample("spec_verify_calls_total", base, counters.verify_calls)


def _http(page: _Page, server: Server) -> None:
    counters = server.counters
    page.head("http_requests_active", "gauge", "Number of currently active HTTP requests")
    for (endpoint, method), value in counters.http_active.items():
        page.sample("http_requests_active", {"endpoint": endpoint, "method": method}, value)
    page.head("http_requests_total", "counter", "Total number of HTTP requests by endpoint and method")
    for (endpoint, method), value in counters.http_requests.items():
        page.sample("http_requests_total", {"endpoint": endpoint, "method": method}, value)
    page.head("http_responses_total", "counter", "Total number of HTTP responses by endpoint and status code")
    for (endpoint, method, status), value in counters.http_responses.items():
        page.sample("http_responses_total", {"endpoint": endpoint, "method": method, "status_code": str(status)}, value)


def _constants(page: _Page, server: Server, base: dict[str, str], rank: dict[str, str]) -> None:
    memory = memory_usage(server)
    page.head("startup_time_seconds", "gauge", "Time of the phases of the start, in seconds.")
    for phase, value in server.startup_time.items():
        if isinstance(value, float):
            page.sample("startup_time_seconds", {**base, "phase": phase}, value)
    for name, words, value in (
        ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", server.scheduler.capacity),
        ("weight_memory_usage_gb", "Memory of the weights, in GB.", memory["weight"]),
        ("kv_cache_memory_usage_gb", "Memory of the KV cache, in GB.", memory["kvcache"]),
        ("page_size", "Page size of the KV cache.", server.settings.args["page_size"]),
        ("context_len", "Maximum context length of the model.", server.context_length),
        ("startup_available_gpu_memory_gb", "Memory left after the start, in GB.", memory["startup_available"]),
    ):
        page.head(name, "gauge", words)
        page.sample(name, rank, value)
    page.head("graph_memory_usage_gb", "gauge", "Memory of the graphs, in GB.")
    for phase, value in memory["graph"].items():
        page.sample("graph_memory_usage_gb", {**rank, "phase": phase}, value)


def _gauges(page: _Page, server: Server, rank: dict[str, str]) -> None:
    counters, scheduler = server.counters, server.scheduler
    graph = bool(scheduler.running) and scheduler.load_view().captured
    gauges: list[tuple[str, str, float]] = [
        ("num_running_reqs", "The number of running requests.", counters.shown_running),
        ("num_queue_reqs", "The number of requests in the waiting queue.", counters.shown_waiting),
        ("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0),
        ("gen_throughput", "The generation throughput (token/s).", counters.gen_throughput),
        ("cache_hit_rate", "The prefix cache hit rate.", counters.cache_hit_rate),
        ("decode_sum_seq_lens", "The sum of all sequence lengths in decode.", counters.shown_used),
        ("token_usage", "The token usage.", counters.shown_used / scheduler.capacity),
        ("full_token_usage", "The token usage for full attention layers.", counters.shown_used / scheduler.capacity),
        ("num_used_tokens", "The number of used tokens.", counters.shown_used),
        ("kv_available_tokens", "KV tokens free.", scheduler.capacity - counters.shown_used - scheduler.cache.tokens),
        ("kv_evictable_tokens", "KV tokens evictable.", scheduler.cache.tokens),
        ("kv_used_tokens", "KV tokens in use.", counters.shown_used),
        ("spec_accept_length", "The average acceptance length of speculative decoding.", counters.accept_length),
        ("spec_accept_rate", "The average acceptance rate of speculative decoding.", counters.accept_rate),
        ("spec_num_steps", "Configured speculative steps.", server.settings.args["speculative_num_steps"] or 0),
        ("spec_num_draft_tokens", "Configured draft tokens.", server.settings.draft_tokens),
        ("utilization", "The utilization.", 0),
        ("new_token_ratio", "The new token ratio.", 0.7),
        ("is_cuda_graph", "Whether the batch is using CUDA graph.", 1.0 if graph else 0.0),
    ]
    for name, words, value in gauges:
        page.head(name, "gauge", words)
        page.sample(name, rank, value)


def _live(page: _Page, server: Server, rank: dict[str, str]) -> None:
    counters = server.counters
    page.head("cuda_graph_passes_total", "counter", "Number of forward passes by graph mode.")
    page.sample("cuda_graph_passes_total", {**rank, "mode": "prefill_none"}, counters.prefill_passes)
    page.sample("cuda_graph_passes_total", {**rank, "mode": "decode_graph"}, counters.decode_passes)
    page.head("realtime_tokens_total", "counter", "Tokens processed, updated at every iteration.")
    page.sample("realtime_tokens_total", {**rank, "mode": "prefill_compute"}, counters.prefill_computed)
    page.sample("realtime_tokens_total", {**rank, "mode": "prefill_cache"}, counters.prefill_cached)
    page.sample("realtime_tokens_total", {**rank, "mode": "decode"}, counters.decode_tokens)


async def metrics(request: web.Request) -> web.StreamResponse:
    """`GET /metrics`; unknown without `--enable-metrics`."""
    server = request.app[SERVER]
    if not server.settings.args["enable_metrics"]:
        return respond(b'{"detail":"Not Found"}', 404)
    body = exposition(server)
    return respond(body, 200, _CONTENT_TYPE)
