"""A session's tables as files for other programs: Parquet, CSV or JSON lines, and everything as one JSON document."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import polars as pl

from loadgen.figures import CellFigures
from sessions.errors import DiskFull, SessionError
from sessions.folder import write_atomically
from sessions.review import Session
from sessions.show import session_json
from sessions.state import CellState, SessionState
from sessions.tables import Table, open_table, sink

Format = Literal["parquet", "csv", "json"]
FORMATS: tuple[Format, ...] = ("parquet", "csv", "json")
DOCUMENT = "everything.json"
_SUFFIX = {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl"}


class Exported(msgspec.Struct, frozen=True):
    """What was written, and what of the logs could not be read, in words."""

    files: tuple[Path, ...]
    skipped: tuple[str, ...]


def cells_frame(state: SessionState) -> pl.DataFrame:
    """Returns the cells, one row each, figures as columns (`ttft_s_p99`); absent is null, marks are their kinds."""
    schema: dict[str, Any] = {"preset": pl.String, "context": pl.Int64, "concurrency": pl.Int64}
    rows = [_row(cell) for cell in state.cells.values()]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=schema)


def _row(cell: CellState) -> dict[str, Any]:
    row: dict[str, Any] = {**msgspec.to_builtins(cell.key), "status": cell.status, "reason": cell.reason or None}
    row |= {"started_t": cell.started_t, "ended_t": cell.ended_t}
    figures = cell.figures or CellFigures()
    for key, value in msgspec.to_builtins(figures).items():
        if key == "marks":
            row["marks"] = " ".join(m.kind.value for m in figures.marks) or None
        elif key == "categories":
            continue
        elif key == "requests":
            row["requests_valid"] = figures.requests.valid if cell.figures else None
            row["requests_failed"] = sum(figures.requests.failed.values()) if cell.figures else None
            row["failures"] = " ".join(f"{kind}:{n}" for kind, n in figures.requests.failed.items()) or None
        elif key.endswith("_ci95"):
            row[f"{key}_lo"], row[f"{key}_hi"] = value or (None, None)
        elif isinstance(value, dict):
            row |= {f"{key}_{inner}": v for inner, v in value.items()}
        elif key in ("accepted_histogram", "survival", "gpu_memory_peak_bytes"):
            row[key] = None if value is None else list(value)
        else:
            row[key] = value
    return row


def gpus_flat(table: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the GPU samples with one row a GPU and moment."""
    return (
        table.select("t", "source", "gpus")
        .explode("gpus", empty_as_null=False)
        .filter(pl.col("gpus").is_not_null())
        .unnest("gpus")
    )


def export(session: Session, directory: Path, form: Format) -> Exported:
    """Writes a session's tables and its whole JSON document into a directory.

    Args:
        session: an opened session.
        directory: made when it is not there; files of the same names in it are replaced.
        form: of the tables.

    Raises:
        DiskFull: no room; no half file is left under a final name.
        SessionError: the directory cannot be written, or a table cannot be read at all.
    """
    skipped = list(session.skipped)

    def table(name: Literal["requests", "server", "evals", "gpus"]) -> pl.LazyFrame:
        opened: Table = open_table(session.folder, name)
        skipped.extend(opened.skipped)
        return opened.frame

    frames: dict[str, Callable[[], pl.LazyFrame]] = {
        "cells": lambda: cells_frame(session.state).lazy(),
        "requests": lambda: table("requests"),
        "gpus": lambda: gpus_flat(table("gpus")),
        "server": lambda: table("server"),
        "evals": lambda: table("evals"),
    }
    files = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, frame in frames.items():
            path = directory / (name + _SUFFIX[form])
            sink(plain(frame()) if form == "csv" else frame(), path, form)
            files.append(path)
        tree = session_json(session.state, session.folder, info=session.info, skipped=tuple(skipped), live=session.live)
        path = directory / DOCUMENT
        write_atomically(path, msgspec.json.format(msgspec.json.encode(tree), indent=1))
        files.append(path)
    except OSError as error:
        kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else SessionError
        raise kind(f"{directory}: cannot be written: {error.strerror}") from error
    return Exported(tuple(files), tuple(skipped))


def plain(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Returns a frame without nested columns: lists and structs become JSON text."""
    nested = [name for name, kind in frame.collect_schema().items() if kind.is_nested()]
    return frame.with_columns(
        pl.when(pl.col(name).is_not_null())
        .then(pl.struct(name).struct.json_encode().str.strip_prefix(f'{{"{name}":').str.strip_suffix("}"))
        .alias(name)
        for name in nested
    )
