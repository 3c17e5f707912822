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


def shown(url: str) -> str:
    """Returns an address as it may be shown: without user name, password and query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}" if host else parts.path


def get(url: str, timeout_s: float) -> Fetched:
    """Fetches `url`, in at most about `timeout_s` seconds altogether.

    Raises:
        FetchError: no connection, a broken answer, one over 32 MiB, or the deadline passed.
    """
    name = shown(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FetchError(f"not an address that can be asked: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError(f"{name}: not an http:// or https:// address")
    deadline = time.monotonic() + timeout_s
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = kind(parts.hostname, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Accept": "*/*", "Connection": "close"})
        answer = connection.getresponse()
        body = bytearray()
        while piece := answer.read1(CHUNK_BYTES):
            body += piece
            if time.monotonic() > deadline:
                raise FetchError(f"{name}: no whole answer within {timeout_s:g} s")
            if len(body) > MAX_BYTES:
                raise FetchError(f"{name}: answer is larger than {MAX_BYTES} bytes")
        return Fetched(answer.status, bytes(body))
    except TimeoutError as error:
        raise FetchError(f"{name}: no answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{name}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
