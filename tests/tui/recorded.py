"""Session folders as an engine leaves them, of scripted events and scattered requests."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadgen.records import AcceptanceSource, Chunk, Outcome, RequestRecord
from sessions.events import AnyEvent
from tests.tui import scripted as s


def record(cell: s.CellKey, i: int, outcome: Outcome = Outcome.OK, begin: float = 1500.0) -> RequestRecord:
    """A request as a cell of 16 users leaves it; figures scatter, the same in every run."""
    sent = begin + i // 16 * 3.3 + i % 16 * 0.02
    ttft = 0.08 + (i * 37 % 64) ** 1.7 / 18000 + i * 13 % 7 / 300
    gap = 0.024 + (i * 29 % 31) / 6000
    return RequestRecord(
        t=sent + 3,
        cell=cell.text,
        rid=f"r{i}",
        purpose="cell",
        t_due=sent,
        t_send=sent,
        ttft=ttft,
        e2e=ttft + 96 * gap,
        n_out=512,
        n_first=1,
        n_first_known=True,
        prompt_tokens=60,
        cached_tokens=0,
        finish_reason="length",
        outcome=outcome,
        error=None if outcome is Outcome.OK else "HTTP 500: [/bin/x] broke",
        chunks=tuple(Chunk(ttft + j * gap + (i + j) * 7 % 5 / 900, 5) for j in range(97)),
        verify_steps=120,
        correct_drafts=391,
        acceptance_source=AcceptanceSource.PER_REQUEST,
        max_tokens=512,
    )


def write_session(folder: Path, events: list[AnyEvent], records: list[RequestRecord] | None = None) -> Path:
    """A session's folder as an engine leaves it."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(e) + b"\n" for e in events))
    (folder / "requests.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records or []))
    return folder


def without_evals(events: list[AnyEvent]) -> list[AnyEvent]:
    return [e for e in events if not isinstance(e, s.ev.EvalEnded)]
