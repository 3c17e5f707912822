"""One address of the server, asked again and again without ever being waited for: the memory of how it behaves."""

from __future__ import annotations

import asyncio
import time

import httpx

ABSENT_FOR_S = 60.0
"""How long an endpoint that answered 404 is left alone; a restart (`forget`, a refused connection) ends it early."""
SLOW_PAUSE_S = 2.0
SLOW_PAUSE_MAX_S = 32.0


class Endpoint:
    """One address of the server: fetched with a deadline, left alone for a while when absent or slow.

    Attributes:
        problem: why there was no answer the last time, in one line; `None` after an answer or a plain 404.
        refused: nothing listened the last time.
    """

    def __init__(self, client: httpx.AsyncClient, path: str) -> None:
        self._client = client
        self._path = path
        self._not_before = 0.0
        self._pause_s = SLOW_PAUSE_S
        self.absent = False
        self.refused = False
        self.problem: str | None = None

    def forget(self) -> None:
        """Asks again at the next sample, whatever happened before."""
        self._not_before = 0.0
        self._pause_s = SLOW_PAUSE_S
        self.absent = self.refused = False
        self.problem = None

    async def fetch(self, timeout_s: float) -> bytes | None:
        """Returns the body of a 200 answer, or `None`; takes at most `timeout_s` seconds."""
        now = time.monotonic()
        if now < self._not_before:
            return None
        name = self._path.partition("?")[0]
        self.refused = False
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._client.get(self._path)
        except asyncio.CancelledError:
            self._too_slow(name, time.monotonic() - now)  # whoever asked has waited long enough
            raise
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            self.refused = _refused(error)
            if self.refused:
                self.problem = "the server refuses connections"
            elif isinstance(error, TimeoutError | httpx.TimeoutException):
                self._too_slow(name, timeout_s)
            else:
                self.problem = f"{name}: {str(error) or type(error).__name__}"
            return None
        self._pause_s = SLOW_PAUSE_S
        self.absent = answer.status_code in (404, 405, 501)
        if self.absent:
            self.problem = None
            self._not_before = now + ABSENT_FOR_S
            return None
        if answer.status_code in (401, 403):
            self.problem = f"{name}: HTTP {answer.status_code}, the server wants another API key"
            self._not_before = now + ABSENT_FOR_S
            return None
        if answer.status_code != 200:
            self.problem = f"{name}: HTTP {answer.status_code}"
            return None
        self.problem = None
        return answer.content

    def _too_slow(self, name: str, waited_s: float) -> None:
        self.problem = f"{name}: no answer within {waited_s:.1f} s, next try in {self._pause_s:g} s"
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, SLOW_PAUSE_MAX_S)


def _refused(error: BaseException) -> bool:
    """Looks through the causes: the transport reports a refused connection as a time-out of connecting."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return True
        if isinstance(getattr(cause, "os_error", None), ConnectionRefusedError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
