"""The control socket: many terminals, and none that can slow the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconfig.presets import Preset
from sessions import events as ev
from sessions import wire
from sessions.client import EngineClient
from sessions.commands import Command, Reply
from sessions.control import PENDING_MOST, ControlServer
from sessions.errors import EngineLost
from sessions.reduce import reduce
from sessions.state import SessionState


class Engine:
    """A control server with a state of its own, for events made by a test."""

    def __init__(self, path: Path) -> None:
        self.state = reduce(
            SessionState(),
            ev.SessionStarted(
                t=0.0,
                label="l",
                session="s",
                base_url="u",
                model="m",
                presets=(Preset(name="a", algorithm="NONE"),),
                cells=(),
            ),
        )
        self.asked: list[Command] = []
        self.control = ControlServer(path, lambda: self.state, self.obey)

    async def obey(self, command: Command) -> Reply:
        self.asked.append(command)
        return Reply(ok=command.name == "pause", words=command.argument)

    def happen(self, event: ev.AnyEvent) -> None:
        self.state = reduce(self.state, event)
        self.control.publish(event)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine(tmp_path / "s.sock")
    await engine.control.start()
    yield engine
    await engine.control.close()


async def test_a_terminal_sees_a_snapshot_then_what_happens_then_the_end(engine: Engine):
    client = EngineClient(engine.control.path)
    await client.connect()
    seen = []
    async for state in client.states():
        seen.append(state)
        if len(seen) == 1:
            engine.happen(ev.NoteAdded(t=1.0, text="fan curve"))
        elif len(seen) == 2:
            engine.happen(ev.SessionEnded(t=2.0, status="finished"))
    assert [len(s.notes) for s in seen] == [0, 1, 1]
    assert seen[-1].status == "finished" and seen[-1] == engine.state
    await client.close()


async def test_two_terminals_see_the_same(engine: Engine):
    clients = [EngineClient(engine.control.path) for _ in range(2)]
    for client in clients:
        await client.connect()

    async def last(client: EngineClient) -> SessionState:
        async for state in client.states():
            if state.label and not state.notes:
                engine.happen(ev.NoteAdded(t=1.0, text="x"))
                engine.happen(ev.SessionEnded(t=2.0, status="stopped"))
        return client.state

    first, second = await asyncio.gather(*map(last, clients))
    assert first.status == second.status == "stopped"
    for client in clients:
        await client.close()


async def test_commands_are_answered(engine: Engine):
    client = EngineClient(engine.control.path)
    await client.connect()
    assert await client.command(Command(name="pause", argument="now")) == Reply(ok=True, words="now")
    assert not (await client.command(Command(name="skip"))).ok
    assert [c.name for c in engine.asked] == ["pause", "skip"]
    await client.close()


async def test_a_stalled_terminal_costs_a_bounded_memory_and_gets_the_newest_state_later(engine: Engine):
    client = EngineClient(engine.control.path)
    await client.connect()
    states = client.states()
    await anext(states)
    for number in range(3 * PENDING_MOST):
        engine.happen(ev.NoteAdded(t=float(number), text=str(number)))
    (watcher,) = engine.control._watchers
    assert len(watcher.pending) <= PENDING_MOST
    newest = await anext(states)
    while newest.notes[-1].words != str(3 * PENDING_MOST - 1):
        newest = await anext(states)
    assert newest == engine.state
    await client.close()


async def test_a_lost_engine_is_told_and_pending_commands_are_answered(tmp_path: Path):
    accepted = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.read_frame(reader)
        accepted.set()
        await wire.read_frame(reader)
        writer.close()

    server = await asyncio.start_unix_server(hang_up, path=tmp_path / "s.sock")
    client = EngineClient(tmp_path / "s.sock")
    await client.connect()
    await accepted.wait()
    reply = await client.command(Command(name="pause"))
    assert not reply.ok and "gone" in reply.words
    with pytest.raises(EngineLost):
        await anext(client.states())
    await client.close()
    server.close()


async def test_nobody_listening_is_an_error_in_words(tmp_path: Path):
    with pytest.raises(EngineLost, match="no engine answers"):
        await EngineClient(tmp_path / "none.sock").connect()


async def test_nonsense_on_the_socket_concerns_only_its_sender(engine: Engine):
    reader, writer = await asyncio.open_unix_connection(engine.control.path)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    client = EngineClient(engine.control.path)
    await client.connect()
    assert (await client.command(Command(name="pause"))).ok
    await client.close()
