"""How to ask each server family for one streamed generation: path and body, and nothing of how the answer is read.

What is asked for beyond the text is what makes the figures exact: the final usage, running usage with every chunk
(SGLang, vLLM), and SGLang's speculative and cache counts of the request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.records import GenerationRequest
from loadgen.spec import Target


class Ask(msgspec.Struct, frozen=True):
    """One HTTP POST.

    Attributes:
        path: below the target's base URL.
        body: JSON.
    """

    path: str
    body: bytes


def ask(target: Target, request: GenerationRequest) -> Ask:
    """Puts a request into the target's dialect.

    The route `generate` exists with SGLang only; elsewhere the completions route takes its place. A raw prompt on the
    chat route becomes the user's message, and messages on a raw route become their contents, joined by blank lines.
    SGLang's own route takes no seed.
    """
    if request.route == "generate" and target.dialect == "sglang":
        return Ask("/generate", msgspec.json.encode(_generate_body(request)))
    body = _openai_body(target, request)
    if request.route == "chat":
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        body["messages"] = messages or [{"role": "user", "content": request.text or ""}]
        return Ask("/v1/chat/completions", msgspec.json.encode(body))
    body["prompt"] = _raw_prompt(request)
    return Ask("/v1/completions", msgspec.json.encode(body))


def abort(target: Target, rid: str) -> Ask | None:
    """Returns how to abort a running request by name, `None` where only closing the connection does it."""
    if target.dialect != "sglang":
        return None
    return Ask("/abort_request", msgspec.json.encode({"rid": rid, "abort_all": False}))


def headers(target: Target) -> dict[str, str]:
    """Returns the headers of every request to the target; nothing is compressed, so that each read is one of tokens."""
    fields = {"Accept-Encoding": "identity", "Content-Type": "application/json", "User-Agent": "spectop"}
    if target.api_key:
        fields["Authorization"] = f"Bearer {target.api_key}"
    return fields


def _raw_prompt(request: GenerationRequest) -> str:
    if request.text is not None:
        return request.text
    return "\n\n".join(message.content for message in request.messages)


def _generate_body(request: GenerationRequest) -> dict[str, Any]:
    sampling: dict[str, Any] = {"max_new_tokens": request.max_tokens, "temperature": request.temperature}
    if request.ignore_eos:
        sampling["ignore_eos"] = True
    return {"text": _raw_prompt(request), "sampling_params": sampling, "stream": True, "rid": request.rid}


def _openai_body(target: Target, request: GenerationRequest) -> dict[str, Any]:
    options: dict[str, Any] = {"include_usage": True}
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": options,
    }
    if request.ignore_eos:
        body["ignore_eos"] = True
    if request.seed is not None:
        body["seed"] = request.seed
    if target.dialect == "sglang":
        options["continuous_usage_stats"] = True
        body["rid"] = request.rid
        body["return_spec_tokens_details"] = True
        body["return_cached_tokens_details"] = True
    elif target.dialect == "vllm":
        options["continuous_usage_stats"] = True
        body["request_id"] = request.rid
    return body
