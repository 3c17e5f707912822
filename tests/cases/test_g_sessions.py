"""Field cases of kind G: sessions that were cut off, damaged, edited, compressed, grown or are simply very different.

The cases' own sample files go through the tolerant reader with a type of their layout; the same damage is then done to
files that the product wrote.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from loadgen.figures import CellFigures
from sessions import events as ev
from sessions.errors import DiskFull, NewerSchema
from sessions.events import CellKey
from sessions.folder import create, describe_host, read_info
from sessions.lines import Decoder, Notes, iter_decoded
from sessions.log import SessionLog
from sessions.logread import read_events
from sessions.replay import Replay
from sessions.review import list_sessions, open_session
from sessions.show import session_json
from sessions.tables import open_table
from tests.cases import damage
from tests.cases.saved import DATA, Header, Request, expected, sample
from tests.sessions.made import figures, request


@pytest.mark.parametrize("variant", ["a", "b", "c"])
def test_f98_sample_cut_off(variant: str) -> None:
    read, notes = sample(DATA / "F98" / f"{variant}.jsonl")
    wanted = expected("F98")[variant]
    assert len([x for x in read if isinstance(x, Request)]) == wanted["records"]
    assert notes.torn == bool(wanted["incomplete"])
    assert notes.lines_skipped == 0


@pytest.mark.parametrize("blank", [b"", b"\n", b"\n\n  \n"])
@pytest.mark.parametrize("count", [1 + 1, 17, 40, 400])
def test_f98_cut_off_session(made: Path, count: int, blank: bytes) -> None:
    whole = read_events(made).events
    damage.change(made / "events.jsonl", lambda b: damage.cut_end(b, count) + blank)
    read = read_events(made)
    assert read.events == whole[: len(read.events)]
    assert len(whole) - 3 <= len(read.events) < len(whole)
    assert read.torn
    assert any("ended abruptly" in words for words in read.skipped)
    session = open_session(made)
    assert session.status == "interrupted"
    assert session.state.done_cells >= 35


def test_f98_whole_line_without_its_end(made: Path) -> None:
    whole = read_events(made).events
    damage.change(made / "events.jsonl", damage.without_last_end)
    read = read_events(made)
    assert (read.events, read.torn, read.skipped) == (whole, False, [])


def test_f98_cut_in_a_character_and_padded(made: Path) -> None:
    before = len(read_events(made).events)
    damage.change(made / "events.jsonl", damage.cut_in_character)
    damage.change(made / "events.jsonl", damage.with_nul_padding)
    read = read_events(made)
    assert len(read.events) == before - 1
    assert read.torn


def test_f98_the_next_writer_cuts_the_torn_end(made: Path) -> None:
    damage.change(made / "events.jsonl", lambda b: damage.cut_end(b, 17))
    damage.change(made / "requests.jsonl", damage.without_last_end)
    before = read_events(made).events
    with SessionLog(made) as log:
        assert len(log.repaired) == 2
        assert log.now() >= before[-1].t
        log.append(ev.SessionResumed(t=log.now()))
        log.request(request(log.now(), "x", "after"))
    read = read_events(made)
    assert [type(e).__name__ for e in read.events[len(before) :]] == ["SessionResumed"]
    assert (read.torn, read.lines_skipped) == (False, 0)
    assert open_table(made, "requests").frame.collect()["rid"][-1] == "after"
    assert open_table(made, "requests").skipped == []


def test_f100_disk_full_and_free_again(tmp_path: Path) -> None:
    scenario = json.loads((DATA / "F100" / "scenario.json").read_text())
    sys.path.insert(0, str(DATA / "F100"))
    try:
        from faulty_writer import Faulty  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(DATA / "F100"))
    folder = create(tmp_path, "full", describe_host("full"))
    faulty: Any = None

    def write(fd: int, data: bytes) -> int:
        nonlocal faulty
        if faulty is None:
            return pl_write(fd, data)
        written = faulty.write(data)
        assert isinstance(written, int)
        return written

    told = []
    with SessionLog(folder, write=write) as log:
        for number in range(1, scenario["records"] + 1):
            if number == scenario["fail_from_record"]:
                raw = open(folder / "events.jsonl", "ab", buffering=0)  # noqa: SIM115, PTH123 - closed below
                faulty = Faulty(raw, scenario["fail_offset_in_record"])
            if number == scenario["healed_before_record"]:
                faulty.heal()
                log.retry()
            try:
                log.append(ev.NoteAdded(t=float(number), text=f"note {number}"))
            except DiskFull as error:
                told.append((number, str(error)))
                assert log.full
                before = read_events(folder)
                assert (len(before.events), before.torn) == (scenario["fail_from_record"] - 1, False)
        raw.close()
    assert [number for number, _ in told] == [scenario["fail_from_record"]]  # at once, and not again and again
    assert "No space left" in told[0][1]
    read = read_events(folder)
    assert [e.t for e in read.events] == [float(n) for n in range(1, scenario["records"] + 1)]
    assert (read.lines_skipped, read.torn) == (0, False)


def pl_write(fd: int, data: bytes) -> int:
    import os

    return os.write(fd, data)


def test_f101_clock_jumps_change_nothing(tmp_path: Path) -> None:
    wanted = expected("F101")
    lines = [json.loads(x) for x in (DATA / "F101" / "session.jsonl").read_text().splitlines()][1:]
    key = CellKey(preset="none", context=60, concurrency=1)
    start = lines[0]["mono"]
    folder = create(tmp_path, "clock", describe_host("clock"))
    with SessionLog(folder) as log:
        log.append(ev.CellStarted(t=0.0, at=lines[0]["wall"], cell=key, run=key.text))
        for line in lines:
            log.append(ev.NoteAdded(t=line["mono"] - start, at=line["wall"], text=str(line["seq"])))
        log.append(ev.CellEnded(t=wanted["total_s"], cell=key, run=key.text, outcome="measured", figures=CellFigures()))
    state = open_session(folder).state
    notes = state.notes
    assert [int(n.words) for n in notes] == wanted["order"]
    assert [round(b.t - a.t, 3) for a, b in itertools.pairwise(notes)] == wanted["gaps_s"]
    assert [n.at for n in notes] == [line["wall"] for line in lines]
    cell = state.cells[key.text]
    assert cell.ended_t is not None
    assert cell.started_t is not None
    assert cell.ended_t - cell.started_t == wanted["total_s"]
    with Replay(folder) as replay:
        assert replay.seek(2.9).notes[-1].words == "2"


def test_f103_newer_schema_is_refused_and_left_alone(made: Path) -> None:
    schema = json.loads((DATA / "F103" / "a.jsonl").read_text().splitlines()[0])["schema"]
    damage.change(made / "session.json", lambda b: b.replace(b'"schema": 1', b'"schema": %d' % schema))
    before = {p.name: p.read_bytes() for p in made.iterdir() if p.is_file()}
    for look in (open_session, read_events, read_info):
        with pytest.raises(NewerSchema, match=f"schema {schema}; this version reads up to {ev.SCHEMA_VERSION}"):
            look(made)
    assert {p.name: p.read_bytes() for p in made.iterdir() if p.is_file()} == before
    (listed,) = list_sessions(made.parent)
    assert listed.status == "unreadable"
    assert str(schema) in listed.problem


def test_f103_unknown_kinds_and_fields_are_left_out_and_counted(made: Path) -> None:
    read, notes = sample(DATA / "F103" / "b.jsonl")
    assert len([x for x in read if isinstance(x, Request)]) == expected("F103")["b"]["records"]
    assert notes.lines_skipped == expected("F103")["b"]["unknown_types"]
    before = read_events(made).events
    damage.change(
        made / "events.jsonl",
        lambda b: damage.inserted(b, 3, b'{"kind":"ThermalMapped","t":1.5,"map":[1]}').replace(
            b'{"kind":"PhaseChanged"', b'{"kind":"PhaseChanged","future":{"x":[1]}', 1
        ),
    )
    after = read_events(made)
    assert after.events == before
    assert after.lines_skipped == 1
    assert any("ThermalMapped" in words for words in after.skipped)


def test_f103_a_mark_of_a_newer_version_is_never_lost_silently(made: Path) -> None:
    state = open_session(made).state
    damage.change(
        made / "events.jsonl",
        lambda b: b.replace(b'"marks":[]', b'"marks":[{"kind":"haunted","reason":"who knows"}]', 1),
    )
    session = open_session(made)
    assert sum(c.status == "measured" for c in session.state.cells.values()) == len(state.cells) - 1
    assert any("haunted" in words or "not understood" in words for words in session.skipped)


@pytest.mark.parametrize(("schema", "refused"), [(b"", False), (b'"schema": "2",', True), (b'"schema": null,', True)])
def test_f103_no_or_odd_schema(made: Path, schema: bytes, refused: bool) -> None:
    damage.change(made / "session.json", lambda b: b.replace(b'"schema": 1,', schema))
    if refused:
        with pytest.raises(NewerSchema, match="schema must be a whole number"):
            open_session(made)
    else:
        assert open_session(made).info is not None


def test_f104_nan_and_infinity(made: Path) -> None:
    wanted = expected("F104")
    path = DATA / "F104" / "session.jsonl"
    read, notes = sample(path)
    records = [x for x in read if isinstance(x, Request)]
    assert (len(records), notes.lines_skipped) == (wanted["records"], wanted["bad_lines"])
    known = [r.ttft_ms for r in records if r.ttft_ms is not None]
    assert sum(known) / len(known) == wanted["mean_ttft_ms"]
    rows = made / "requests.jsonl"
    damage.change(rows, lambda b: b.replace(b'"ttft":0.2', b'"ttft":NaN', 1).replace(b'"e2e":0.9', b'"e2e":1e999', 1))
    table = open_table(made, "requests").frame.select(pl.col("ttft", "e2e").mean()).collect()
    assert table.row(0) == pytest.approx((0.2, 0.9))


def test_f104_what_is_written_is_strict_json(tmp_path: Path) -> None:
    bad = msgspec.structs.replace(figures(100.0), throughput_tok_s=float("nan"), energy_j_per_tok=float("inf"))
    key = CellKey(preset="none", context=60, concurrency=1)
    folder = create(tmp_path, "nan", describe_host("nan"))
    with SessionLog(folder) as log:
        log.append(ev.CellEnded(t=1.0, cell=key, run=key.text, outcome="measured", figures=bad))
        log.append(ev.NoteAdded(t=2.0, text="lone surrogate \ud800"))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for line in (folder / "events.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    state = open_session(folder).state
    read = state.cells[key.text].figures
    assert read is not None
    assert read.throughput_tok_s is None
    assert state.notes[0].words == "lone surrogate ?"
    document = msgspec.json.encode(session_json(state, folder))
    json.loads(document, parse_constant=refuse)


def test_f105_many_events_as_a_stream(tmp_path: Path) -> None:
    count = 100_000
    path = tmp_path / "big.jsonl"
    with path.open("wb") as file:
        subprocess.run([sys.executable, str(DATA / "F105" / "gen.py"), str(count)], stdout=file, check=True)

    class Chunk(msgspec.Struct, tag_field="type", tag="chunk"):
        mono: float
        tokens: int
        gap_ms: int

    tokens = gaps = n = 0
    last = 0.0
    for value in iter_decoded(path, Decoder.of(Header | Chunk), Notes("big")):
        if isinstance(value, Chunk):
            tokens, gaps, n, last = tokens + value.tokens, gaps + value.gap_ms, n + 1, value.mono
    assert (n, tokens, gaps / n, last) == (count, count * 10 // 4, expected("F105")["mean_gap_ms"], count / 40)
