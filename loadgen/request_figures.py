"""Figures of one request: its speed, its gaps, and how its tokens lie in time. A figure not to be had is `None`."""

from __future__ import annotations

from itertools import pairwise

from loadgen.records import RequestRecord


def measured(record: RequestRecord) -> bool:
    """Whether a valid request has a token count from the server."""
    return record.valid and record.n_out is not None


def decode_tok_s(record: RequestRecord) -> float | None:
    """Per-user speed: tokens after the first chunk / the seconds they took.

    `None` for a failed or unmeasured request, and when no token came after the first chunk.
    """
    if not record.valid or record.n_out is None or record.ttft is None or record.e2e is None:
        return None
    later_tokens = record.n_out - (1 if record.n_first is None else record.n_first)
    seconds = record.e2e - record.ttft
    if later_tokens <= 0 or seconds <= 0:
        return None
    return later_tokens / seconds


def tpot_s(record: RequestRecord) -> float | None:
    """Seconds a token after the first chunk: 1 / `decode_tok_s`."""
    speed = decode_tok_s(record)
    return None if speed is None else 1.0 / speed


def chunk_gaps_s(record: RequestRecord) -> list[float]:
    """Seconds between token-bearing chunks. A chunk carries one to many tokens: this is no inter-token latency."""
    times = [c.t for c in record.chunks]
    return [b - a for a, b in pairwise(times)]


def token_gaps_s(record: RequestRecord) -> list[tuple[float, int]]:
    """Inter-token latency: (gap / tokens in the chunk, tokens in the chunk) for every chunk after the first.

    Empty where the server did not tell every chunk's tokens. A chunk of text that brought no new token belongs to the
    next one that did.
    """
    if any(c.tokens is None for c in record.chunks):
        return []
    gaps: list[tuple[float, int]] = []
    since = record.chunks[0].t if record.chunks else 0.0
    for chunk in record.chunks[1:]:
        if chunk.tokens:
            gaps.append(((chunk.t - since) / chunk.tokens, chunk.tokens))
            since = chunk.t
    return gaps


def chunk_tokens(record: RequestRecord) -> list[float] | None:
    """Tokens of each chunk, adding up to `n_out`; `None` where the request is unmeasured.

    Counts told by the server are used as they are. Chunks without one share evenly what is left. Tokens of the usage
    that no chunk told of (an end token, text held back) belong to the last chunk. Counts that exceed the usage are not
    believed, and the usage is spread evenly.
    """
    if record.n_out is None:
        return None
    chunks = record.chunks
    if not chunks:
        return []
    known = sum(c.tokens for c in chunks if c.tokens is not None)
    unknown = sum(1 for c in chunks if c.tokens is None)
    rest = record.n_out - known
    if rest < 0:
        return [record.n_out / len(chunks)] * len(chunks)
    if unknown:
        return [rest / unknown if c.tokens is None else float(c.tokens) for c in chunks]
    tokens = [float(c.tokens or 0) for c in chunks]
    tokens[-1] += rest
    return tokens


def tokens_inside(record: RequestRecord, window: tuple[float, float]) -> float | None:
    """Tokens of a request that arrived inside the window (start, end], in session seconds.

    The window is open at its start, because it starts with the arrival of a chunk: what counts is what was
    produced in it.

    Returns:
        The tokens; `None` when some may have arrived inside and nobody told how many.
    """
    start, end = window
    if record.e2e is not None and (record.t_send + record.e2e <= start or record.t_send > end):
        return 0.0
    tokens = chunk_tokens(record)
    if tokens is None:
        return 0.0 if not any(start < record.t_send + c.t <= end for c in record.chunks) else None
    if not record.chunks:
        return _without_chunks(record, window)
    return sum(n for n, c in zip(tokens, record.chunks, strict=True) if start < record.t_send + c.t <= end)


def _without_chunks(record: RequestRecord, window: tuple[float, float]) -> float | None:
    """Tokens inside the window of a request whose chunk times were not kept: spread evenly from first to last token."""
    if not record.n_out:
        return 0.0
    if record.ttft is None or record.e2e is None:
        return None
    first, last = record.t_send + record.ttft, record.t_send + record.e2e
    at_first = min(record.n_out, 1 if record.n_first is None else record.n_first)
    inside = float(at_first) if window[0] < first <= window[1] else 0.0
    if last > first:
        overlap = max(0.0, min(last, window[1]) - max(first, window[0]))
        inside += (record.n_out - at_first) * overlap / (last - first)
    return inside
