"""Bytes recorded from real servers, through the whole client: SGLang with NGRAM, vLLM with DFlash, llama.cpp."""

from __future__ import annotations

import pytest

from loadgen.client import Client
from loadgen.records import AcceptanceSource, Generation, Outcome
from loadgen.spec import DialectName, Target
from tests.loadgen.canned import canned, capture
from tests.loadgen.replay import request_for


async def generate(dialect: DialectName, path: str, name: str) -> Generation:
    async with canned({path: capture(name)}) as (url, _):
        client = Client(Target(base_url=url, model="smollm2", dialect=dialect), origin_ns=0, connections=4)
        try:
            return await client.generate(request_for(path))
        finally:
            await client.close()


async def test_sglang_chat_with_running_usage() -> None:
    done = await generate("sglang", "/v1/chat/completions", "sglang/chat.stream.contusage")
    record = done.record
    assert (record.outcome, record.finish_reason) == (Outcome.OK, "length")
    assert [chunk.tokens for chunk in record.chunks] == [1, 4, 4, 4, 3]
    assert (record.n_first, record.n_first_known, record.n_out, record.prompt_tokens) == (1, True, 16, 42)
    assert done.content == "The sun had set on a stormy night, and the lighthouses of the"
    assert (record.reasoning_tokens, record.cached_tokens, record.verify_steps) == (0, None, None)


async def test_sglang_chat_with_held_back_characters() -> None:
    done = await generate("sglang", "/v1/chat/completions", "sglang/chat.stream.emoji")
    record = done.record
    assert record.valid
    assert record.n_out == 40
    assert len(record.chunks) == 4
    assert all(chunk.tokens is None for chunk in record.chunks)
    assert (record.n_first, record.n_first_known) == (1, False)
    assert "\ufffd" not in done.content


async def test_sglang_generate() -> None:
    done = await generate("sglang", "/generate", "sglang/generate.stream")
    record = done.record
    assert (record.outcome, record.finish_reason) == (Outcome.OK, "length")
    assert (record.n_out, record.prompt_tokens, record.cached_tokens) == (32, 4, 3)
    assert sum(chunk.tokens or 0 for chunk in record.chunks) == 32
    assert (record.verify_steps, record.correct_drafts, record.proposed_drafts) == (8, 23, 24)
    assert record.accepted_histogram == (0, 0, 1, 7)
    assert record.acceptance_source is AcceptanceSource.PER_REQUEST
    assert done.content.startswith(", ") and done.content.count("Once upon a time") == 0


async def test_sglang_completions() -> None:
    done = await generate("sglang", "/v1/completions", "sglang/completions.stream")
    assert done.record.valid
    assert (done.record.n_out, done.record.finish_reason) == (32, "length")
    assert done.content.endswith(" original")


async def test_sglang_refuses_a_long_prompt_in_two_ways() -> None:
    late = (await generate("sglang", "/generate", "sglang/bad.generate.too_long.stream")).record
    assert (late.outcome, late.http_status, late.ttft) == (Outcome.STREAM_ERROR, 200, None)
    assert late.error is not None and "4097 tokens" in late.error
    early = (await generate("sglang", "/v1/chat/completions", "sglang/bad.too_long.stream")).record
    assert (early.outcome, early.http_status) == (Outcome.HTTP_4XX, 400)
    assert early.error is not None and "4127 tokens" in early.error


async def test_vllm_chat_with_running_usage() -> None:
    record = (await generate("vllm", "/v1/chat/completions", "vllm/chat.stream.contusage")).record
    assert (record.outcome, record.finish_reason, record.n_out) == (Outcome.OK, "length", 16)
    assert [chunk.tokens for chunk in record.chunks] == [1] * 16
    assert (record.n_first, record.n_first_known) == (1, True)


async def test_vllm_completions() -> None:
    done = await generate("vllm", "/v1/completions", "vllm/completions.stream")
    assert done.record.valid
    assert (done.record.n_out, done.record.prompt_tokens) == (32, 4)


async def test_vllm_names_an_unknown_model() -> None:
    record = (await generate("vllm", "/v1/chat/completions", "vllm/bad.unknown_model.stream")).record
    assert (record.outcome, record.http_status) == (Outcome.HTTP_4XX, 404)
    assert record.error is not None and "no/such-model" in record.error


@pytest.mark.parametrize(
    ("path", "name", "tokens", "cached"),
    [
        ("/v1/chat/completions", "llama/chat.stream", 48, 24),
        ("/v1/completions", "llama/completions.stream", 32, 0),
    ],
)
async def test_llama(path: str, name: str, tokens: int, cached: int) -> None:
    record = (await generate("openai", path, name)).record
    assert (record.outcome, record.finish_reason) == (Outcome.OK, "length")
    assert (record.n_out, record.cached_tokens) == (tokens, cached)
    assert record.acceptance_source is None


async def test_llama_says_why_a_prompt_is_too_long() -> None:
    record = (await generate("openai", "/v1/chat/completions", "llama/bad.too_long.stream")).record
    assert record.outcome is Outcome.HTTP_4XX
    assert record.error is not None and "exceeds the available context size" in record.error
