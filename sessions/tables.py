"""A session's tables through Polars, lazily: requests, GPU and server samples, verdicts.

Each table has one fixed schema, derived from the type whose lines it holds. A Parquet file beside the log is used
when it is whole and no older than the log; damaged logs are read as far as they are sound, and what was skipped is
said.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
import polars as pl
from msgspec import inspect
from msgspec.structs import replace

from evals.verdicts import Judgement
from loadgen.records import RequestRecord
from sessions.errors import DiskFull, SessionError
from sessions.lines import Decoder, Notes, iter_decoded
from sessions.log import EVALS_FILE, GPUS_FILE, REQUESTS_FILE, SERVER_FILE, lock_holder
from telemetry.samples import GpuReading, GpuSample, ServerSample

TableName = Literal["requests", "gpus", "server", "evals"]
_FILES: dict[TableName, tuple[str, type[msgspec.Struct]]] = {
    "requests": (REQUESTS_FILE, RequestRecord),
    "gpus": (GPUS_FILE, GpuSample),
    "server": (SERVER_FILE, ServerSample),
    "evals": (EVALS_FILE, Judgement),
}
TABLES: tuple[TableName, ...] = tuple(_FILES)
_ONE_ANSWER = ("preset", "problem_set", "task_id", "sample")
_NEVER_NEGATIVE = ("ttft", "ttfo", "e2e", "n_out", "prompt_tokens", "fetch_s", "poll_s", "run_s")
_LARGE = 1 << 26
"""Bytes; of a larger log only the lines are looked at beforehand, and a field of the wrong type is unknown silently."""
_PARQUET_SMALLEST = 12
_ROW_GROUP = 20_000
"""Rows that are held in memory at once while a table is written."""
_FULL = 1 << 17
"""Bytes; a disk with less room than this is what made a write fail."""


class Table(msgspec.Struct, frozen=True):
    """One table: its lazy frame, and what could not be read of it, in words."""

    frame: pl.LazyFrame
    skipped: list[str]


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the Polars schema of a type's JSON lines (column name -> data type)."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return {field.encode_name: _dtype(field.type) for field in found.fields}


def _dtype(kind: inspect.Type) -> Any:
    match kind:
        case inspect.UnionType():
            rest = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
            return _dtype(rest[0]) if len(rest) == 1 else pl.String
        case inspect.FloatType():
            return pl.Float64
        case inspect.IntType():
            return pl.Int64
        case inspect.BoolType():
            return pl.Boolean
        case inspect.ListType() | inspect.VarTupleType():
            return pl.List(_dtype(kind.item_type))
        case inspect.StructType(array_like=True):
            return pl.List(pl.Float64)
        case inspect.StructType():
            return pl.Struct({f.encode_name: _dtype(f.type) for f in kind.fields})
        case _:
            return pl.String


def open_table(folder: Path, name: TableName, *, of_gpus: tuple[str, ...] | None = None) -> Table:
    """Opens a table of a session; an absent file is an empty table.

    Args:
        folder: the session's folder.
        name: which table.
        of_gpus: the fields that are wanted of each GPU, of the table "gpus"; a day of samples is read several times
            faster with few of them.

    Raises:
        SessionError: there is a file and nothing of it can be read.
    """
    table = _opened(folder, name, of_gpus)
    if name == "evals":  # an eval that a kill cut short was run anew; the later verdict counts, as in the state
        return replace(table, frame=table.frame.unique(_ONE_ANSWER, keep="last", maintain_order=True))
    return table


def _opened(folder: Path, name: TableName, of_gpus: tuple[str, ...] | None) -> Table:
    file, kind = _FILES[name]
    path = folder / file
    skipped: list[str] = []
    parquet = folder / f"{name}.parquet"
    if parquet.exists():
        why = why_no_parquet(parquet)
        if why is None and (not path.exists() or path.stat().st_mtime_ns <= parquet.stat().st_mtime_ns):
            return Table(_possible(_narrowed(pl.scan_parquet(parquet), of_gpus)), skipped)
        if why is not None:
            skipped.append(f"{parquet.name}: {why}; the log is read instead")
            if not path.exists():
                raise SessionError(f"{parquet}: {why}, and there is no {file} to read instead")
    schema = schema_of(kind)
    if of_gpus is not None:
        readings = schema_of(GpuReading)
        schema["gpus"] = pl.List(pl.Struct({field: readings[field] for field in of_gpus}))
    if _plain(path) and lock_holder(folder) in (None, os.getpid()):
        seen = path.stat()
        if _sound_file(path, kind, seen.st_size, seen.st_mtime_ns):
            large = seen.st_size > _LARGE
            return Table(_possible(pl.scan_ndjson(path, schema=schema, ignore_errors=large)), skipped)
    content, torn = _whole_lines(path)
    if content:
        large = len(content) > _LARGE
        frame = pl.scan_ndjson(content, schema=schema, ignore_errors=large)
        if _sound(pl.scan_ndjson(content, schema=schema), every_field=not large):
            return Table(
                _possible(frame), skipped + ([f"{file}: 1 incomplete line at the end ignored"] if torn else [])
            )
    notes = Notes(file)
    content = b"\n".join(msgspec.json.encode(value) for value in iter_decoded(path, Decoder.of(kind), notes))
    skipped += notes.words()
    if notes.torn:
        skipped.append(f"{file}: 1 incomplete line at the end ignored")
    frame = pl.scan_ndjson(content, schema=schema) if content else pl.LazyFrame(schema=schema)
    return Table(_possible(frame), skipped)


def _narrowed(frame: pl.LazyFrame, of_gpus: tuple[str, ...] | None) -> pl.LazyFrame:
    if of_gpus is None:
        return frame
    wanted = pl.struct(pl.element().struct.field(field) for field in of_gpus)
    return frame.with_columns(pl.col("gpus").list.eval(wanted))


@functools.lru_cache(maxsize=64)
def _sound_file(path: Path, kind: type[msgspec.Struct], size: int, changed_ns: int) -> bool:
    """Whether every line of a file can be parsed; looked at once for each size and time of change."""
    return _sound(pl.scan_ndjson(path, schema=schema_of(kind)), every_field=size <= _LARGE)


def _sound(frame: pl.LazyFrame, *, every_field: bool) -> bool:
    """Whether every line is an object, and (where asked) every field of its type."""
    try:
        frame.select(pl.all().null_count() if every_field else pl.col("t").sum()).collect(engine="streaming")
    except pl.exceptions.PolarsError:
        return False
    return True


def _whole_lines(path: Path) -> tuple[bytes, bool]:
    """Returns a file's whole lines, and whether a part of one follows; a snapshot of a live file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
            if rest := content[whole:].strip():
                try:
                    msgspec.json.decode(rest)
                    whole, rest = len(content), b""
                except (msgspec.DecodeError, UnicodeDecodeError):
                    pass
            return content[:whole], bool(rest)
    except (OSError, ValueError):  # absent, or empty, which cannot be mapped
        return b"", False


def scan_requests(folder: Path) -> pl.LazyFrame:
    """Returns a session's requests, one row each with the fields of `RequestRecord`, in the order they ended.

    Raises:
        SessionError: there is a file and nothing of it can be read.
    """
    return open_table(folder, "requests").frame


def _plain(path: Path) -> bool:
    """Whether a file looks like whole lines of JSON in UTF-8, from its ends."""
    try:
        with path.open("rb") as file:
            head = file.read(1)
            file.seek(-2, os.SEEK_END)
            return head == b"{" and file.read(2) == b"}\n"
    except OSError:
        return False


def _possible(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Takes durations and counts that cannot be (negative) for unknown."""
    columns = frame.collect_schema()
    names = [n for n in _NEVER_NEGATIVE if n in columns]
    if "verdict" in columns:  # an answer judged again, by a repetition or after a crash: the last verdict stands
        frame = frame.unique(subset=["preset", "problem_set", "task_id", "sample"], keep="last", maintain_order=True)
    return frame.with_columns(pl.when(pl.col(n) >= 0).then(pl.col(n)).alias(n) for n in names)


def why_no_parquet(path: Path) -> str | None:
    """Returns why a file is no whole Parquet file, or `None` when it is one."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4))
            tail = file.read(4)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if head != b"PAR1":
        return "not a Parquet file (empty)" if not size else "not a Parquet file"
    if tail != b"PAR1" or size < _PARQUET_SMALLEST:
        return "not finished (no footer)"
    try:
        pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        return f"not readable ({error})"
    return None


def write_parquet(folder: Path) -> list[str]:
    """Writes each table as Parquet (zstd) beside its log; a name always stands for a whole file.

    Args:
        folder: the session's folder, after a clean end.

    Returns:
        What could not be taken over from the logs, in words.

    Raises:
        DiskFull: no room; nothing is left under the final name, and the log is untouched.
        SessionError: it cannot be written for another reason.
    """
    skipped: list[str] = []
    for name in TABLES:
        table = open_table(folder, name)
        skipped += table.skipped
        sink(table.frame, folder / f"{name}.parquet")
    return skipped


def sink(frame: pl.LazyFrame, path: Path, form: Literal["parquet", "csv", "json"] = "parquet") -> None:
    """Writes a frame to a file through a temporary name, streaming.

    Raises:
        DiskFull: no room; nothing is left behind.
        SessionError: it cannot be written for another reason.
    """
    handle, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(temporary_name)
    try:
        match form:
            case "parquet":
                frame.sink_parquet(temporary, compression="zstd", row_group_size=_ROW_GROUP)
            case "csv":
                frame.sink_csv(temporary)
            case "json":
                frame.sink_ndjson(temporary)
        temporary.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or shutil.disk_usage(path.parent).free < _FULL:  # Polars' own words do not say it
            raise DiskFull(f"{path}: no room on the disk for this file; the log is untouched") from error
        raise SessionError(f"{path}: cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
