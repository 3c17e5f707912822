"""One request over HTTP: limits of time, and what goes on or is lost after the end."""

from __future__ import annotations

import asyncio

from loadgen.records import Outcome
from tests.loadgen.scripted_server import ANSWER, DONE, END, HEAD, Connection, chunk, event, request, scripted


async def test_a_stall_in_mid_stream() -> None:
    async def stalls(connection: Connection) -> None:
        await connection.send(HEAD + event("x"))
        await connection.gone()

    async with scripted(stalls) as (client, script):
        record = (await client.generate(request(stall_timeout_s=0.1))).record
        assert (record.outcome, record.error) == (Outcome.TIMEOUT, "nothing came for 0.1 s in mid-stream")
        assert record.ttft is not None
        assert script.aborted == [{"rid": "our-id", "abort_all": False}]


async def test_a_stall_is_seen_though_the_limit_of_the_first_token_is_far() -> None:
    async def stalls(connection: Connection) -> None:
        await connection.send(HEAD)
        await asyncio.sleep(0.2)
        await connection.send(event("x"))
        await connection.gone()

    async with scripted(stalls) as (client, _):
        record = (await client.generate(request(stall_timeout_s=0.1, first_token_timeout_s=1000))).record
        assert record.error == "nothing came for 0.1 s in mid-stream"


async def test_a_long_prefill_is_no_stall() -> None:
    async def thinks_first(connection: Connection) -> None:
        await connection.send(HEAD)
        await asyncio.sleep(0.3)
        await connection.send(ANSWER + DONE + END)

    async with scripted(thinks_first) as (client, _):
        record = (await client.generate(request(stall_timeout_s=0.05))).record
        assert record.valid, record.error


async def test_no_first_token_though_comments_come() -> None:
    async def only_comments(connection: Connection) -> None:
        await connection.send(HEAD)
        while True:
            await connection.send(chunk(b": still busy\n\n"))
            await asyncio.sleep(0.02)

    async with scripted(only_comments) as (client, script):
        record = (await client.generate(request(first_token_timeout_s=0.2))).record
        assert (record.outcome, record.error) == (Outcome.TIMEOUT, "no token within 0.2 s")
        assert len(script.aborted) == 1


async def test_the_whole_request_takes_too_long() -> None:
    async def endless(connection: Connection) -> None:
        await connection.send(HEAD)
        while True:
            await connection.send(event("x"))
            await asyncio.sleep(0.02)

    async with scripted(endless) as (client, _):
        record = (await client.generate(request(request_timeout_s=0.3, stall_timeout_s=5))).record
        assert (record.outcome, record.error) == (Outcome.TIMEOUT, "the whole request took longer than 0.3 s")
        assert record.chunks


async def test_no_headers_within_the_limit() -> None:
    async def silent(connection: Connection) -> None:
        await connection.gone()

    async with scripted(silent) as (client, _):
        record = (await client.generate(request(first_token_timeout_s=0.1))).record
        assert (record.outcome, record.http_status) == (Outcome.TIMEOUT, None)


async def test_a_body_that_goes_on_after_done() -> None:
    async def never_ends(connection: Connection) -> None:
        await connection.send(HEAD + ANSWER + DONE)
        await connection.gone()

    async with scripted(never_ends) as (client, script):
        record = (await client.generate(request())).record
        assert record.valid, record.error
        assert script.aborted == []
