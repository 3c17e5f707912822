"""A terminal's side of the control socket: the states of a running engine, and commands to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from sessions import wire
from sessions.commands import Command, Reply
from sessions.errors import EngineLost
from sessions.events import AnyEvent
from sessions.folder import package_version
from sessions.logread import state_of
from sessions.reduce import reduce
from sessions.state import SessionState

ANSWER_LIMIT_S = 10.0


class EngineClient:
    """A `Source` fed by a running engine.

    Args:
        path: the engine's control socket.
        on_event: called with each event after the first snapshot, for displays that print lines.
        folder: the session's folder: how a session ended is read there by a terminal that was too slow to be told.
    """

    live = True

    def __init__(
        self, path: Path, on_event: Callable[[AnyEvent], None] | None = None, folder: Path | None = None
    ) -> None:
        self.path = path
        self._folder = folder
        self.state = SessionState()
        self._on_event = on_event
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._news: asyncio.Queue[wire.Snapshot | wire.Happened | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Reply]] = {}
        self._ids = itertools.count(1)
        self._listening: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connects to the engine.

        Raises:
            EngineLost: nobody listens there.
        """
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self.path)
        except OSError as error:
            raise EngineLost(f"no engine answers at {self.path}: {error.strerror or error}") from error
        self._send(wire.Hello(package_version()))
        self._listening = asyncio.create_task(self._listen())

    async def states(self) -> AsyncIterator[SessionState]:
        """Yields a state whenever the engine has news; ends with the session.

        Raises:
            EngineLost: the engine went away without ending its session.
        """
        while self.state.status == "running":
            self._send(wire.Ready())
            news = await self._news.get()
            if news is None:
                self.state = await self._how_it_ended()
            elif isinstance(news, wire.Snapshot):
                self.state = news.state
            else:
                for event in news.events:
                    self.state = reduce(self.state, event)
                    if self._on_event is not None:
                        self._on_event(event)
            yield self.state

    async def _how_it_ended(self) -> SessionState:
        if self._folder is not None:
            state = await asyncio.to_thread(state_of, self._folder)
            if state.status != "running":
                return state
        raise EngineLost("the engine went away without ending the session")

    async def command(self, command: Command) -> Reply:
        """Sends a command and waits for the engine's reply; a lost engine is a reply too."""
        number = next(self._ids)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._send(wire.Ask(number, command))
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await answer
        except TimeoutError:
            return Reply(ok=False, words=f"the engine did not answer within {ANSWER_LIMIT_S:.0f} s")
        finally:
            self._answers.pop(number, None)

    async def close(self) -> None:
        """Leaves; the engine goes on."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def _send(self, message: wire.ToEngine) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.frame(message))

    async def _listen(self) -> None:
        assert self._reader is not None
        try:
            while True:
                message = wire.from_engine().decode(await wire.read_frame(self._reader))
                if isinstance(message, wire.Answer):
                    if (waiting := self._answers.get(message.id)) is not None and not waiting.done():
                        waiting.set_result(message.reply)
                else:
                    self._news.put_nowait(message)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, msgspec.MsgspecError):
            pass  # the engine is gone, which the sentinel below tells
        self._news.put_nowait(None)
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result(Reply(ok=False, words="the engine is gone"))
