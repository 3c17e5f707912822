"""What the engine and its load processes say to each other: msgpack over pipes, each message after its length."""

from __future__ import annotations

import asyncio
import struct

import msgspec

from loadgen.records import Generation, GenerationRequest, RequestRecord
from loadgen.spec import CellSpec, Target

_LENGTH = struct.Struct("<I")


class Share(msgspec.Struct, frozen=True):
    """Which part of a cell a worker runs: slots and requests with `number % concurrency % workers == worker`.

    Attributes:
        serial: number of the run of a cell; reports of an abandoned one are told from those of the next by it.
    """

    serial: int
    worker: int
    workers: int


class Configure(msgspec.Struct, frozen=True, tag=True):
    """To a worker: the target from now on, and where the session's time starts."""

    target: Target
    origin_ns: int
    worker: int


class RunOne(msgspec.Struct, frozen=True, tag=True):
    """To a worker: run one generation."""

    number: int
    request: GenerationRequest


class CancelOne(msgspec.Struct, frozen=True, tag=True):
    """To a worker: abort that generation."""

    number: int


class PrepareCell(msgspec.Struct, frozen=True, tag=True):
    """To a worker: make the prompts and run the warm-up."""

    spec: CellSpec
    share: Share


class StartCell(msgspec.Struct, frozen=True, tag=True):
    """To a worker: the measured part starts at that time (`time.perf_counter_ns`)."""

    at_ns: int


class StopStarting(msgspec.Struct, frozen=True, tag=True):
    """To a worker: enough; let the running requests end."""


class SkipCell(msgspec.Struct, frozen=True, tag=True):
    """To a worker: abandon the cell, abort its requests."""


class OneDone(msgspec.Struct, frozen=True, tag=True):
    """From a worker: the generation of a `RunOne`."""

    number: int
    generation: Generation


class CellPrepared(msgspec.Struct, frozen=True, tag=True):
    """From a worker: ready for `StartCell`."""

    serial: int


class RecordMade(msgspec.Struct, frozen=True, tag=True):
    """From a worker: a request of the cell is over; content and reasoning where the cell keeps them."""

    serial: int
    record: RequestRecord
    content: str = ""
    reasoning: str = ""


class Beat(msgspec.Struct, frozen=True, tag=True):
    """From a worker, four times a second: its part of the running cell, warm-up requests not counted.

    Attributes:
        tokens: output tokens so far, of finished and running requests.
        in_decode: requests that have had their first token, over or not.
        uncounted: running requests that deliver tokens of which the server gives no running count.
        idle: a slot has nothing more to start.
    """

    serial: int
    started: int
    finished: int
    failed: int
    running: int
    tokens: int
    in_decode: int
    uncounted: int
    idle: bool
    verify_steps: int
    correct_drafts: int


class CellOver(msgspec.Struct, frozen=True, tag=True):
    """From a worker: its part of the cell is over.

    Attributes:
        opened_ns: when each measured request was handed to a connection; `closed_ns`: when each of those was over.
    """

    serial: int
    loop_lag_p99_s: float
    cpu_share: float
    opened_ns: list[int]
    closed_ns: list[int]


class CellFailed(msgspec.Struct, frozen=True, tag=True):
    """From a worker: the cell can't be run as asked."""

    serial: int
    error: str


Command = Configure | RunOne | CancelOne | PrepareCell | StartCell | StopStarting | SkipCell
Report = OneDone | CellPrepared | RecordMade | Beat | CellOver | CellFailed

_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """Encodes a message with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_command(reader: asyncio.StreamReader) -> Command | None:
    """Reads the next command; `None` at the end of the pipe."""
    body = await _read(reader)
    return None if body is None else _command_decoder.decode(body)


async def read_report(reader: asyncio.StreamReader) -> Report | None:
    """Reads the next report; `None` at the end of the pipe."""
    body = await _read(reader)
    return None if body is None else _report_decoder.decode(body)


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
