"""`/generate`: SGLang's own route, cumulative or incremental, and `/abort_request`."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from aiohttp import web

from simserver import tokenizer
from simserver.http import (
    SERVER,
    InvalidBodyError,
    json_body,
    json_response,
    respond,
    run_stream,
    run_whole,
    sub_object,
    whole_number,
)
from simserver.job import Job, Sampling
from simserver.openai_routes import sampling_of
from simserver.state import RefusedError, Server
from simserver.wire import DONE, Collector, Shared, chunked

_encode = msgspec.json.encode


class GenerateStream:
    """One choice of `/generate` as server-sent events."""

    def __init__(self, server: Server, shared: Shared) -> None:
        self._server = server
        self._shared = shared
        self._incremental = bool(server.settings.args["incremental_streaming_output"])
        self._gone = False
        self._first_sent: float | None = None

    def push(self, job: Job, start: int, stop: int) -> None:
        """Writes everything so far (or the new part), with its meta information."""
        if self._gone:
            return
        if job.fate is not None and stop >= job.fate_at:
            self._gone = True
            self._meet(job, start)
            return
        begin = start if self._incremental else 0
        first = self._first_sent is None
        if self._first_sent is None:
            self._first_sent = time.time()
        event = {
            "text": "".join(job.pieces[begin:stop]),
            "output_ids": job.ids[begin:stop],
            "meta_info": meta_info(self._server, job, self._first_sent, first=first, streamed=True),
        }
        out = chunked(b"data: " + _encode(event) + b"\n\n")
        if job.finish is not None:
            self._gone = True
            self._shared.left -= 1
            if self._shared.left == 0:
                out += chunked(DONE)
        self._shared.send(out, job, stop - start)
        if self._shared.left == 0:
            self._shared.finish("ok")

    def _meet(self, job: Job, start: int) -> None:
        from simserver.job import Finish

        job.emitted = start
        job.finish = job.finish or Finish("abort", message="fault")
        if job.fate == "stream-error":
            self._shared.send(
                error_event("The request was aborted by the scheduler.", 503, "service_unavailable") + chunked(DONE)
            )
            self._shared.finish("error")
        else:
            self._shared.finish({"truncate": "truncated", "stall": "stalled"}.get(job.fate or "", "cut"))


def error_event(message: str, code: int, kind: str) -> bytes:
    """Returns an error inside a stream that has already said 200."""
    error = {"error": {"message": message, "type": kind, "code": code, "retryable": False}}
    return chunked(b"data: " + _encode(error) + b"\n\n")


def meta_info(server: Server, job: Job, first_sent: float, *, first: bool, streamed: bool) -> dict[str, Any]:
    """Returns `meta_info` in the real server's order; figures of speculation only once the job has ended."""
    timed = bool(server.settings.args["enable_metrics"])
    finish = job.finish
    meta: dict[str, Any] = {
        "id": job.rid,
        "finish_reason": finish.as_meta() if finish else None,
        "prompt_tokens": job.prompt_length,
        "weight_version": "default",
        "num_retractions": 0,
    }
    if timed:
        meta["storage_prefetch_wait"] = 0.0
        meta["storage_staging_wait"] = 0.0
        meta["forward_entry_time"] = job.forward_wall
        meta["prefill_finished_time"] = job.prefill_done_wall
        meta["queue_time"] = job.queued_s
    meta["reasoning_tokens"] = 0
    meta["completion_tokens"] = job.emitted
    meta["cached_tokens"] = job.cached
    if finish:
        meta["weight_versions"] = [{"version": "default", "start": 0, "end": job.emitted}]
    meta["cached_tokens_details"] = {"device": job.cached, "host": 0} if job.cached else None
    meta["dp_rank"] = None
    if not finish:
        if first:
            meta["response_sent_to_client_ts"] = first_sent
        return meta
    now = time.time()
    whole = now - job.wall_arrival
    meta["e2e_latency"] = whole
    steps, a_step = job.verify_steps, server.proposed
    if steps and a_step and "no-spec-details" not in server.faults:
        meta["spec_accept_rate"] = job.correct / (steps * a_step)
        meta["spec_accept_length"] = job.emitted / steps
        meta["spec_num_correct_drafts"] = job.correct
        meta["spec_num_proposed_drafts"] = steps * a_step
        meta["spec_verify_ct"] = steps
        meta["spec_correct_drafts_histogram"] = job.histogram
    if not timed:
        meta["response_sent_to_client_ts"] = first_sent if streamed else now
        return meta
    latency = (job.first_due_ns - job.arrival_ns) / 1e9 if job.first_due_ns else whole
    meta["request_received_ts"] = job.wall_arrival
    meta["first_token_latency"] = latency
    meta["api_server_dispatch_finish_ts"] = job.wall_arrival + 0.001
    speed = (job.emitted - 1) / max(1e-6, whole - latency) if job.emitted > 1 else 0.0
    if streamed:
        meta["response_sent_to_client_ts"] = first_sent
    meta["request_finished_ts"] = now
    meta["decode_throughput"] = speed
    if not streamed:
        meta["response_sent_to_client_ts"] = now
    return meta


def _sampling(server: Server, parameters: dict[str, Any]) -> Sampling:
    limit = whole_number(parameters, "max_new_tokens")
    return sampling_of(
        server,
        {**parameters, "min_tokens": parameters.get("min_new_tokens"), "seed": parameters.get("sampling_seed")},
        128 if limit is None else limit,
    )


def _inputs(body: dict[str, Any]) -> tuple[list[str], bool]:
    text, ids = body.get("text"), body.get("input_ids")
    if isinstance(text, str):
        return [text], False
    if isinstance(text, list) and text:
        return [str(one) for one in text], True
    if isinstance(ids, list) and ids and all(isinstance(one, list) for one in ids):
        return [tokenizer.join(one) for one in ids], True
    if isinstance(ids, list) and ids:
        return [tokenizer.join(ids)], False
    raise InvalidBodyError({})


async def generate(request: web.Request) -> web.StreamResponse:
    """`POST /generate`."""
    server = request.app[SERVER]
    body = await json_body(request)
    try:
        texts, many = _inputs(body)
    except InvalidBodyError:
        message = "Either text, input_ids or input_embeds should be provided."
        return json_response({"error": {"message": message}}, 400)
    streaming = bool(body.get("stream"))
    given = body.get("rid")
    rids = given if isinstance(given, list) else [given] if given and len(texts) == 1 else [None] * len(texts)
    if len(rids) != len(texts):
        message = f"The number of rids ({len(rids)}) must be that of the inputs ({len(texts)})."
        return json_response({"error": {"message": message}}, 400)
    shared = Shared(len(texts))
    try:
        sampling = _sampling(server, sub_object(body, "sampling_params"))
        for rid, text in zip(rids, texts, strict=True):
            sink = GenerateStream(server, shared) if streaming else Collector(shared)
            job = server.make_job(str(rid or server.new_rid()), text, text, sampling, sink, thinking=False)
            job.streamed, job.route = streaming, "generate"
            shared.jobs.append(job)
        server.submit(shared.jobs)
    except RefusedError as error:
        if not streaming:
            return json_response({"error": {"message": str(error)}}, error.status)
        shared.send(error_event(str(error), error.status, "invalid_request_error") + chunked(DONE))
        shared.finish("error")
        return await run_stream(server, request, shared, (), headers_at_once=True)
    if streaming:
        return await run_stream(server, request, shared, shared.jobs, headers_at_once=True)
    await run_whole(server, shared, shared.jobs)
    answers = [
        {
            "text": "".join(job.pieces[: job.emitted]),
            "output_ids": job.ids[: job.emitted],
            "meta_info": meta_info(server, job, 0.0, first=False, streamed=False),
        }
        for job in shared.jobs
    ]
    return json_response(answers if many else answers[0])


async def abort_request(request: web.Request) -> web.StreamResponse:
    """`POST /abort_request`: always 200; an unknown or empty id does nothing."""
    server = request.app[SERVER]
    body = await json_body(request)
    rid, everything = str(body.get("rid") or ""), bool(body.get("abort_all"))
    if rid or everything:
        server.scheduler.abort(rid, everything=everything)
    return respond(b"", 200, None)
