"""Readers to compare the load generator with, each in a process of its own: the least a Python client can do.

`python -m benchmarks.readers KIND PORT STREAMS` reads STREAMS streams at once, splits events, decodes their JSON and
notes the time of each, and prints what that took as JSON. KIND is `bare` (aiohttp on uvloop) or `stock` (httpx with its
own transport). They go before other processes as the load processes do, or the comparison would not be a fair one.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import aiohttp
import httpx
import msgspec
import uvloop

from loadgen.precedence import take_precedence

BODY = json.dumps({"model": "mock", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


async def note_events(reads: AsyncIterator[bytes]) -> list[int]:
    """Splits and decodes one stream; returns the time of every event in nanoseconds."""
    times: list[int] = []
    tail = b""
    async for data in reads:
        now = time.perf_counter_ns()
        *blocks, tail = (tail + data).split(b"\n\n")
        for block in blocks:
            if block != b"data: [DONE]":
                msgspec.json.decode(block[6:])
            times.append(now)
    return times


async def bare(port: int, streams: int) -> list[list[int]]:
    """Reads with aiohttp."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=streams)) as session:

        async def one() -> list[int]:
            timeout = aiohttp.ClientTimeout(total=None)
            async with session.post(url, data=BODY, headers=HEADERS, timeout=timeout) as response:
                return await note_events(response.content.iter_any())

        return await asyncio.gather(*(one() for _ in range(streams)))


async def stock(port: int, streams: int) -> list[list[int]]:
    """Reads with httpx as it comes."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    limits = httpx.Limits(max_connections=streams, max_keepalive_connections=streams)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:

        async def one() -> list[int]:
            async with client.stream("POST", url, content=BODY, headers=HEADERS) as response:
                return await note_events(response.aiter_raw())

        return await asyncio.gather(*(one() for _ in range(streams)))


async def measure(read: Callable[[int, int], Awaitable[list[list[int]]]], port: int, streams: int) -> dict[str, float]:
    """Reads once to warm up with a single stream, then measures."""
    await read(port, 1)
    cpu, wall = time.process_time(), time.perf_counter()
    times = await read(port, streams)
    took, used = time.perf_counter() - wall, time.process_time() - cpu
    events = sum(len(stream) for stream in times)
    gaps = [b - a for stream in times for a, b in pairwise(stream[:-3])]
    return {"events": events, "wall_s": took, "cpu_s": used, "gap_ms": statistics.median(gaps) / 1e6}


def read_here() -> None:
    """Runs the reader named on the command line."""
    kind, port, streams = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    take_precedence()
    read, run = {"bare": (bare, uvloop.run), "stock": (stock, asyncio.run)}[kind]
    print(json.dumps(run(measure(read, port, streams))))


if __name__ == "__main__":
    read_here()
