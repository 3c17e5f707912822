"""Commands of the operator's: none is left behind."""

from __future__ import annotations

import asyncio
import contextlib

import psutil

from reconfig.managers.running import follow


async def test_a_followed_command_is_collected_however_often_its_reader_is_cancelled() -> None:
    told: asyncio.Queue[int] = asyncio.Queue()

    async def read() -> None:
        async for line in follow(["sh", "-c", "echo $$; exec sleep 1000"]):
            told.put_nowait(int(line.text))

    reading = asyncio.create_task(read())
    async with asyncio.timeout(30):
        pid = await told.get()
        assert psutil.pid_exists(pid)
        while not reading.done():
            reading.cancel()
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert not psutil.pid_exists(pid)
