"""The server's own gauges, sampled without slowing anything: each endpoint has its own deadline and its own memory.

`ServerGauges.sample` never raises for what a server does; what could not be read is said in the sample's `problem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import Literal

import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from telemetry import gauges
from telemetry.combining import combine
from telemetry.endpoint import Endpoint
from telemetry.gauges import LoadsReading, MetricsReading, Totals
from telemetry.samples import ServerSample

TIMEOUT_S = 0.8
"""Less than the second between two samples."""
THREAD_ABOVE_BYTES = 256 * 1024
"""Larger bodies are parsed in a thread; smaller ones take about a millisecond."""
LOADS_PATH = "/v1/loads?include=core,spec,queues"

Dialect = Literal["sglang", "vllm", "openai"]


class ServerGauges:
    """Samples `/v1/loads` and `/metrics` of one server, SGLang, vLLM or llama.cpp.

    Counters are compared with the sample before: `decode_tok_s` is their difference over time, and a counter that
    fell is a reset, never a negative rate.
    """

    def __init__(
        self,
        base_url: str,
        dialect: Dialect = "sglang",
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/"),
            headers=headers,
            transport=AiohttpTransport(verify=verify, limits=httpx.Limits(max_connections=4, keepalive_expiry=4.0)),
            timeout=httpx.Timeout(timeout_s),
            trust_env=False,
        )
        self._timeout_s = timeout_s
        self._metrics = Endpoint(self._client, "/metrics")
        self._loads = Endpoint(self._client, LOADS_PATH) if dialect != "vllm" else None
        self._previous: Totals | None = None
        self._previous_at = 0.0

    async def sample(self, t: float) -> ServerSample:
        """Reads both endpoints at once; done within the time limit, whatever the server does.

        Args:
            t: seconds since the session's start.
        """
        started = time.monotonic()
        loads_body, metrics_body = await asyncio.gather(self._fetch(self._loads), self._fetch(self._metrics))
        at = time.monotonic()
        loads = gauges.read_loads(loads_body) if loads_body is not None else None
        metrics = await _parsed(metrics_body) if metrics_body is not None else None
        endpoints = [self._metrics] if self._loads is None else [self._loads, self._metrics]
        refused = any(endpoint.refused for endpoint in endpoints)
        if refused:
            self.forget()
        problem = self._problem(endpoints, loads, metrics, metrics_body, refused=refused)
        previous = self._previous
        elapsed_s = at - self._previous_at
        if metrics is not None:
            self._previous, self._previous_at = metrics.totals, at
        sample = combine(t, loads, metrics, previous, elapsed_s)
        return msgspec.structs.replace(sample, fetch_s=time.monotonic() - started, problem=problem)

    def forget(self) -> None:
        """Forgets which endpoints are absent or slow: call it when the server was started again."""
        for endpoint in (self._loads, self._metrics):
            if endpoint is not None:
                endpoint.forget()

    async def close(self) -> None:
        """Closes the connections."""
        with contextlib.suppress(httpx.HTTPError):
            await self._client.aclose()

    async def _fetch(self, endpoint: Endpoint | None) -> bytes | None:
        return None if endpoint is None else await endpoint.fetch(self._timeout_s)

    def _problem(
        self,
        endpoints: list[Endpoint],
        loads: LoadsReading | None,
        metrics: MetricsReading | None,
        metrics_body: bytes | None,
        *,
        refused: bool,
    ) -> str | None:
        if refused:
            return "the server refuses connections"
        if said := [endpoint.problem for endpoint in endpoints if endpoint.problem]:
            return "; ".join(said)
        if metrics is None and metrics_body is not None:
            return "/metrics: holds none of the names of SGLang, vLLM or llama.cpp"
        if self._metrics.absent:
            what = "counters are missing (SGLang: start it with --enable-metrics)"
            return f"no /metrics: {what}" if loads is not None else "the server has neither /v1/loads nor /metrics"
        return None


async def _parsed(body: bytes) -> MetricsReading | None:
    text = body.decode("utf-8", errors="replace")
    if len(text) > THREAD_ABOVE_BYTES:
        return await asyncio.to_thread(gauges.read_metrics, text)
    return gauges.read_metrics(text)
