"""What the cases of saved sessions share: their data, a whole session, its lines and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from sessions.lines import Decoder, Notes, iter_decoded
from sessions.review import open_session
from sessions.show import print_session

DATA = Path(__file__).parent / "data"


class Header(msgspec.Struct, tag_field="type", tag="header"):
    """The samples' first line."""

    run_id: str


class Request(msgspec.Struct, tag_field="type", tag="request"):
    """The samples' other lines."""

    seq: int
    mono: float = 0.0
    ok: bool | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    tokens: int | None = None


def sample(path: Path) -> tuple[list[Header | Request], Notes]:
    notes = Notes(path.name)
    return list(iter_decoded(path, Decoder.of(Header | Request), notes)), notes


def requests_in(path: Path) -> list[Request]:
    return [x for x in sample(path)[0] if isinstance(x, Request)]


def expected(case: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((DATA / case / "expected.json").read_text())
    return tree


def tables_of(folder: Path) -> str:
    """What `spectop show` prints."""
    from io import StringIO

    out = StringIO()
    print_session(open_session(folder), out)
    return out.getvalue()
