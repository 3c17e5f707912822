"""The control socket's language: length-prefixed msgpack frames between an engine and the terminals that watch it.

A terminal pulls: it says `Ready`, the engine answers with one frame (what happened since, or a whole snapshot), and
sends nothing more until the next `Ready`. So a terminal that stops reading has at most one frame under way, and
can slow nobody.
"""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import Any

import msgspec

from sessions.commands import Command, Reply
from sessions.events import AnyEvent
from sessions.state import SessionState

MAX_FRAME = 256 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A terminal's first frame: its version of the product."""

    version: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """A terminal can take the next frame of news."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A command; `id` comes back with the answer."""

    id: int
    command: Command


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """The whole state: the first frame, and whenever too much happened since the last one."""

    state: SessionState


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """Events since the last frame, oldest first."""

    events: tuple[AnyEvent, ...]


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The reply to a command."""

    id: int
    reply: Reply


ToEngine = Hello | Ready | Ask
FromEngine = Snapshot | Happened | Answer

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def to_engine() -> msgspec.msgpack.Decoder[ToEngine]:
    """Returns the decoder of what an engine gets; made when first asked for, as that takes milliseconds."""
    return msgspec.msgpack.Decoder(ToEngine)


@functools.cache
def from_engine() -> msgspec.msgpack.Decoder[FromEngine]:
    """Returns the decoder of what a terminal gets."""
    return msgspec.msgpack.Decoder(FromEngine)


def frame(message: Any) -> bytes:
    """Returns a message as a frame."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Reads one frame's body.

    Raises:
        asyncio.IncompleteReadError: the other side went away.
        ValueError: the length is impossible, so what is at the other end is not ours.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes is not ours")
    return await reader.readexactly(length)
