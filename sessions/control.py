"""The engine's side of the control socket: who watches, what each has not seen yet, and whose command it is.

The only question answered here: how can any number of terminals watch without the engine ever waiting for one?
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from sessions import wire
from sessions.commands import Command, Reply
from sessions.events import AnyEvent, ServerSampled
from sessions.state import SessionState

FRAME_INTERVAL_S = 0.25
PENDING_MOST = 1000
LAST_FRAME_LIMIT_S = 1.0
_UCRED = struct.Struct("3i")

Obey = Callable[[Command], Awaitable[Reply]]


class _Watcher:
    """One terminal: what happened since its last frame, and whether it asked for the next."""

    def __init__(self) -> None:
        self.pending: list[AnyEvent] = []
        self.stale = True
        self.ready = False
        self.wake = asyncio.Event()
        self.quiet = asyncio.Event()

    def happened(self, event: AnyEvent) -> None:
        if not self.stale:
            self.pending.append(event)
            if len(self.pending) > PENDING_MOST:
                self.pending.clear()
                self.stale = True
        self.quiet.clear()
        self.wake.set()

    def has_news(self) -> bool:
        return self.stale or bool(self.pending)


class ControlServer:
    """Listens on a unix socket, sends states to terminals and takes commands from them.

    Args:
        path: the socket's path, in a folder of mode 0700.
        state: returns the present state, for snapshots.
        obey: carries a command out, and returns the reply.
    """

    def __init__(self, path: Path, state: Callable[[], SessionState], obey: Obey) -> None:
        self.path = path
        self._state = state
        self._obey = obey
        self._watchers: set[_Watcher] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begins to listen; an old socket of a dead engine is replaced (the folder's lock says that it is dead)."""
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path=self.path)
        self.path.chmod(0o600)

    def publish(self, event: AnyEvent) -> None:
        """Tells every terminal, without waiting for any."""
        for watcher in self._watchers:
            watcher.happened(event)

    async def close(self) -> None:
        """Gives every terminal a moment to take its last frame, then closes the socket."""
        if self._server is not None:
            self._server.close()
        waiting = [asyncio.ensure_future(w.quiet.wait()) for w in self._watchers if w.has_news()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=LAST_FRAME_LIMIT_S)
            for one in late:
                one.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not _same_user(writer):
            writer.close()
            return
        watcher = _Watcher()
        self._watchers.add(watcher)
        sender = asyncio.create_task(self._send_news(watcher, writer))
        try:
            while True:
                message = wire.to_engine().decode(await wire.read_frame(reader))
                if isinstance(message, wire.Ready):
                    watcher.ready = True
                    watcher.wake.set()
                elif isinstance(message, wire.Ask):
                    reply = await self._obey(message.command)
                    writer.write(wire.frame(wire.Answer(message.id, reply)))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, msgspec.MsgspecError):
            pass  # the terminal left, or speaks another language: neither concerns the sweep
        except asyncio.CancelledError:
            pass  # the engine ends; asyncio's stream server would log the cancellation as an error
        finally:
            self._watchers.discard(watcher)
            sender.cancel()
            writer.close()

    async def _send_news(self, watcher: _Watcher, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        last = 0.0
        try:
            while True:
                await watcher.wake.wait()
                watcher.wake.clear()
                if not (watcher.ready and watcher.has_news()):
                    continue
                await asyncio.sleep(max(0.0, last + FRAME_INTERVAL_S - loop.time()))
                last = loop.time()
                message: wire.Snapshot | wire.Happened
                if watcher.stale:
                    message = wire.Snapshot(self._state())
                else:
                    message = wire.Happened(tuple(_newest(watcher.pending)))
                watcher.pending.clear()
                watcher.stale = watcher.ready = False
                writer.write(wire.frame(message))
                await writer.drain()
                if not watcher.has_news():
                    watcher.quiet.set()
        except (ConnectionError, asyncio.CancelledError):
            return


def _newest(events: list[AnyEvent]) -> list[AnyEvent]:
    """Leaves out live readings that a newer one of the same kind follows; GPU readings stay, they make a history."""
    last = {type(e): i for i, e in enumerate(events) if isinstance(e, ServerSampled)}
    return [e for i, e in enumerate(events) if not isinstance(e, ServerSampled) or last[type(e)] == i]


def _same_user(writer: asyncio.StreamWriter) -> bool:
    peer = writer.get_extra_info("socket")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, uid, _ = _UCRED.unpack(credentials)
    return uid in (os.geteuid(), 0)
