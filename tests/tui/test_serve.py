"""`spectop serve`: a browser's tab gets the screens of a session, over loopback alone."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import aiohttp

from tests.sessions.engines import free_port
from tests.sessions.made import make_session


async def _listening(port: int) -> None:
    """Returns when somebody listens on a port; the caller's time limit ends the waiting."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def test_a_tab_shows_the_session_and_cannot_command_it(tmp_path: Path):
    folder = make_session(tmp_path / "sessions")
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("spectop"),
        *("serve", str(folder), "--port", str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "SPECTOP_SESSIONS_DIR": str(tmp_path / "sessions")},
    )
    assert server.stdout is not None
    try:
        async with asyncio.timeout(60):
            first = (await server.stdout.readline()).decode()
            assert f"http://127.0.0.1:{port}" in first and "read-only" in first
            await _listening(port)
            async with aiohttp.ClientSession() as session:
                seen = b""
                async with session.ws_connect(f"http://127.0.0.1:{port}/ws?width=120&height=40") as tab:
                    async for message in tab:
                        if message.type is aiohttp.WSMsgType.BINARY:
                            seen += message.data
                        if b"tok/s" in seen:
                            break
                assert b"spectop" in seen
    finally:
        server.terminate()
        await server.wait()
