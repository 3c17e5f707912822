"""Reads the batch lines of a server's log, by the names of their fields and never by their place.

SGLang writes a line every 40 decode steps and one for every prefill; versions and back ends put fields between the ones
known, and other lines may hold the same words (an access line shows what a client sent).
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

_LINE = re.compile(
    r"^\[(?P<time>[^\]]*?)(?P<ranks>(?: (?:DP|TP|PP|EP|ATTN_DP|CP)\d+)*)\] (?P<what>Decode|Prefill) batch"
    r"(?: \[\d+\])?[,.] (?P<fields>.*)$"
)
_RANK = re.compile(r"([A-Z_]+)(\d+)")
_FIELD = re.compile(r"\s*(?P<name>[^:]+): (?P<value>.*)$")


class BatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One batch line; a field that the line does not have is `None`.

    Attributes:
        kind: a decode or a prefill report.
        running, queued: requests in the batch and waiting.
        accept_length: tokens a verify step over the last steps, bonus token included, as the server counts it.
        accept_rate: accepted / proposed drafts.
        gen_tok_s: the server's own throughput over the last steps.
        graph: whether the batch ran from a captured graph.
        new_tokens, cached_tokens: of a prefill: computed, and taken from the prefix cache.
        dp, tp: data- and tensor-parallel rank that wrote the line.
    """

    kind: Literal["decode", "prefill"]
    running: int | None = None
    queued: int | None = None
    token_usage: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    gen_tok_s: float | None = None
    graph: bool | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    dp: int | None = None
    tp: int | None = None


def read_batch_line(line: str) -> BatchLine | None:
    """Reads one line of a server's log; `None` when it is no batch line."""
    found = _LINE.match(line.strip())
    if found is None:
        return None
    fields: dict[str, str] = {}
    for part in found["fields"].split(", "):
        field = _FIELD.match(part)
        if field is not None:
            fields.setdefault(field["name"].strip(), field["value"].strip())
    ranks = {name: int(number) for name, number in _RANK.findall(found["ranks"])}
    graphs = [value for name, value in fields.items() if name.split(" ")[-1] == "graph"]
    return BatchLine(
        kind="decode" if found["what"] == "Decode" else "prefill",
        running=_whole(fields.get("#running-req")),
        queued=_whole(fields.get("#queue-req")),
        token_usage=_number(fields.get("token usage", fields.get("full token usage"))),
        accept_length=_accept_length(fields.get("accept len")),
        accept_rate=_number(fields.get("accept rate")),
        gen_tok_s=_number(fields.get("gen throughput (token/s)")),
        graph=graphs[0] == "True" if graphs else None,
        new_tokens=_whole(fields.get("#new-token")),
        cached_tokens=_whole(fields.get("#cached-token")),
        dp=ranks.get("DP"),
        tp=ranks.get("TP"),
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return None if value is None else int(value)


def _accept_length(text: str | None) -> float | None:
    """Below 1 nothing was verified yet: the bonus token alone gives 1."""
    value = _number(text)
    return value if value is not None and value >= 1.0 else None
