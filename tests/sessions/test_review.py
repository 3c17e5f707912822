from __future__ import annotations

import html
import json
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from loadgen.figures import CellFigures, Mark, MarkKind
from reconfig.presets import Preset, Proof, SettingFound
from sessions.events import CellEnded, CellKey, PresetProved, SessionStarted
from sessions.export import FORMATS, cells_frame, export
from sessions.folder import create, describe_host
from sessions.log import SessionLog
from sessions.logread import read_events, read_for_state, state_from, state_of
from sessions.reduce import reduce_all
from sessions.report import as_html, as_markdown, report_of
from sessions.review import list_sessions, open_session
from sessions.settings import settings_of, settings_words, shown_proof
from sessions.show import print_list, print_session, session_json
from sessions.tables import open_table, scan_requests, schema_of, why_no_parquet, write_parquet
from tests.sessions.made import PRESETS, make_session, truth


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_session(tmp_path / "sessions")


def shown(folder: Path) -> str:
    out = StringIO()
    print_session(open_session(folder), out)
    return out.getvalue()


def test_leaving_out_old_progress_changes_nothing(tmp_path: Path) -> None:
    folder = make_session(tmp_path, progress=40)
    every = state_from(folder, read_events(folder))
    fewer = read_for_state(folder)
    assert len(fewer.events) < len(read_events(folder).events) / 2
    assert state_from(folder, fewer) == every == state_of(folder)
    assert len(every.history) == 240
    assert every.gpus is not None
    assert len(every.gpu_history) == 108 or len(every.gpu_history) == 120


def test_state_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    folder = make_session(tmp_path, last_cells=5, end=False, progress=7)
    session = open_session(folder)
    assert session.status == "interrupted"
    assert session.state == state_from(folder, read_events(folder))
    running = [c for c in session.state.cells.values() if c.status == "running"]
    assert len(running) == 1
    assert running[0].progress is not None
    assert running[0].progress.started == 7


def test_a_stopped_session_and_the_list(tmp_path: Path) -> None:
    make_session(tmp_path, "first", last_cells=3)
    make_session(tmp_path, "second", end=False)
    (tmp_path / "no-session").mkdir()
    listed = list_sessions(tmp_path)
    assert [(s.label, s.status, s.cells_done, s.cells) for s in listed] == [
        ("second", "interrupted", 36, 36),
        ("first", "stopped", 3, 36),
    ]
    out = StringIO()
    print_list(listed, tmp_path, out)
    assert "interrupted" in out.getvalue()
    assert "3/36" in out.getvalue()


def test_a_session_without_session_json_is_still_read(folder: Path) -> None:
    (folder / "session.json").unlink()
    session = open_session(folder)
    assert session.info is None
    assert session.state.done_cells == 36
    assert "session.json" in shown(folder)


def test_tables_say_what_was_measured(tmp_path: Path) -> None:
    def marks(key: CellKey) -> tuple[Mark, ...]:
        if (key.preset, key.context, key.concurrency) != ("b8t4-w2048", 4096, 8):
            return ()
        return (Mark(MarkKind.UNDER_RUN, "ran 5 of 8", 5.0, 7.2),)

    folder = make_session(
        tmp_path, speed=lambda p, x, c: None if (p, x) == ("none", 4096) else truth(p, x, c), noise=0.0, marks=marks
    )
    text = shown(folder)
    assert "SIMULATED" in text
    assert "30 of 36 cells measured" in text
    assert "none 4096 x 1 failed: out of memory" in text
    assert f"{truth('b8t4-w2048', 1024, 1):.1f} ±0.0" in text
    assert "under-run: b8t4-w2048 4096 x 8: ran 5 of 8" in text
    assert "hf_secret" not in text
    assert text.count("15/16 identical") == 2
    assert "16/16 identical" not in text  # the reference has nothing to be identical to
    assert "suspect the server" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_json_keeps_its_contract(folder: Path) -> None:
    session = open_session(folder)
    tree = session_json(session.state, folder, info=session.info, skipped=session.skipped)
    tree = json.loads(msgspec.json.encode(tree))
    assert list(tree) == ["schema", "session", "presets", "cells", "evals", "lossless"]
    assert tree["schema"] == 1
    assert set(tree["presets"][0]) >= {"name", "settings", "in_effect", "proof"}
    cell = tree["cells"][0]
    assert set(cell) >= {
        *("preset", "context", "concurrency", "temperature", "repetition", "prompt_tokens_mean", "throughput_tok_s"),
        *("throughput_ci95", "whole_run_throughput_tok_s", "decode_tok_s", "ttft_s", "tpot_s", "e2e_s", "chunk_gap_s"),
        *("acceptance_length", "acceptance_source", "accepted_histogram", "effective_concurrency", "output_tokens"),
        *("steady_s", "requests", "cached_token_share", "energy_j_per_tok", "gpu_memory_peak_bytes", "client", "marks"),
    }
    assert len(cell["throughput_ci95"]) == 2
    assert set(cell["decode_tok_s"]) >= {"p50", "p90", "p99"}
    assert cell["requests"] == {"valid": 24, "failed": {}}
    assert cell["acceptance_length"] is None  # no speculation: absent, never 0
    assert tree["evals"][0]["passed"] == 5
    assert len(tree["evals"][0]["answers"]) == 5
    assert [found["identical"] for found in tree["lossless"]] == [16, 15, 15]
    assert b"hf_secret" not in msgspec.json.encode(tree)


def test_few_samples_are_no_doubt_about_the_throughput(tmp_path: Path) -> None:
    few = Mark(MarkKind.FEW_SAMPLES, "24 requests: p99 is the maximum", 24.0, 100.0)

    def marks(key: CellKey) -> tuple[Mark, ...]:
        return (few, Mark(MarkKind.QUEUED, "3 waited", 3.0)) if key.concurrency == 8 else (few,)

    folder = make_session(tmp_path / "sessions", marks=marks)
    lines = [line.split() for line in shown(folder).splitlines()]
    lone = [line for line in lines if line[:3] == ["1024", "x", "1"] and "72/0" in line]
    queued = [line for line in lines if line[:3] == ["1024", "x", "8"] and "72/0" in line]
    assert len(lone) == len(queued) == 3
    assert all("*" not in line and line[-1] == "few-samples" for line in lone)
    assert all("*" in line and "few-samples" in line for line in queued)
    assert "few-samples: " not in shown(folder)
    cells = [line for line in as_markdown(report_of(open_session(folder))).splitlines() if "| 72/0 |" in line]
    assert (
        sum("| few-samples, queued |" in line for line in cells) == sum("| few-samples |" in line for line in cells) > 0
    )


KEYED = Preset(
    name="b8t4-w2048",
    algorithm="DDTREE",
    budget=8,
    topk=4,
    flags=(
        "--api-key",
        "sk-live-1",
        "--admin-api-key=sk-live-2",
        "--hf-token",
        "--port",
        "1",
        "--x",
        '{"api_key": "sk-live-3"}',
    ),
    env={"HF_TOKEN": "sk-live-4", "PLACE": "at sk-live-4"},
)
PROVED = Proof(
    preset=KEYED.name,
    in_effect=True,
    settings=(
        SettingFound("--api-key", "sk-live-1", "sk-live-1", "server_info", ok=True),
        SettingFound("--port", "1", "1", "server_info", ok=True),
    ),
)


def test_keys_among_flags_are_masked() -> None:
    flags = settings_of(KEYED)["flags"]
    assert flags == ["--api-key", "***", "--admin-api-key=***", "--hf-token", "--port", "1", "--x", '{"api_key": ***}']
    assert settings_words(KEYED).endswith("HF_TOKEN=*** PLACE=at ***")
    assert "--api-key *** --admin-api-key=*** --hf-token --port 1" in settings_words(KEYED)
    assert [(s.asked, s.found) for s in shown_proof(KEYED, PROVED).settings] == [("***", "***"), ("1", "1")]


def test_no_key_of_a_preset_comes_out_anywhere(tmp_path: Path) -> None:
    """A log of another program's making may hold one, though a sweep file with one is refused."""
    folder = make_session(tmp_path / "sessions", presets=(PRESETS[0], KEYED))
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes() + msgspec.json.encode(PresetProved(t=1e4, proof=PROVED)) + b"\n")
    session = open_session(folder)
    assert session.state.presets[KEYED.name].proof == PROVED
    export(session, tmp_path / "out", "json")
    told = [shown(folder), as_html(report_of(session)), as_markdown(report_of(session))]
    told += [p.read_text() for p in (tmp_path / "out").iterdir()]
    assert [text[max(0, at - 80) : at + 9] for text in told if (at := text.find("sk-live")) >= 0] == []
    assert "--api-key ***" in html.unescape(told[1])


def test_a_cell_without_figures_has_nulls(tmp_path: Path) -> None:
    folder = make_session(tmp_path, last_cells=1)
    tree = session_json(open_session(folder).state, folder)
    waiting = tree["cells"][-1]
    assert (waiting["status"], waiting["throughput_tok_s"], waiting["ttft_s"]["p50"]) == ("waiting", None, None)


def test_schema_follows_the_types(folder: Path) -> None:
    requests = scan_requests(folder).collect()
    assert requests.height == 72
    assert requests.schema["chunks"] == pl.List(pl.List(pl.Float64))
    assert requests["n_out"].sum() == 72 * 20
    assert schema_of(CellFigures)["accepted_histogram"] == pl.List(pl.Int64)
    gpus = open_table(folder, "gpus").frame.collect()
    assert gpus["gpus"][0][7]["power_w"] > 400


def test_parquet_says_the_same_and_is_used(folder: Path) -> None:
    before = {n: open_table(folder, n).frame.collect() for n in ("requests", "gpus", "server", "evals")}
    assert write_parquet(folder) == []
    for name, frame in before.items():
        assert why_no_parquet(folder / f"{name}.parquet") is None
        assert open_table(folder, name).frame.collect().equals(frame)  # type: ignore[arg-type]
    (folder / "requests.jsonl").rename(folder / "away")
    assert scan_requests(folder).collect().equals(before["requests"])
    (folder / "away").rename(folder / "requests.jsonl")
    with (folder / "requests.jsonl").open("a") as file:
        file.write('{"t": 1e6, "rid": "later"}\n')
    assert scan_requests(folder).collect()["rid"][-1] == "later"


def test_an_absent_table_is_empty(folder: Path) -> None:
    (folder / "server.jsonl").unlink()
    assert open_table(folder, "server").frame.collect().height == 0


@pytest.mark.parametrize("form", FORMATS)
def test_export(folder: Path, tmp_path: Path, form: str) -> None:
    done = export(open_session(folder), tmp_path / "out", form)  # type: ignore[arg-type]
    assert done.skipped == ()
    readers: dict[str, Any] = {"parquet": pl.read_parquet, "csv": pl.read_csv, "json": pl.read_ndjson}
    read = readers[form]
    tables = {p.stem: read(p) for p in done.files if p.stem != "everything"}
    assert {n: t.height for n, t in tables.items()} == {
        "cells": 36,
        "requests": 72,
        "gpus": 108 * 8,
        "server": 108,
        "evals": 15,
    }
    assert tables["cells"]["throughput_tok_s"].null_count() == 0
    assert tables["requests"]["chunks"][0] is not None
    document = json.loads((tmp_path / "out" / "everything.json").read_bytes())
    assert len(document["cells"]) == 36
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]


def test_cells_as_a_frame_of_an_empty_session(folder: Path) -> None:
    assert cells_frame(reduce_all([])).height == 0
    frame = cells_frame(open_session(folder).state)
    assert frame.filter(pl.col("preset") == "none")["acceptance_length"].null_count() == 12
    assert frame["ttft_s_p99"].dtype == pl.Float64


def test_settings_in_words() -> None:
    assert settings_words(PRESETS[0]) == "NONE"
    assert settings_words(PRESETS[1]) == "DDTREE budget 8 topk 4 window 2048"
    assert settings_words(PRESETS[2]).endswith("HF_TOKEN=***")


def test_few_fields_of_each_gpu_from_the_log_and_from_parquet(folder: Path) -> None:
    fields = ("index", "power_w")
    from_log = open_table(folder, "gpus", of_gpus=fields).frame.select("t", "gpus").collect()
    write_parquet(folder)
    from_parquet = open_table(folder, "gpus", of_gpus=fields).frame.select("t", "gpus").collect()
    assert from_log["gpus"][0].to_list()[7] == {"index": 7, "power_w": pytest.approx(455.0)}
    assert from_parquet.equals(from_log)


def test_an_enormous_reason_is_shortened_in_tables_and_whole_in_json(tmp_path: Path) -> None:
    reason = "CUDA error " + "x" * 200_000
    key = CellKey(preset="none", context=60, concurrency=1)
    folder = create(tmp_path, "long", describe_host("long"))
    with SessionLog(folder) as log:
        log.append(
            SessionStarted(
                t=0.0,
                label="l",
                session="s",
                base_url="",
                model="",
                presets=PRESETS[:1],
                cells=(key,),
                reference="none",
            )
        )
        log.append(CellEnded(t=1.0, cell=key, run=key.text, outcome="failed", reason=reason))
    assert len(shown(folder)) < 5000
    assert "(200,011 characters)" in shown(folder)
    assert session_json(open_session(folder).state, folder)["cells"][0]["reason"] == reason
