"""The server's own gauges, sampled without slowing anything: each endpoint has its own deadline and its own memory.

`ServerGauges.sample` never raises for what a server does; what could not be read is said in the sample's `problem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Literal

import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from telemetry import gauges
from telemetry.gauges import LoadsReading, MetricsReading, Totals
from telemetry.samples import ServerSample

TIMEOUT_S = 2.0
ABSENT_FOR_S = 60.0
"""How long an endpoint that answered 404 is left alone; a restart (`forget`, a refused connection) ends it early."""
SLOW_PAUSE_S = 4.0
SLOW_PAUSE_MAX_S = 32.0
THREAD_ABOVE_BYTES = 256 * 1024
"""Larger bodies are parsed in a thread; smaller ones take about a millisecond."""
LOADS_PATH = "/v1/loads?include=core,spec,queues"

Dialect = Literal["sglang", "vllm", "openai"]


class Endpoint:
    """One address of the server: fetched with a deadline, left alone for a while when absent or slow.

    Attributes:
        problem: why there was no answer the last time, in one line; `None` after an answer or a plain 404.
        refused: nothing listened the last time.
    """

    def __init__(self, client: httpx.AsyncClient, path: str) -> None:
        self._client = client
        self._path = path
        self._not_before = 0.0
        self._pause_s = SLOW_PAUSE_S
        self.absent = False
        self.refused = False
        self.problem: str | None = None

    def forget(self) -> None:
        """Asks again at the next sample, whatever happened before."""
        self._not_before = 0.0
        self._pause_s = SLOW_PAUSE_S
        self.absent = self.refused = False
        self.problem = None

    async def fetch(self, timeout_s: float) -> bytes | None:
        """Returns the body of a 200 answer, or `None`; takes at most `timeout_s` seconds."""
        now = time.monotonic()
        if now < self._not_before:
            return None
        name = self._path.partition("?")[0]
        self.refused = False
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._client.get(self._path)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            self.refused = _refused(error)
            if self.refused:
                self.problem = "the server refuses connections"
            elif isinstance(error, TimeoutError | httpx.TimeoutException):
                self.problem = f"{name}: no answer within {timeout_s:g} s, next try in {self._pause_s:g} s"
                self._not_before = now + timeout_s + self._pause_s
                self._pause_s = min(2 * self._pause_s, SLOW_PAUSE_MAX_S)
            else:
                self.problem = f"{name}: {str(error) or type(error).__name__}"
            return None
        self._pause_s = SLOW_PAUSE_S
        self.absent = answer.status_code in (404, 405, 501)
        if self.absent:
            self.problem = None
            self._not_before = now + ABSENT_FOR_S
            return None
        if answer.status_code in (401, 403):
            self.problem = f"{name}: HTTP {answer.status_code}, the server wants another API key"
            self._not_before = now + ABSENT_FOR_S
            return None
        if answer.status_code != 200:
            self.problem = f"{name}: HTTP {answer.status_code}"
            return None
        self.problem = None
        return answer.content


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
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/"),
            headers=headers,
            transport=AiohttpTransport(limits=httpx.Limits(max_connections=4, keepalive_expiry=4.0)),
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
        loads_body, metrics_body = await asyncio.gather(
            self._fetch(self._loads), self._fetch(self._metrics), return_exceptions=False
        )
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


def combine(
    t: float,
    loads: LoadsReading | None,
    metrics: MetricsReading | None,
    previous: Totals | None,
    elapsed_s: float,
) -> ServerSample:
    """Makes one sample of what the two endpoints said: live counts from `/v1/loads`, the rest from `/metrics`.

    Args:
        t: seconds since the session's start.
        loads: `/v1/loads`, where it answered.
        metrics: `/metrics`, likewise.
        previous: the counters of the sample before, read `elapsed_s` seconds earlier.
        elapsed_s: seconds since then.
    """
    if metrics is None and loads is None:
        return ServerSample(t=t, source="none")
    now = metrics.totals if metrics else Totals()
    reset = previous is not None and was_reset(previous, now)
    before = None if reset else previous
    ranks = loads.ranks if loads else ()
    running = _sum_int([rank.running for rank in ranks])
    waiting = _sum_int([rank.waiting for rank in ranks])
    throughput = None
    if metrics is not None:
        running = metrics.running if running is None else running
        waiting = metrics.waiting if waiting is None else waiting
        throughput = metrics.gen_throughput_tok_s
    if throughput is None:
        throughput = _sum_known([rank.gen_throughput_tok_s for rank in ranks])
    lifetimes = [rank.acceptance_lifetime for rank in ranks]
    lifetime = _only([value for value in lifetimes if value is not None])
    gauge, label = _acceptance_gauge(metrics, before)
    if lifetime is None and not ranks:
        lifetime = _acceptance(now.drafts, now.accepted)
    return ServerSample(
        t=t,
        source="+".join(name for name, there in (("/v1/loads", loads), (_metrics_name(metrics), metrics)) if there),
        running=running,
        waiting=waiting,
        token_usage=_max_known([rank.token_usage for rank in ranks] + [metrics.token_usage if metrics else None]),
        cache_hit_rate=_cache_hit_rate(loads, metrics, before),
        gen_throughput_tok_s=None if running == 0 else throughput,
        gen_throughput_last_tok_s=throughput,
        decode_tok_s=_rate(before.decode if before else None, now.decode, elapsed_s),
        decode_tokens_total=now.decode,
        generated_total=now.generated,
        verify_calls_total=now.verify_calls,
        drafts_total=now.drafts,
        draft_tokens_total=now.draft_tokens,
        accepted_total=now.accepted,
        accepted_per_position=now.accepted_per_position,
        acceptance_gauge=gauge,
        acceptance_gauge_label=label,
        acceptance_lifetime=lifetime,
        acceptance_by_rank=tuple(lifetimes) if len(ranks) > 1 and any(lifetimes) else None,
        queue_time_mean_s=_ratio_of_rises(before, now, "queue_s", "queued"),
        counters_reset=reset,
        stale=running == 0,
        ranks=max(len(ranks), metrics.ranks if metrics else 1),
    )


def was_reset(previous: Totals, now: Totals) -> bool:
    """Returns whether the server started its counters again between the two readings."""
    if previous.created is not None and now.created is not None and now.created > previous.created:
        return True
    for name in Totals.__struct_fields__:
        before, after = getattr(previous, name), getattr(now, name)
        if isinstance(before, float) and isinstance(after, float) and after < before:
            return True
    return False


def _acceptance_gauge(metrics: MetricsReading | None, before: Totals | None) -> tuple[float | None, str | None]:
    if metrics is None:
        return None, None
    if metrics.family == "sglang":
        gauge = metrics.acceptance_gauge
        return gauge, gauges.SGLANG_GAUGE_LABEL if gauge is not None else None
    drafts = _rise(before.drafts if before else None, metrics.totals.drafts)
    accepted = _rise(before.accepted if before else None, metrics.totals.accepted)
    gauge = _acceptance(drafts, accepted)
    return gauge, gauges.COUNTER_GAUGE_LABEL if gauge is not None else None


def _cache_hit_rate(loads: LoadsReading | None, metrics: MetricsReading | None, before: Totals | None) -> float | None:
    if metrics is not None and metrics.family == "vllm":
        return _ratio_of_rises(before, metrics.totals, "cache_hits", "cache_queries")
    if metrics is not None and metrics.cache_hit_rate is not None:
        return metrics.cache_hit_rate
    return loads.ranks[0].cache_hit_rate if loads is not None and len(loads.ranks) == 1 else None


def _acceptance(drafts: float | None, accepted: float | None) -> float | None:
    return 1.0 + accepted / drafts if drafts and accepted is not None else None


def _ratio_of_rises(before: Totals | None, now: Totals, over: str, under: str) -> float | None:
    if before is None:
        return None
    rise = _rise(getattr(before, over), getattr(now, over))
    base = _rise(getattr(before, under), getattr(now, under))
    return rise / base if rise is not None and base else None


def _rise(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None else None


def _rate(before: float | None, now: float | None, elapsed_s: float) -> float | None:
    rise = _rise(before, now)
    return rise / elapsed_s if rise is not None and elapsed_s > 0 else None


def _sum_int(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _only(values: list[float]) -> float | None:
    return values[0] if len(values) == 1 else None


def _metrics_name(metrics: MetricsReading | None) -> str:
    return f"/metrics ({metrics.family})" if metrics else "/metrics"


async def _parsed(body: bytes) -> MetricsReading | None:
    text = body.decode("utf-8", errors="replace")
    if len(text) > THREAD_ABOVE_BYTES:
        return await asyncio.to_thread(gauges.read_metrics, text)
    return gauges.read_metrics(text)


def _refused(error: BaseException) -> bool:
    """Looks through the causes: the transport reports a refused connection as a time-out of connecting."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return True
        if isinstance(getattr(cause, "os_error", None), ConnectionRefusedError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
