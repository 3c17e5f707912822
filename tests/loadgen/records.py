"""Request records made by hand, for tests of the measures."""

from __future__ import annotations

from typing import Any

from loadgen.records import Chunk, Outcome, RequestRecord
from loadgen.spec import CellSpec, Stop


def cell(concurrency: int = 1, **changes: Any) -> CellSpec:
    """A cell of the given concurrency."""
    given: dict[str, Any] = {"cell": "c", "context": 60, "max_tokens": 10, "stop": Stop(requests=1)}
    return CellSpec(concurrency=concurrency, **(given | changes))


def ok(
    sent: float,
    *chunks: tuple[float, int | None],
    n_out: int | str | None = "sum",
    slot: int = 0,
    **changes: Any,
) -> RequestRecord:
    """A valid request sent at `sent`, with its chunks as (offset, tokens)."""
    total = sum(n or 0 for _, n in chunks) if n_out == "sum" else n_out
    last = chunks[-1][0] if chunks else None
    given: dict[str, Any] = {
        "t": sent + (last or 0.0),
        "cell": "c",
        "rid": f"r{slot}-{sent:g}",
        "purpose": "cell",
        "slot": slot,
        "t_due": sent,
        "t_send": sent,
        "ttft": chunks[0][0] if chunks else None,
        "e2e": last,
        "n_out": total,
        "n_first": chunks[0][1] if chunks else None,
        "n_first_known": bool(chunks and chunks[0][1] is not None),
        "finish_reason": "length",
        "outcome": Outcome.OK,
        "chunks": tuple(Chunk(t, n) for t, n in chunks),
        "max_tokens": 10,
    }
    return RequestRecord(**(given | changes))


def evenly(
    sent: float, first: float, last: float, tokens: int, *, slot: int = 0, each: int = 1, **changes: Any
) -> RequestRecord:
    """A valid request with one token at `first` and the rest evenly spaced until `last` (both after `sent`)."""
    rest = (tokens - 1) // each
    step = (last - first) / rest if rest else 0.0
    chunks = [(first, 1), *((first + step * (k + 1), each) for k in range(rest))]
    return ok(sent, *chunks, slot=slot, **changes)


def failed(sent: float, over: float, outcome: Outcome = Outcome.STREAM_ERROR, **changes: Any) -> RequestRecord:
    """A request that failed at `over` (session seconds)."""
    given: dict[str, Any] = {"outcome": outcome, "finish_reason": None, "t": over, "n_out": None, "error": "went wrong"}
    return ok(sent, **(given | changes))
