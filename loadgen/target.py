"""Finds out what answers at an address: which server family, which model, which context limit.

Nothing here generates a token; readiness is proven elsewhere, by real generations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from loadgen import dialects
from loadgen.certificates import trusted
from loadgen.client import KEEPALIVE_S
from loadgen.errors import ModelNotServed, NoModels, TargetRefused, TargetUnreachable
from loadgen.failures import body_text, cause_of
from loadgen.spec import DialectName, Target

TIMEOUT_S = 10.0
TEXTS_AT_ONCE = 64
QUESTIONS_AT_ONCE = 16
SERVER_INFO_PATHS = ("/server_info", "/get_server_info")
"""SGLang's, the older spelling last."""


class _Card(msgspec.Struct):
    id: str
    owned_by: str = ""
    root: str | None = None
    max_model_len: int | None = None
    meta: dict[str, Any] | None = None


class _Cards(msgspec.Struct):
    data: list[_Card] = []


class Prober:
    """Asks a server's small questions; an asynchronous context manager."""

    def __init__(self, base_url: str, api_key: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.base_url = normal_url(base_url)
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            transport=AiohttpTransport(
                verify=trusted(self.base_url), limits=httpx.Limits(max_connections=8, keepalive_expiry=KEEPALIVE_S)
            ),
            base_url=self.base_url,
            headers=dialects.headers(Target(base_url=self.base_url, model="", api_key=api_key)),
            timeout=timeout_s,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> httpx.Response:
        """Fetches a path.

        Raises:
            TargetUnreachable: nothing answers, or not in time.
            TargetRefused: the key is missing or wrong.
        """
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: Any) -> httpx.Response:
        """Posts JSON; raises like `get`."""
        return await self._ask("POST", path, msgspec.json.encode(body))

    async def json(self, path: str) -> dict[str, Any] | None:
        """Fetches a JSON object; `None` where the path answers anything else."""
        return object_of(await self.get(path))

    async def _ask(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        try:
            response = await self._http.request(method, path, content=body)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError) as exc:
            cause = cause_of(exc)
            if isinstance(cause, aiohttp.ServerTimeoutError):
                words = f"nothing answered within {self._timeout_s:g} s"
            else:
                words = str(cause) or type(cause).__name__
            raise TargetUnreachable(
                f"no server at {self.base_url}: {words}; start it, or correct base_url", base_url=self.base_url
            ) from exc
        if response.status_code in (401, 403):
            raise TargetRefused(
                f"{self.base_url} refuses the API key (HTTP {response.status_code}: {body_text(response.content)}); "
                "set the environment variable that api_key_env names to the server's key",
                base_url=self.base_url,
            )
        return response


def normal_url(base_url: str) -> str:
    """Takes the trailing slash off, and a trailing `/v1`, which the paths bring themselves.

    Raises:
        TargetUnreachable: not an http or https address.
    """
    url = base_url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise TargetUnreachable(f"{base_url!r} is no address: {exc}", base_url=base_url) from exc
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise TargetUnreachable(
            f"{base_url!r} is no address of a server: it needs a scheme and a host, like http://127.0.0.1:30000",
            base_url=base_url,
        )
    return url


def object_of(response: httpx.Response) -> dict[str, Any] | None:
    """Returns a successful response's JSON object, `None` when it is anything else."""
    if not response.is_success:
        return None
    try:
        value = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


async def detect_target(
    base_url: str, model: str | None = None, api_key: str | None = None, dialect: DialectName | None = None
) -> Target:
    """Finds out how to talk to the server at an address.

    Args:
        base_url: scheme, host and port; a trailing `/v1` is allowed.
        model: wanted model; what the server serves when `None`.
        api_key: sent as a bearer token.
        dialect: how the server family speaks; found out when `None`.

    Raises:
        TargetUnreachable: nothing answers there.
        TargetRefused: the key is missing or wrong.
        NoModels: it lists no model.
        ModelNotServed: the wanted model is not among those it lists.
    """
    async with Prober(base_url, api_key) as prober:
        cards = await _cards(prober)
        names = tuple(card.id for card in cards)
        if model is not None and model not in names:
            raise ModelNotServed(
                f"{prober.base_url} does not serve {model!r}; it serves {', '.join(map(repr, names))}",
                base_url=prober.base_url,
                served=names,
            )
        card = cards[0] if model is None else cards[names.index(model)]
        info = await _server_info(prober) if dialect in (None, "sglang") else None
        if dialect is None:
            dialect = "sglang" if info is not None else await _other_dialect(prober, card)
        return Target(
            base_url=prober.base_url,
            model=card.id,
            dialect=dialect,
            api_key=api_key,
            max_model_len=await _context_limit(prober, card, info),
            incremental_streaming=info is not None and info.get("incremental_streaming_output") is True,
        )


async def count_tokens(target: Target, texts: Sequence[str]) -> list[int | None]:
    """Counts raw texts' tokens as the server's own tokenizer does.

    Returns:
        Tokens of each, special ones that the tokenizer adds included; `None` where the server has no `/tokenize`.

    Raises:
        TargetUnreachable: nothing answers.
        TargetRefused: the key is missing or wrong.
    """
    async with Prober(target.base_url, target.api_key) as prober:
        return await count_with(prober, target, texts)


async def count_with(prober: Prober, target: Target, texts: Sequence[str]) -> list[int | None]:
    """Counts texts' tokens like `count_tokens`, over connections that are there already.

    SGLang takes a list of texts in one question; the others, and an SGLang that gives no list back, are asked for each.
    """
    counted: list[int | None] = []
    if target.dialect == "sglang" and len(texts) > 1:
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            some = list(texts[first : first + TEXTS_AT_ONCE])
            value = object_of(await prober.post("/tokenize", {"model": target.model, "prompt": some}))
            counts = None if value is None else value.get("count")
            if not isinstance(counts, list) or len(counts) != len(some) or not all(isinstance(n, int) for n in counts):
                break
            counted += counts
    gate = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def one(text: str) -> int | None:
        async with gate:
            return await _count_one(prober, target, text)

    return counted + await asyncio.gather(*(one(text) for text in texts[len(counted) :]))


async def _count_one(prober: Prober, target: Target, text: str) -> int | None:
    body = {"content": text} if target.dialect == "openai" else {"model": target.model, "prompt": text}
    value = object_of(await prober.post("/tokenize", body))
    if value is None:
        return None
    count, tokens = value.get("count"), value.get("tokens")
    if isinstance(count, int):
        return count
    return len(tokens) if isinstance(tokens, list) else None


async def _cards(prober: Prober) -> list[_Card]:
    response = await prober.get("/v1/models")
    try:
        cards = msgspec.json.decode(response.content, type=_Cards).data if response.is_success else []
    except msgspec.DecodeError:
        cards = []
    if not cards:
        said = f"HTTP {response.status_code}: {body_text(response.content)}"
        raise NoModels(
            f"{prober.base_url}/v1/models lists no model ({said}); is it the server's address, and has it loaded?",
            base_url=prober.base_url,
        )
    return cards


async def _server_info(prober: Prober) -> dict[str, Any] | None:
    """Returns SGLang's description of itself, `None` from any other server."""
    for path in SERVER_INFO_PATHS:
        info = await prober.json(path)
        if info is not None and ("model_path" in info or "internal_states" in info):
            return info
    return None


async def _other_dialect(prober: Prober, card: _Card) -> DialectName:
    if card.owned_by == "vllm":
        return "vllm"
    if card.owned_by == "sglang":
        return "sglang"
    # A gateway may rename the owner; vLLM's version path and its load metrics are its own.
    version = await prober.json("/version")
    return "vllm" if version is not None and "version" in version and card.owned_by != "llamacpp" else "openai"


async def _context_limit(prober: Prober, card: _Card, info: dict[str, Any] | None) -> int | None:
    if card.max_model_len is not None:
        return card.max_model_len
    if info is not None and isinstance(info.get("context_length"), int):
        return int(info["context_length"])
    props = await prober.json("/props") or {}
    settings = props.get("default_generation_settings")
    found = settings.get("n_ctx") if isinstance(settings, dict) else None
    return found if isinstance(found, int) else None
