"""One request over HTTP: what can go wrong on the way, and what it is called."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from loadgen.client import Client, LocalGenerator, raise_file_limit
from loadgen.records import Outcome
from loadgen.spec import DialectName, Target
from tests.loadgen.canned import answer, canned
from tests.loadgen.scripted_server import (
    ANSWER,
    DONE,
    END,
    HEAD,
    LIMIT_S,
    Connection,
    Script,
    chunk,
    closes_at_once,
    event,
    request,
    scripted,
    whole_answer,
)


async def test_a_refused_connection() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    client = LocalGenerator(Target(base_url=f"http://127.0.0.1:{port}", model="m"), 0)
    record = (await client.generate(request())).record
    await client.close()
    assert record.outcome is Outcome.CONNECT
    assert record.error is not None and str(port) in record.error
    assert (record.http_status, record.ttft) == (None, None)


async def test_a_connection_that_dies_before_the_answer_is_tried_once_more() -> None:
    async with scripted(closes_at_once, whole_answer) as (client, script):
        record = (await client.generate(request())).record
        assert record.valid, record.error
        assert script.connections == 2


async def test_but_only_once() -> None:
    async with scripted(closes_at_once, closes_at_once, whole_answer) as (client, script):
        record = (await client.generate(request())).record
        assert record.outcome is Outcome.CONNECT
        assert record.error is not None and "closed before any answer" in record.error
        assert script.connections == 2


async def test_a_pooled_connection_that_the_server_closed() -> None:
    async def answer_then_close(connection: Connection) -> None:
        await whole_answer(connection)
        await connection.request()  # the next request comes on the pooled connection, which then dies
        connection.writer.transport.abort()

    async with scripted(answer_then_close, whole_answer) as (client, script):
        first = (await client.generate(request())).record
        second = (await client.generate(request())).record
        assert first.valid and second.valid
        assert script.connections == 2
        assert second.t_send > second.t_due  # counted from the second try


async def test_never_again_after_the_first_byte() -> None:
    async def head_then_dies(connection: Connection) -> None:
        await connection.send(HEAD)
        await connection.send(event("x"))
        connection.writer.close()

    async with scripted(head_then_dies, whole_answer) as (client, script):
        record = (await client.generate(request())).record
        assert record.outcome is Outcome.TRUNCATED
        assert record.error is not None and "connection was lost" in record.error
        assert script.connections == 1
        assert len(record.chunks) == 1


async def test_a_connection_lost_after_done_is_no_failure() -> None:
    async def cut_after_done(connection: Connection) -> None:
        await connection.send(HEAD + ANSWER + DONE)
        connection.writer.close()

    async with scripted(cut_after_done) as (client, _):
        assert (await client.generate(request())).record.valid


async def test_cancelling_aborts_by_name_before_the_connection_closes() -> None:
    reached = asyncio.Event()
    closed = asyncio.Event()
    aborted_at_close: list[int] = []

    async def hangs(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        reached.set()
        await connection.gone()
        aborted_at_close.append(len(script.aborted))
        closed.set()

    async with scripted(hangs) as (client, script):
        task = asyncio.create_task(client.generate(request()))
        await asyncio.wait_for(reached.wait(), LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), LIMIT_S)
        assert script.aborted == [{"rid": "our-id", "abort_all": False}]
        assert aborted_at_close == [1]


async def test_no_abort_by_a_name_that_begins_another_ones() -> None:
    release = asyncio.Event()
    started = asyncio.Event()

    async def waits(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        started.set()
        await release.wait()
        await connection.send(ANSWER + DONE + END)

    async def stalls(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        await connection.gone()

    async with scripted(waits, stalls, stalls) as (client, script):
        longer = asyncio.create_task(client.generate(request(rid="r-10")))
        await asyncio.wait_for(started.wait(), LIMIT_S)
        assert (await client.generate(request(rid="r-1", stall_timeout_s=0.1))).record.outcome is Outcome.TIMEOUT
        assert script.aborted == []
        release.set()
        assert (await longer).record.valid
        assert not (await client.generate(request(rid="r-1", stall_timeout_s=0.1))).record.valid
        assert script.aborted == [{"rid": "r-1", "abort_all": False}]


async def test_other_servers_are_not_asked_to_abort() -> None:
    async def stalls(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        await connection.gone()

    async with scripted(stalls, dialect="vllm") as (client, script):
        record = (await client.generate(request(stall_timeout_s=0.1))).record
        assert record.outcome is Outcome.TIMEOUT
        assert script.connections == 1


async def test_a_server_that_hangs_is_not_asked_to_abort_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.client.ABORT_TIMEOUT_S", 0.1)

    async def hangs(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        await connection.gone()

    async with scripted(*[hangs] * 3) as (client, script):
        script.answers_aborts = False
        asked = (client.generate(request(rid=f"r{i}", stall_timeout_s=0.1)) for i in range(3))
        for coroutine in asked:
            assert (await coroutine).record.outcome is Outcome.TIMEOUT
        assert [body["rid"] for body in script.aborted] == ["r0"]


async def test_an_error_body_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.client.ERROR_BODY_TIMEOUT_S", 0.1)

    async def half_an_error(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 503 X\r\ncontent-length: 100\r\n\r\nout of memory")
        await connection.gone()

    async with scripted(half_an_error) as (client, _):
        record = (await client.generate(request())).record
        assert (record.outcome, record.error) == (Outcome.HTTP_5XX, "HTTP 503: out of memory")


async def test_an_endless_event() -> None:
    async def floods(connection: Connection) -> None:
        await connection.send(HEAD + chunk(b"data: "))
        while True:
            await connection.send(chunk(b"x" * 1_000_000))

    async with scripted(floods) as (client, _):
        record = (await client.generate(request())).record
        assert record.outcome is Outcome.STREAM_ERROR
        assert record.error is not None and "longer than 16777216 bytes" in record.error


@pytest.mark.parametrize(
    ("raw", "outcome", "words"),
    [
        (answer('{"detail":[{"msg":"field required"}]}', "422 X"), Outcome.HTTP_4XX, "field required"),
        (answer("Bad Gateway", "502 X", "text/plain"), Outcome.HTTP_5XX, "HTTP 502: Bad Gateway"),
        (answer("", "500 X"), Outcome.HTTP_5XX, "HTTP 500: no body"),
        (answer("", "307 X", extra="location: http://other/\r\n"), Outcome.HTTP_4XX, "redirects to http://other/"),
        (answer('{"error":"key sk-secret is wrong"}', "401 X"), Outcome.HTTP_4XX, "key *** is wrong"),
        (
            answer('data: {"error":"sk-secret is wrong"}\n\n', kind="text/event-stream"),
            Outcome.STREAM_ERROR,
            "*** is wrong",
        ),
        (answer('{"choices":[]}'), Outcome.STREAM_ERROR, "application/json instead of an event stream"),
        (
            answer("squeezed", kind="text/event-stream", extra="content-encoding: gzip\r\n"),
            Outcome.STREAM_ERROR,
            "compresses its answers (gzip)",
        ),
        (answer("", kind="text/event-stream"), Outcome.TRUNCATED, "without a single event"),
        (b"\x00\x01 nonsense\r\n\r\n", Outcome.STREAM_ERROR, "does not speak HTTP"),
    ],
)
async def test_answers_that_are_no_streams(raw: bytes, outcome: Outcome, words: str) -> None:
    async with canned({"/v1/chat/completions": raw}) as (url, asked):
        client = LocalGenerator(Target(base_url=url, model="m", api_key="sk-secret"), 0)
        record = (await client.generate(request())).record
        await client.close()
        assert record.outcome is outcome
        assert record.error is not None and words in record.error
        assert "sk-secret" not in record.error
        assert "authorization: bearer sk-secret" in asked[0].head
        assert "accept-encoding: identity" in asked[0].head


async def test_512_streams_wanted_are_512_streams_open() -> None:
    wanted, open_now = 512, 0
    all_open = asyncio.Event()

    async def waits_for_all(connection: Connection) -> None:
        nonlocal open_now
        open_now += 1
        if open_now == wanted:
            all_open.set()
        await connection.send(HEAD)
        await asyncio.wait_for(all_open.wait(), LIMIT_S)
        await connection.send(ANSWER + DONE + END)

    assert raise_file_limit() > wanted
    script = Script(*[waits_for_all] * wanted)
    server = await asyncio.start_server(script.handle, "127.0.0.1", 0, backlog=wanted)
    target = Target(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", model="m")
    client = Client(target, origin_ns=0, connections=wanted)
    on_wire: list[int] = []
    generations = await asyncio.gather(
        *(client.generate(request(rid=str(i)), on_wire=lambda: on_wire.append(1)) for i in range(wanted))
    )
    assert all(done.record.valid for done in generations)
    assert len(on_wire) == wanted
    await client.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("dialect", "changes", "path", "wanted", "unwanted"),
    [
        (
            "sglang",
            {"ignore_eos": True, "seed": 3},
            "/v1/chat/completions",
            {"rid": "our-id", "return_spec_tokens_details": True, "ignore_eos": True, "seed": 3, "max_tokens": 512},
            {"request_id"},
        ),
        ("sglang", {"route": "completions"}, "/v1/completions", {"prompt": "hi", "rid": "our-id"}, {"messages"}),
        ("sglang", {"route": "generate", "text": "raw"}, "/generate", {"text": "raw", "rid": "our-id"}, {"model"}),
        ("vllm", {"route": "generate"}, "/v1/completions", {"prompt": "hi", "request_id": "our-id"}, {"rid"}),
        (
            "openai",
            {},
            "/v1/chat/completions",
            {"stream_options": {"include_usage": True}},
            {"rid", "ignore_eos", "seed"},
        ),
    ],
)
async def test_what_is_asked(
    dialect: DialectName, changes: dict[str, Any], path: str, wanted: dict[str, Any], unwanted: set[str]
) -> None:
    async with canned({path: answer("", "500 X")}) as (url, asked):
        client = LocalGenerator(Target(base_url=url, model="m", dialect=dialect), 0)
        await client.generate(request(**changes))
        await client.close()
    body = json.loads(asked[0].body)
    assert asked[0].line == f"POST {path}"
    assert body["stream"] is True
    assert wanted.items() <= body.items()
    assert not unwanted & body.keys()
