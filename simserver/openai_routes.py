"""`/v1/chat/completions` and `/v1/completions`, streamed and whole."""

from __future__ import annotations

import math
import time
from typing import Any

from aiohttp import web

from simserver import tokenizer
from simserver.http import (
    SERVER,
    InvalidBodyError,
    json_body,
    json_response,
    real_number,
    run_stream,
    run_whole,
    sub_object,
    whole_number,
)
from simserver.job import Job, Sampling
from simserver.state import RefusedError, Server
from simserver.streams import ChatStream, CompletionStream
from simserver.wire import Collector, Shared, StreamOptions, logprobs, spec_details, usage_object

_COMPLETION_TOKENS = 16


def sampling_of(server: Server, body: dict[str, Any], max_new: int | None) -> Sampling:
    """Reads the sampling parameters that the OpenAI routes share.

    Raises:
        RefusedError: a parameter is out of range.
    """
    if max_new is not None:
        if max_new < 0:
            raise RefusedError(f"max_new_tokens must be at least 0, got {max_new}.")
        if max_new > server.context_length:
            raise RefusedError(
                f"max_completion_tokens is too large: {max_new}."
                f"This model supports at most {server.context_length} completion tokens."
            )
    given = real_number(body, "temperature")
    temperature = 1.0 if given is None else given
    if temperature < 0 or not math.isfinite(temperature):
        raise RefusedError(f"temperature must be a non-negative finite number, got {temperature}.")
    stop, stop_ids = body.get("stop") or [], body.get("stop_token_ids") or []
    if not isinstance(stop, str) and not (isinstance(stop, list) and all(isinstance(one, str) for one in stop)):
        raise InvalidBodyError(_not_valid("stop", "string", stop))
    if not isinstance(stop_ids, list) or not all(isinstance(one, int) for one in stop_ids):
        raise InvalidBodyError(_not_valid("stop_token_ids", "list", stop_ids))
    return Sampling(
        max_new=max_new,
        min_new=whole_number(body, "min_tokens") or 0,
        temperature=temperature,
        ignore_eos=bool(body.get("ignore_eos")),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_ids=tuple(stop_ids),
        seed=whole_number(body, "seed"),
    )


def _not_valid(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"type": f"{kind}_type", "loc": ("body", key), "msg": f"Input should be a valid {kind}", "input": value}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _options(server: Server, body: dict[str, Any], *, parse: bool) -> StreamOptions:
    stream = sub_object(body, "stream_options")
    known = "no-usage" not in server.faults
    include = bool(stream.get("include_usage")) or server.settings.args["stream_response_default_include_usage"]
    speculative = server.settings.speculative and "no-spec-details" not in server.faults
    return StreamOptions(
        usage=known and include,
        continuous_usage=known and bool(stream.get("continuous_usage_stats")),
        details=bool(body.get("return_spec_tokens_details")) and speculative,
        cached_details=bool(body.get("return_cached_tokens_details")),
        parse_reasoning=parse,
        hold_reasoning=parse and body.get("stream_reasoning") is False,
        cache_report=bool(server.settings.args["enable_cache_report"]),
        proposed=server.proposed,
        logprobs=bool(body.get("logprobs")),
        top_logprobs=whole_number(body, "top_logprobs") or 0,
    )


def _rids(server: Server, body: dict[str, Any], count: int) -> list[str]:
    given = body.get("rid")
    if isinstance(given, list):
        if len(given) != count:
            raise RefusedError(f"The number of rids ({len(given)}) must be that of the choices ({count}).")
        return [str(one) for one in given]
    if given is None:
        return [server.new_rid() for _ in range(count)]
    return [str(given)] if count == 1 else [f"{given}_{index}" for index in range(count)]


def _extras(options: StreamOptions, jobs: list[Job]) -> dict[str, Any]:
    sglext: dict[str, Any] = {}
    if options.cached_details:
        cached = [{"device": job.cached, "host": 0} for job in jobs]
        sglext["cached_tokens_details"] = cached[0] if len(cached) == 1 else cached
    if options.details:
        details = [spec_details(job, options.proposed) for job in jobs]
        sglext["spec_tokens_details"] = details[0] if len(details) == 1 else details
    return {"sglext": sglext} if sglext else {}


def _whole(server: Server, options: StreamOptions, jobs: list[Job]) -> dict[str, Any]:
    completion = sum(job.emitted for job in jobs)
    reasoning = sum(min(job.emitted, job.reasoning) for job in jobs) if options.parse_reasoning else 0
    cached = sum(job.cached for job in jobs) if options.cache_report else None
    usage = usage_object(jobs[0].prompt_length, completion, cached, reasoning)
    versions = [{"version": "default", "start": 0, "end": jobs[0].emitted}]
    return {
        "usage": None if "no-usage" in server.faults else usage,
        "metadata": {"weight_version": "default", "weight_versions": versions},
        **_extras(options, jobs),
    }


async def chat(request: web.Request) -> web.StreamResponse:
    """`POST /v1/chat/completions`."""
    server = request.app[SERVER]
    body = await json_body(request)
    messages = body.get("messages")
    if messages is None:
        shown = {**body, "tool_choice": body.get("tool_choice", "none")}
        raise InvalidBodyError(
            {"type": "missing", "loc": ("body", "messages"), "msg": "Field required", "input": shown}
        )
    if not messages or not isinstance(messages, list):
        raise RefusedError("Messages cannot be empty.")
    if not all(isinstance(turn, dict) for turn in messages):
        raise InvalidBodyError(_not_valid("messages", "dictionary", messages))
    limit = whole_number(body, "max_completion_tokens")
    sampling = sampling_of(server, body, whole_number(body, "max_tokens") if limit is None else limit)
    turns = [(str(turn.get("role")), _text(turn.get("content"))) for turn in messages]
    template = sub_object(body, "chat_template_kwargs")
    thinking = (
        server.settings.profile.thinking
        and template.get("thinking") is not False
        and template.get("enable_thinking") is not False
    )
    parse = bool(server.settings.args["reasoning_parser"]) and body.get("separate_reasoning") is not False and thinking
    options = _options(server, body, parse=parse)
    prompt = tokenizer.chat_prompt(turns, thinking)
    question = next((text for role, text in reversed(turns) if role == "user"), turns[-1][1] if turns else "")
    model = str(body.get("model") or server.model_name)
    count = max(1, whole_number(body, "n") or 1)
    rids = _rids(server, body, count)
    shared = Shared(count)
    streaming = bool(body.get("stream"))
    for index, rid in enumerate(rids):
        sink = ChatStream(shared, index, rid, model, options) if streaming else Collector(shared)
        job = server.make_job(rid, prompt, question, sampling, sink, thinking=thinking)
        job.streamed = streaming
        shared.jobs.append(job)
    server.submit(shared.jobs)
    if streaming:
        return await run_stream(server, request, shared, shared.jobs, headers_at_once=False)
    await run_whole(server, shared, shared.jobs)
    choices = [_chat_choice(index, job, options) for index, job in enumerate(shared.jobs)]
    return json_response(
        {
            "id": rids[0],
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": choices,
            **_whole(server, options, shared.jobs),
        }
    )


def _chat_choice(index: int, job: Job, options: StreamOptions) -> dict[str, Any]:
    pieces, border = job.pieces[: job.emitted], job.reasoning
    thought, said = None, "".join(pieces)
    if options.parse_reasoning:
        thought = "".join(pieces[: max(0, border - 1)]) or None
        said = "".join(pieces[border:])
    finish = job.finish
    return {
        "index": index,
        "message": {"role": "assistant", "content": said, "reasoning_content": thought},
        "logprobs": logprobs(job, 0, job.emitted, options.top_logprobs) if options.logprobs else None,
        "finish_reason": finish.kind if finish else None,
        "matched_stop": finish.matched if finish else None,
    }


def _prompts(prompt: Any) -> list[str]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return [tokenizer.join(prompt)]
    if isinstance(prompt, list) and prompt:
        return [text for each in prompt for text in _prompts(each)]
    raise RefusedError("Prompt cannot be empty")


async def completions(request: web.Request) -> web.StreamResponse:
    """`POST /v1/completions`."""
    server = request.app[SERVER]
    body = await json_body(request)
    if body.get("prompt") is None:
        raise InvalidBodyError({"type": "missing", "loc": ("body", "prompt"), "msg": "Field required", "input": body})
    limit = whole_number(body, "max_tokens")
    sampling = sampling_of(server, body, _COMPLETION_TOKENS if limit is None else limit)
    options = _options(server, body, parse=False)
    prompts = _prompts(body["prompt"])
    model = str(body.get("model") or server.model_name)
    rids = _rids(server, body, len(prompts))
    shared = Shared(len(prompts))
    streaming = bool(body.get("stream"))
    for index, (rid, prompt) in enumerate(zip(rids, prompts, strict=True)):
        sink = CompletionStream(shared, index, rid, model, options) if streaming else Collector(shared)
        job = server.make_job(rid, prompt, prompt, sampling, sink, thinking=False)
        job.streamed, job.route = streaming, "completions"
        shared.jobs.append(job)
    server.submit(shared.jobs)
    if streaming:
        return await run_stream(server, request, shared, shared.jobs, headers_at_once=False)
    await run_whole(server, shared, shared.jobs)
    choices = [
        {
            "index": index,
            "text": "".join(job.pieces[: job.emitted]),
            "logprobs": None,
            "finish_reason": job.finish.kind if job.finish else None,
            "matched_stop": job.finish.matched if job.finish else None,
        }
        for index, job in enumerate(shared.jobs)
    ]
    return json_response(
        {
            "id": rids[0],
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "choices": choices,
            **_whole(server, options, shared.jobs),
        }
    )


async def tokenize(request: web.Request) -> web.StreamResponse:
    """`POST /tokenize`: ids and count of a prompt, a list of prompts, or a conversation."""
    server = request.app[SERVER]
    body = await json_body(request)
    prompt = body.get("prompt")
    if prompt is None and isinstance(body.get("messages"), list):
        turns = [
            (str(turn.get("role")), _text(turn.get("content"))) for turn in body["messages"] if isinstance(turn, dict)
        ]
        prompt = tokenizer.chat_prompt(turns, server.settings.profile.thinking)
    if prompt is None:
        raise InvalidBodyError({"type": "missing", "loc": ("body", "prompt"), "msg": "Field required", "input": body})
    many = isinstance(prompt, list)
    ids = [
        [tokenizer.token_id(piece) for piece in tokenizer.split(str(text))] for text in (prompt if many else [prompt])
    ]
    return json_response(
        {
            "tokens": ids if many else ids[0],
            "count": [len(each) for each in ids] if many else len(ids[0]),
            "max_model_len": server.context_length,
        }
    )


async def detokenize(request: web.Request) -> web.StreamResponse:
    """`POST /detokenize`: text of ids."""
    body = await json_body(request)
    tokens = body.get("tokens") or []
    if not isinstance(tokens, list):
        raise InvalidBodyError(_not_valid("tokens", "list", tokens))
    if tokens and all(isinstance(one, list) for one in tokens):
        return json_response({"text": [tokenizer.join(one) for one in tokens]})
    return json_response({"text": tokenizer.join(tokens)})
