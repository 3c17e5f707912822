"""Finding out what answers at an address."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import pytest

from loadgen.certificates import trusted
from loadgen.errors import ModelNotServed, NoModels, TargetError, TargetRefused, TargetUnreachable
from loadgen.spec import DialectName, Target
from loadgen.target import count_tokens, detect_target
from tests.loadgen.canned import answer, canned, capture

SERVERS: dict[str, dict[str, bytes]] = {
    "sglang": {
        "/v1/models": capture("sglang/get.models"),
        "/server_info": capture("sglang/get.server_info"),
        "/version": capture("sglang/get.version"),
    },
    "sglang-old": {
        "/v1/models": capture("sglang/get.models"),
        "/get_server_info": capture("sglang/get.server_info"),
    },
    "vllm": {
        "/v1/models": capture("vllm/get.models"),
        "/version": capture("vllm/get.version"),
        "/server_info": capture("vllm/get.server_info"),
        "/tokenize": capture("vllm/tokenize"),
    },
    "llama": {
        "/v1/models": capture("llama/get.models"),
        "/props": capture("llama/get.props"),
        "/version": capture("llama/get.version"),
        "/tokenize": capture("llama/tokenize"),
    },
}


@pytest.mark.parametrize(
    ("server", "dialect"), [("sglang", "sglang"), ("sglang-old", "sglang"), ("vllm", "vllm"), ("llama", "openai")]
)
async def test_real_servers_are_told_apart(server: str, dialect: DialectName) -> None:
    async with canned(SERVERS[server]) as (url, _):
        target = await detect_target(url + "/v1/")
    assert target == Target(base_url=url, model="smollm2", dialect=dialect, max_model_len=2048)


async def test_incremental_streaming_is_read_from_the_server() -> None:
    answers = SERVERS["sglang"] | {
        "/server_info": answer(json.dumps({"model_path": "m", "incremental_streaming_output": True}))
    }
    async with canned(answers) as (url, _):
        assert (await detect_target(url)).incremental_streaming


async def test_a_gateway_that_renames_the_owner() -> None:
    models = answer(json.dumps({"data": [{"id": "a", "owned_by": "us"}, {"id": "b", "owned_by": "us"}]}))
    async with canned({"/v1/models": models}) as (url, asked):
        target = await detect_target(url, model="b", api_key="sk-1")
        assert (target.model, target.dialect, target.max_model_len) == ("b", "openai", None)
        assert all("authorization: bearer sk-1" in one.head for one in asked)
        assert (await detect_target(url, dialect="vllm")).dialect == "vllm"


async def refusal(answers: dict[str, bytes], **wanted: Any) -> TargetError:
    async with canned(answers) as (url, _):
        with pytest.raises(TargetError) as caught:
            await detect_target(url, **wanted)
    assert caught.value.base_url == url
    return caught.value


async def test_a_model_that_is_not_served() -> None:
    error = await refusal(SERVERS["vllm"], model="kimi-k2.6")
    assert isinstance(error, ModelNotServed)
    assert error.served == ("smollm2",)
    assert "'kimi-k2.6'" in str(error) and "'smollm2'" in str(error)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_wrong_key(status: str) -> None:
    error = await refusal({"/v1/models": answer('{"error":"Unauthorized"}', status)}, api_key="sk-x")
    assert isinstance(error, TargetRefused)
    assert status[:3] in str(error) and "api_key_env" in str(error) and "sk-x" not in str(error)


@pytest.mark.parametrize(
    "models",
    [
        answer('{"object":"list","data":[]}'),
        answer('{"data":"none"}'),
        answer("<html>", kind="text/html"),
        answer("loading", "503 X"),
        answer('{"detail":"Not Found"}', "404 X"),
    ],
)
async def test_no_models(models: bytes) -> None:
    error = await refusal({"/v1/models": models})
    assert isinstance(error, NoModels)
    assert "/v1/models lists no model" in str(error)


async def test_nothing_there() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(TargetUnreachable, match=f"no server at http://127.0.0.1:{port}.*start it, or correct base_url"):
        await detect_target(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("url", ["localhost:30000", "", "ftp://host", "http://", "http://[::1"])
async def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TargetUnreachable, match="no address"):
        await detect_target(url)


@pytest.mark.parametrize(("server", "body"), [("vllm", "prompt"), ("llama", "content")])
async def test_counting_tokens(server: str, body: str) -> None:
    async with canned(SERVERS[server]) as (url, asked):
        target = await detect_target(url)
        assert await count_tokens(target, ["Once upon a time"]) == [4]
        assert json.loads(asked[-1].body)[body] == "Once upon a time"


async def test_many_texts_are_one_question_to_sglang() -> None:
    told = answer(json.dumps({"tokens": [[7], [1, 2, 3]], "count": [1, 3], "max_model_len": 8192}))
    async with canned({**SERVERS["sglang"], "/tokenize": told}) as (url, asked):
        assert await count_tokens(await detect_target(url), ["Once", "upon a time"]) == [1, 3]
        assert [json.loads(a.body)["prompt"] for a in asked if a.line == "POST /tokenize"] == [["Once", "upon a time"]]


async def test_an_sglang_that_counts_one_text_only_is_asked_for_each() -> None:
    told = answer(json.dumps({"tokens": [1, 2, 3, 4], "count": 4, "max_model_len": 8192}))
    async with canned({**SERVERS["sglang"], "/tokenize": told}) as (url, asked):
        assert await count_tokens(await detect_target(url), ["Once upon", "a time it"]) == [4, 4]
        prompts = [json.loads(a.body)["prompt"] for a in asked if a.line == "POST /tokenize"]
        assert prompts[0] == ["Once upon", "a time it"] and sorted(prompts[1:]) == ["Once upon", "a time it"]


async def test_counting_where_it_can_not_be_counted() -> None:
    async with canned(SERVERS["sglang"]) as (url, _):
        assert await count_tokens(await detect_target(url), ["Once upon", "a time"]) == [None, None]


def test_the_system_is_trusted_and_only_where_an_address_is_https():
    nobody = trusted("http://127.0.0.1:30000")
    assert nobody.get_ca_certs() == [] and nobody.verify_mode is ssl.CERT_REQUIRED and nobody.check_hostname
    assert trusted("HTTPS://host").cert_store_stats() == ssl.create_default_context().cert_store_stats()
