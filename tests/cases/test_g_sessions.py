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
from reconfig.presets import Preset, Proof
from sessions import events as ev
from sessions.compare import Comparison, Side, compare
from sessions.errors import DiskFull, NewerSchema, SessionError, SessionNotFound
from sessions.events import CellKey
from sessions.folder import create, describe_host, find, read_info
from sessions.lines import Decoder, Notes, iter_decoded
from sessions.log import SessionLog
from sessions.logread import read_events
from sessions.replay import Replay
from sessions.review import list_sessions, open_session
from sessions.show import print_session, session_json
from sessions.tables import open_table, write_parquet
from tests.cases import damage
from tests.sessions.made import figures, make_session, request

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


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A whole session that the product wrote."""
    return make_session(tmp_path / "sessions")


def tables_of(folder: Path) -> str:
    """What `spectop show` prints."""
    from io import StringIO

    out = StringIO()
    print_session(open_session(folder), out)
    return out.getvalue()


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


def test_f106_names_of_sessions(tmp_path: Path) -> None:
    names = json.loads((DATA / "F106" / "names.json").read_text())
    root = tmp_path / "sessions"
    made_folders = [create(root, name, describe_host(name)) for name in names]
    assert {f.parent for f in made_folders} == {root}
    assert len(set(made_folders)) == len(names)
    parts = [f.name.partition("Z-")[2] for f in made_folders]
    assert len(set(parts)) == len(set(names))
    assert all(len(f.name.encode()) < 200 and f.name.isascii() and f.name.isprintable() for f in made_folders)
    (root / "odd [bold]\nname\x1b[31m").mkdir()
    (root / "odd [bold]\nname\x1b[31m" / "events.jsonl").touch()
    for listed in list_sessions(root):
        assert listed.name.isprintable()
        assert listed.label.isprintable()
    for name in [*names, "nul\0", "x" * 5000]:
        if name not in ("..",):
            with pytest.raises(SessionNotFound):
                find(root, f"no such {name}")


def test_f107_a_session_that_is_still_written(made: Path) -> None:
    wanted = expected("F107")
    assert len(requests_in(DATA / "F107" / "stage1.jsonl")) == wanted["stage1"]["records"]
    assert len(requests_in(DATA / "F107" / "stage2.jsonl")) == wanted["stage2"]["records"]
    assert sample(DATA / "F107" / "stage1.jsonl")[1].torn
    content = (made / "events.jsonl").read_bytes()
    whole = read_events(made).events
    half = content.index(b'{"kind":"CellEnded"') + 60
    (made / "events.jsonl").write_bytes(content[:half])
    with SessionLogHeld(made):
        read = read_events(made)
        assert (read.live, read.torn, read.skipped) == (True, True, [])
        replay = Replay(made)
        replay.seek(replay.length_s)
        begun = len(replay.cells)
        with (made / "events.jsonl").open("ab") as file:
            file.write(content[half:])
        assert read_events(made).events == whole
        assert replay.extend()
        state = replay.seek(replay.length_s)
        assert sum(c.status == "measured" for c in state.cells.values()) == 36
        assert len(replay.cells) == 36 > begun
        assert not replay.extend()
    other = make_session(made.parent, "c", repeats=1)
    (other / "events.jsonl").rename(made / "events.jsonl")
    assert replay.extend()
    assert replay.seek(replay.length_s).label == "c"
    replay.close()


class SessionLogHeld:
    """Holds a session's lock as an engine would, without touching its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        import fcntl

        self._file = (self._folder / "lock").open("a+")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_f108_wrong_shapes(made: Path) -> None:
    read, notes = sample(DATA / "F108" / "session.jsonl")
    seqs = {x.seq for x in read if isinstance(x, Request)}
    wanted = expected("F108")
    assert set(wanted["records_at_least"]) <= seqs
    assert notes.lines_skipped >= wanted["skipped_at_least"]
    assert all(isinstance(x.ttft_ms, float | None) for x in read if isinstance(x, Request))
    odd = [
        b"null",
        b"[]",
        b'"text"',
        b"42",
        b"{}",
        b"",
        b"   ",
        b'{"kind":"Said","t":"late","level":"info","words":"x"}',
    ]
    damage.change(made / "events.jsonl", lambda b: damage.inserted(b, 5, *odd))
    damage.change(
        made / "requests.jsonl",
        lambda b: (
            damage.inserted(b, 2, *odd[:7])
            .replace(b'"ttft":0.2', b'"ttft":-5', 1)
            .replace(b'"e2e":0.9', b'"e2e":"fast"', 1)
            .replace(b'"slot":0', b'"slot":0,"slot":0', 1)
        ),
    )
    events = read_events(made)
    assert events.lines_skipped == 5
    assert sum(c.status == "measured" for c in open_session(made).state.cells.values()) == 36
    table = open_table(made, "requests")
    assert table.skipped
    found = table.frame.select(pl.len(), pl.col("ttft").min(), pl.col("e2e").null_count()).collect().row(0)
    assert found == (72, 0.2, 1)


@pytest.mark.parametrize("name", ["cut", "zero", "text"])
def test_f109_parquet_without_its_footer(made: Path, name: str) -> None:
    write_parquet(made)
    rows = open_table(made, "requests").frame.collect().height
    (made / "requests.parquet").write_bytes((DATA / "F109" / f"{name}.parquet").read_bytes())
    table = open_table(made, "requests")
    assert table.frame.collect().height == rows
    reason = expected("F109")["cut"]["reason_contains"] if name == "cut" else "not a Parquet file"
    assert any(reason in words for words in table.skipped)
    (made / "requests.jsonl").unlink()
    with pytest.raises(SessionError, match=reason):
        open_table(made, "requests")
    assert [s.status for s in list_sessions(made.parent)] == ["finished"]
    assert "36 of 36 cells measured" in tables_of(made)


@pytest.mark.parametrize("how", ["windows", "utf16", "gzip", "gzip of windows"])
def test_f110_edited_elsewhere(made: Path, how: str) -> None:
    before = open_session(made).state
    rows = open_table(made, "requests").frame.collect()
    for name in ("events.jsonl", "requests.jsonl", "gpus.jsonl", "server.jsonl"):
        if "windows" in how:
            damage.change(made / name, damage.as_on_windows)
        if how == "utf16":
            damage.change(made / name, damage.as_utf16)
        if "gzip" in how:
            damage.compress(made / name)
    session = open_session(made)
    assert session.state == before
    assert session.skipped == ()
    assert open_table(made, "requests").frame.collect().equals(rows)


def test_f110_samples(made: Path) -> None:
    assert len(requests_in(DATA / "F110" / "bom_crlf.jsonl")) == expected("F110")["bom_crlf"]["records"]
    assert len(requests_in(DATA / "F110" / "utf16.jsonl")) == 3
    assert requests_in(DATA / "F110" / "plain.jsonl.gz")
    (made / "events.jsonl").write_bytes((DATA / "F110" / "empty.jsonl").read_bytes())
    session = open_session(made)
    assert session.status == "empty"
    assert any("empty session" in words for words in session.skipped)
    assert "empty session" in tables_of(made)


def test_f110_a_writer_refuses_what_it_cannot_continue(made: Path) -> None:
    damage.change(made / "events.jsonl", damage.as_utf16)
    before = (made / "events.jsonl").read_bytes()
    with pytest.raises(SessionError, match="UTF-16 or compressed"):
        SessionLog(made)
    assert (made / "events.jsonl").read_bytes() == before


def test_f110_cut_off_gzip(made: Path) -> None:
    damage.compress(made / "events.jsonl")
    damage.change(made / "events.jsonl.gz", lambda b: b[: len(b) // 2])
    session = open_session(made)
    assert session.state.cells
    assert any("compressed file is cut off" in words for words in session.skipped)


def test_fused_and_torn_lines_in_the_middle(made: Path) -> None:
    whole = read_events(made).events
    damage.change(made / "events.jsonl", lambda b: damage.fused(b, 7))
    read = read_events(made)
    assert read.events == whole
    assert any("several records on one line" in words for words in read.skipped)
    damage.change(made / "events.jsonl", lambda b: damage.torn(b, 20))
    read = read_events(made)
    assert len(read.events) == len(whole) - 1
    assert not read.torn
    assert any("fused onto another" in words for words in read.skipped)


def session_of(sessions_dir: Path, name: str, case: dict[str, Any]) -> Side:
    """Writes a session whose cells are those of one side of F111."""
    preset = Preset(name="b8t4", algorithm="DDTREE", budget=8, topk=4)
    keys = [CellKey(preset="b8t4", context=c["ctx"], concurrency=c["conc"]) for c in case["cells"]]
    folder = create(sessions_dir, name, describe_host(name))
    with SessionLog(folder) as log:
        log.append(
            ev.SessionStarted(
                t=0.0,
                label=name,
                session=name,
                base_url="http://x",
                model=case["model"],
                presets=(preset,),
                cells=tuple(keys),
            )
        )
        proof = Proof(preset="b8t4", in_effect=True, instance={"server version": case["version"]})
        log.append(ev.PresetProved(t=0.5, proof=proof))
        for t, (key, cell) in enumerate(zip(keys, case["cells"], strict=True), 1):
            if cell["ok"]:
                found = figures(cell["tok_s"], concurrency=key.concurrency)
                log.append(ev.CellEnded(t=t, cell=key, run=key.text, outcome="measured", figures=found))
            else:
                log.append(ev.CellEnded(t=t, cell=key, run=key.text, outcome="failed", reason=cell["error"]))
    return Side(open_session(folder))


def test_f111_matrices_that_do_not_match(tmp_path: Path) -> None:
    a, b = (json.loads((DATA / "F111" / f"{x}.json").read_text()) for x in "ab")
    found: Comparison = compare(session_of(tmp_path, "a", a), session_of(tmp_path, "b", b))
    wanted = expected("F111")
    ratios = {
        f"{c.point.context}/{c.point.concurrency}": m.ratio
        for c in found.cells
        for m in c.metrics
        if m.metric == "throughput_tok_s"
    }
    assert ratios == pytest.approx(wanted["ratios"])
    (mean,) = [s.ratio for s in found.summary if s.metric == "throughput_tok_s"]
    assert mean == pytest.approx(wanted["geomean"], abs=1e-4)
    assert any("32768 x 8" in words and "failed: oom in B" in words for words in found.left_out)
    assert any("8192 x 1" in words and "only in B" in words for words in found.left_out)
    assert len(found.left_out) == 2
    assert [d.what.rpartition(" ")[2] for d in found.conditions] == wanted["listed_differences"]


def test_f108_one_field_of_the_wrong_type(made: Path) -> None:
    damage.change(made / "requests.jsonl", lambda b: b.replace(b'"e2e":0.9', b'"e2e":"fast"', 1))
    table = open_table(made, "requests")
    rows = table.frame.collect()
    assert (rows.height, rows["e2e"].null_count()) == (72, 1)
    assert rows["ttft"].null_count() == 0
    assert any("e2e" in words for words in table.skipped)
