"""Why a request failed, and in which words: the only place that turns causes into kinds of failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import httpx
import msgspec

from loadgen.records import Outcome

ERROR_TEXT_LIMIT = 500


class Failure(msgspec.Struct, frozen=True):
    """Why a request is not valid.

    Attributes:
        outcome: its kind.
        error: words for the operator.
    """

    outcome: Outcome
    error: str


def printable(text: str, limit: int = ERROR_TEXT_LIMIT) -> str:
    """Shortens text from outside and takes control characters out of it."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in cut).strip()


def error_text(error: Any) -> str:
    """Puts a server's error value (an object, a string, or whatever it is) into words, its code first."""
    if not isinstance(error, dict):
        return printable(str(error))
    message = error.get("message") or error.get("detail") or error.get("msg") or ""
    kind = error.get("type") or error.get("err_type") or ""
    code = error.get("code") or error.get("status_code") or ""
    head = " ".join(str(part) for part in (code, kind) if part)
    return printable(": ".join(part for part in (head, str(message)) if part) or str(error))


def body_text(body: bytes) -> str:
    """Puts an error response's body into words, whatever shape it has."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return printable(body.decode("utf-8", "replace")) or "no body"
    if isinstance(value, dict):
        return error_text(value.get("error", value))
    return printable(str(value))


def not_a_stream(headers: Mapping[str, str], head: bytes) -> Failure | None:
    """Returns the failure of an answer without a single event; `None` when it was an event stream after all.

    Args:
        headers: of the response, names in any case.
        head: the body's first bytes.
    """
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        words = f"the server compresses its answers ({printable(encoding)}) though none was asked to be compressed"
        return Failure(Outcome.STREAM_ERROR, words)
    content_type = headers.get("content-type", "")
    if "event-stream" in content_type or not head:
        return None
    found = printable(head.decode("utf-8", "replace"))
    words = f"the server answered {printable(content_type) or 'something'} instead of an event stream: {found}"
    return Failure(Outcome.STREAM_ERROR, words)


def before_any_answer(exc: Exception) -> tuple[Failure, bool]:
    """Classifies an exchange that failed before the response began.

    The transport maps several causes to the same exception, so the cause decides.

    Returns:
        The failure, and whether a pooled connection that the server had closed may be behind it.
    """
    cause = cause_of(exc)
    words = printable(str(cause)) or type(cause).__name__
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError | aiohttp.InvalidURL):
        return Failure(Outcome.CONNECT, words), False
    if isinstance(cause, aiohttp.ClientResponseError):
        return Failure(Outcome.STREAM_ERROR, f"the server does not speak HTTP: {words}"), False
    return Failure(Outcome.CONNECT, f"the connection was closed before any answer: {words}"), True


def in_mid_stream(exc: Exception) -> Failure:
    """Classifies a body that broke off."""
    cause = cause_of(exc)
    return Failure(
        Outcome.TRUNCATED, f"the connection was lost in mid-stream: {printable(str(cause)) or type(cause).__name__}"
    )


def cause_of(exc: Exception) -> BaseException:
    """Returns what is behind a transport's exception."""
    return exc.__cause__ if isinstance(exc, httpx.HTTPError) and exc.__cause__ is not None else exc
