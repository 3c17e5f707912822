"""What a running server says of itself: is the port open, is it healthy, which settings, which model.

The only place where this package speaks HTTP (small JSON bodies with short time limits); generations go through the
load generator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from loadgen.certificates import trusted
from loadgen.spec import Target

CONNECT_LIMIT_S = 3.0
READ_LIMIT_S = 10.0
HEALTH_LIMIT_S = 25.0


class Health(msgspec.Struct, frozen=True):
    """One answer of `/health`: its HTTP status, or `None` and the words of why there was no answer."""

    status: int | None
    words: str

    @property
    def good(self) -> bool:
        """Whether the server calls itself healthy, or has no such path to ask."""
        return self.status in {200, 404}


class Listing(msgspec.Struct, frozen=True):
    """The served models: their ids, and the context limit in tokens where told."""

    models: tuple[str, ...]
    max_model_len: int | None = None


class ServerFacts(msgspec.Struct, frozen=True):
    """The body of `/server_info`: start-up values, with those of the schedulers (one each rank) on top."""

    values: dict[str, Any]

    def look_up(self, name: str) -> str | None:
        """A setting as text ("none", "true", "8"), or `None` when no such key is there.

        The schedulers' own values win over the start-up ones; ranks that differ are all named.
        """
        if name.startswith("env:"):
            return self._environment(name.removeprefix("env:"))
        seen = {as_text(rank[name]) for rank in self._ranks() if name in rank}
        if seen:
            return " and ".join(sorted(seen))
        return as_text(self.values[name]) if name in self.values else None

    def names(self) -> tuple[str, ...]:
        """Every key, of the top level and of the ranks."""
        return tuple(dict.fromkeys([*self.values, *(key for rank in self._ranks() for key in rank)]))

    @property
    def launch_command(self) -> str | None:
        """The arguments that the server was started with, where it tells."""
        return self.look_up("launch_command")

    @property
    def instance(self) -> dict[str, str]:
        """Facts that differ between two starts of the same server."""
        facts = {name: self.look_up(name) for name in ("launch_command", "startup_time", "random_seed")}
        return {name: text for name, text in facts.items() if text not in {None, "none"} and text is not None}

    def _ranks(self) -> list[dict[str, Any]]:
        ranks = self.values.get("internal_states")
        return [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []

    def _environment(self, name: str) -> str | None:
        for holder in [*self._ranks(), self.values]:
            variables = holder.get("env_vars")
            if isinstance(variables, dict) and name in variables:
                return as_text(variables[name])
        return None


class ServerView(Protocol):
    """Whatever can ask the server; every call ends soon and never raises."""

    async def port_open(self) -> bool:
        """Whether something accepts connections on the port."""
        ...

    async def health(self) -> Health:
        """One `/health`."""
        ...

    async def facts(self) -> ServerFacts | None:
        """`/server_info`, or `None` when it does not answer."""
        ...

    async def version(self) -> str | None:
        """`/version`, where vLLM tells what SGLang tells among its facts; `None` elsewhere."""
        ...

    async def listing(self) -> Listing | None:
        """`/v1/models`, or `None` when it does not answer."""
        ...


class HttpServer:
    """A server behind a URL."""

    def __init__(self, target: Target) -> None:
        self.base_url = target.base_url.rstrip("/")
        parts = urlsplit(self.base_url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self._headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}

    async def port_open(self) -> bool:
        """See `ServerView`."""
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                _, writer = await asyncio.open_connection(self.host, self.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def health(self) -> Health:
        """See `ServerView`."""
        answer = await self._get("/health", HEALTH_LIMIT_S)
        if isinstance(answer, str):
            return Health(None, answer)
        return Health(answer.status_code, f"HTTP {answer.status_code}")

    async def facts(self) -> ServerFacts | None:
        """See `ServerView`."""
        for path in ("/server_info", "/get_server_info"):
            answer = await self._get(path, READ_LIMIT_S)
            if isinstance(answer, str):
                return None
            body = _decoded(answer)
            if isinstance(body, dict):
                return ServerFacts(body)
        return None

    async def version(self) -> str | None:
        """See `ServerView`."""
        body = await self._json("/version")
        told = body.get("version") if isinstance(body, dict) else None
        return told if isinstance(told, str) else None

    async def listing(self) -> Listing | None:
        """See `ServerView`."""
        body = await self._json("/v1/models")
        cards = body.get("data") if isinstance(body, dict) else None
        if not isinstance(cards, list):
            return None
        known = [card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str)]
        limit = known[0].get("max_model_len") if known else None
        return Listing(tuple(card["id"] for card in known), limit if isinstance(limit, int) else None)

    async def status(self, path: str) -> int | str:
        """The HTTP status of a path, or why there was no answer."""
        answer = await self._get(path, READ_LIMIT_S)
        return answer if isinstance(answer, str) else answer.status_code

    async def date(self) -> str | None:
        """The server's own time, as its answers carry it."""
        answer = await self._get("/v1/models", READ_LIMIT_S)
        return None if isinstance(answer, str) else answer.headers.get("date")

    async def _json(self, path: str) -> Any:
        answer = await self._get(path, READ_LIMIT_S)
        return None if isinstance(answer, str) else _decoded(answer)

    async def _get(self, path: str, limit_s: float) -> httpx.Response | str:
        """One GET on a connection of its own: a kept one could still belong to a process that is going away."""
        try:
            async with (
                asyncio.timeout(limit_s + CONNECT_LIMIT_S),
                httpx.AsyncClient(
                    timeout=httpx.Timeout(limit_s, connect=CONNECT_LIMIT_S),
                    trust_env=False,
                    verify=trusted(self.base_url),
                ) as client,
            ):
                return await client.get(self.base_url + path, headers=self._headers)
        except httpx.ConnectError:
            return "connection refused"
        except (httpx.TimeoutException, TimeoutError):
            return f"no answer within {limit_s:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"{type(error).__name__}: {error}"


def _decoded(answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        return None
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        return None


def as_text(value: object) -> str:
    """A JSON value as settings are compared: "none", "true", "8", text as it is."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return (
        value
        if isinstance(value, str)
        else msgspec.json.encode(value).decode()
        if isinstance(value, dict | list)
        else str(value)
    )
