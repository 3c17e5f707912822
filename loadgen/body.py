"""Reads a response's body where the transport parses it: each piece is given away at once, and no task wakes for it.

aiohttp keeps the pieces of a body until a task asks, and wakes it: a third of the CPU of a paced stream's event, and
the time of the piece is known only after every task that was woken before.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

Take = Callable[[bytes], None]
_takers: dict[aiohttp.StreamReader, Take] = {}


class _PushedBody(aiohttp.StreamReader):
    """A body that keeps nothing. The parser has made it as its own class, so it must not have a field more."""

    __slots__ = ()

    def feed_data(self, data: bytes, size: int = 0) -> bool:
        take = _takers.get(self)
        if take is not None:
            try:
                take(data)
            except Exception as exc:  # whatever it is, the task that waits in `push` raises it
                del _takers[self]
                self.set_exception(exc)
        return False

    def begin_http_chunk_receiving(self) -> None:
        """Nothing: where the transfer's chunks begin and end is of no interest."""

    def end_http_chunk_receiving(self) -> None:
        """Nothing, as above."""


async def push(body: aiohttp.StreamReader, take: Take) -> None:
    """Gives a body away until its clean end, from within the event loop's reads: `take` must be quick.

    Args:
        body: of a response that nobody else reads.
        take: gets every piece as it comes; called no more after it raised.

    Raises:
        aiohttp.ClientError: the body was cut off.
        Exception: what `take` raised.
    """
    if data := body.read_nowait():
        take(data)
    if body.is_eof():
        return
    _takers[body] = take
    body.__class__ = _PushedBody
    try:
        await body.wait_eof()
    finally:
        _takers.pop(body, None)
