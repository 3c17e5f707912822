"""Kind G, the other half: names, files that others write or edit, wrong shapes, matrices that do not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reconfig.presets import Preset, Proof
from sessions import events as ev
from sessions.compare import Comparison, Side, compare
from sessions.errors import SessionError, SessionNotFound
from sessions.events import CellKey
from sessions.folder import create, describe_host, find
from sessions.log import SessionLog
from sessions.logread import read_events
from sessions.replay import Replay
from sessions.review import list_sessions, open_session
from sessions.tables import open_table, write_parquet
from tests.cases import damage
from tests.cases.saved import DATA, Request, expected, requests_in, sample, tables_of
from tests.sessions.made import figures, make_session


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
