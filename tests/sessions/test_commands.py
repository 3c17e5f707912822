"""The commands that look at sessions, as they are typed: output, errors in words, exit statuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sessions.made import make_session, truth
from tui.main import run_command

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECTOP_SESSIONS_DIR", str(tmp_path / "sessions"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path / "sessions"


@pytest.fixture
def run(root: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def typed(*arguments: str) -> tuple[int, str, str]:
        status = run_command(list(arguments))
        out, err = capsys.readouterr()
        return status, out, err

    return typed


def test_show_and_sessions(root: Path, run: Run) -> None:
    folder = make_session(root, "night")
    status, out, _ = run("show")
    assert status == 0
    assert "36 of 36 cells measured  SIMULATED" in out
    status, out, _ = run("show", "night", "--json")
    assert status == 0
    assert json.loads(out)["session"]["name"] == folder.name
    status, out, _ = run("sessions")
    assert folder.name in out
    status, out, _ = run("sessions", "--json")
    assert [s["status"] for s in json.loads(out)["sessions"]] == ["finished"]
    elsewhere = make_session(root.parent / "elsewhere", "other", repeats=1)
    status, out, _ = run("show", "--sessions-dir", str(root.parent / "elsewhere"))
    assert "12 of 12 cells measured" in out
    status, out, _ = run("show", str(elsewhere))
    assert "12 of 12 cells measured" in out


def test_errors_are_words_and_statuses(root: Path, run: Run, tmp_path: Path) -> None:
    status, out, err = run("show")
    assert (status, out) == (2, "")
    assert err.startswith("spectop: no session in")
    make_session(root, "one")
    make_session(root, "two")
    status, _, err = run("show", "three")
    assert status == 2
    assert "one" in err
    assert "Traceback" not in err
    assert run("report", "one", "-o", str(tmp_path / "r.pdf"))[0] == 2
    assert run("compare", "one", "two", "--fail-worse", "much")[0] == 2
    assert run("recommend", "one", "--weight", "1x1=1")[0] == 2
    assert run("recommend", "one", "--by", "luck")[0] == 2
    assert run("compare", "one")[0] == 2
    (root / "file").write_text("x")
    assert run("export", "one", "-o", str(root / "file"))[0] == 2


def test_compare_gives_a_status_to_scripts(root: Path, run: Run) -> None:
    make_session(root, "base", seed=1)
    make_session(root, "again", seed=2)
    make_session(root, "slower", seed=3, speed=lambda p, x, c: truth(p, x, c) * 0.9)
    status, out, _ = run("compare", "base", "again", "--fail-worse", "5%")
    assert status == 0
    assert "same" in out
    assert run("compare", "base", "slower")[0] == 0
    status, out, _ = run("compare", "base", "slower", "--fail-worse", "5%")
    assert status == 1
    assert "worse" in out
    assert run("compare", "base", "slower", "--fail-worse", "0.3")[0] == 0
    status, out, _ = run("compare", "base:none", "slower:b8t4-w2048", "--json")
    assert status == 0
    tree = json.loads(out)
    assert tree["schema"] == 1
    assert tree["counts"] == {"better": 4}
    make_session(root, "unborn", last_cells=0)
    status, _, err = run("compare", "base", "unborn", "--fail-worse", "5%")
    assert status == 1
    assert "can't be answered" in err


def test_recommend(root: Path, run: Run) -> None:
    make_session(root, "night")
    status, out, _ = run("recommend", "--weight", "1024x1=20", "--weight", "4096x1=20")
    assert status == 0
    assert out.startswith("run b16t4-w2048")
    status, out, _ = run("recommend", "--json", "--by", "per-user")
    tree = json.loads(out)
    assert (tree["by"], tree["overall"]) == ("per-user", "b8t4-w2048")
    assert {c["preset"] for c in tree["choices"]} == {"b8t4-w2048", "b16t4-w2048"}


def test_report_and_export(root: Path, run: Run, tmp_path: Path) -> None:
    make_session(root, "night")
    status, out, _ = run("report", "night", "-o", str(tmp_path / "night.md"))
    assert (status, out.strip()) == (0, str(tmp_path / "night.md"))
    assert (tmp_path / "night.md").read_text().startswith("# night")
    status, out, _ = run("export", "night", "-o", str(tmp_path / "out"), "--format", "csv")
    assert status == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(Path(x).name for x in out.split())


def test_view_without_a_terminal_prints_the_tables(root: Path, run: Run) -> None:
    make_session(root, "night")
    status, out, err = run("view", "night")
    assert status == 0
    assert "36 of 36 cells measured" in out
    assert "no terminal" in err


@pytest.mark.parametrize("command", ["show", "sessions", "compare", "recommend", "report", "export", "view"])
def test_help(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"Usage: spectop {command}" in out
    assert "sessions-dir" in out
