"""One blocking GET with a total deadline, for the sources that are read on the poller's own thread."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

import msgspec

CHUNK_BYTES = 65536
MAX_BYTES = 32 * 1024 * 1024


class FetchError(Exception):
    """The URL gave no whole answer; the text says which and why, in one line."""


class Fetched(msgspec.Struct, frozen=True):
    """An answer: HTTP status and body."""

    status: int
    body: bytes


def get(url: str, timeout_s: float) -> Fetched:
    """Fetches `url`, in at most about `timeout_s` seconds altogether.

    Raises:
        FetchError: no connection, a broken answer, one over 32 MiB, or the deadline passed.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError(f"{url}: not an http:// or https:// address")
    deadline = time.monotonic() + timeout_s
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    except (ValueError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: {error}") from error
    try:
        connection.request("GET", path, headers={"Accept": "*/*", "Connection": "close"})
        answer = connection.getresponse()
        body = bytearray()
        while piece := answer.read1(CHUNK_BYTES):
            body += piece
            if time.monotonic() > deadline:
                raise FetchError(f"{url}: no whole answer within {timeout_s:g} s")
            if len(body) > MAX_BYTES:
                raise FetchError(f"{url}: answer is larger than {MAX_BYTES} bytes")
        return Fetched(answer.status, bytes(body))
    except TimeoutError as error:
        raise FetchError(f"{url}: no answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{url}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
