"""Field cases of kind C through the command `spectop judge`, as an operator repeats a verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs
from tui.main import run_command

DATA = Path(__file__).parent / "data"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def expectations(case: str, file: str, key: str) -> set[str]:
    expected = read(DATA / case / "expected.json")
    if key:
        return {expected["verdicts"][key]}
    if file == "answer_child.json":
        return set(expected["child"]["verdict_in"])
    if file == "answer_guarded.json":
        return {expected["guarded"]["verdict"]}
    if file == "answer_unguarded.json":
        return {each["verdict"] for each in expected["unguarded"]["accept_any_of"]}
    return set(expected.get("verdict_in", [expected.get("verdict")]))


def answers() -> list[tuple[str, str, str]]:
    """(case, file, key in the file or "") of every saved answer that has an expected verdict."""
    found = []
    for folder in sorted(DATA.iterdir()):
        if not (folder / "case.json").exists() or read(folder / "case.json")["kind"] != "C":
            continue
        for path in sorted(folder.glob("answer*.json")):
            saved = read(path)
            if "content" not in saved:
                found += [(folder.name, path.name, key) for key in saved]
            elif "verdicts" not in read(folder / "expected.json"):
                found.append((folder.name, path.name, ""))
    return found


ANSWERS = answers()


@needs("bwrap")
@pytest.mark.parametrize(("case", "file", "key"), ANSWERS, ids=["-".join(filter(None, each)) for each in ANSWERS])
def test_judge(case: str, file: str, key: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = DATA / case / file
    if key:
        path = tmp_path / file
        path.write_text(json.dumps(read(DATA / case / file)[key]))
    entry_point = read(DATA / case / "task.json")["entry_point"]
    arguments = ["judge", str(path), "--tests", str(DATA / case / "tests.py"), "--entry-point", entry_point]
    status = run_command([*arguments, "--json", "--timeout", "3"])
    judgement = json.loads(capfdbinary.readouterr().out)
    assert judgement["verdict"] in expectations(case, file, key), judgement
    assert judgement["verdict"] not in read(DATA / case / "expected.json").get("must_not", [])
    assert status == (0 if judgement["verdict"] == "pass" else 1)


def test_all_cases_of_the_kind_are_here() -> None:
    assert len({case for case, _, _ in ANSWERS}) == 18


@needs("bwrap")
def test_the_command_as_a_process(tmp_path: Path) -> None:
    case = DATA / "F46"
    command = [sys.executable, "-c", "from tui.main import main; main()", "judge", str(case / "answer.json")]
    command += ["--tests", str(case / "tests.py"), "--entry-point", "add"]
    good = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert good.returncode == 0, good.stderr
    assert "pass" in good.stdout
    assert "</think>" in good.stdout
    bad = tmp_path / "answer.json"
    bad.write_text("{}")
    command[4] = str(bad)
    refused = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert refused.returncode != 0
    assert "the key content is missing" in refused.stderr
    assert "Traceback" not in refused.stderr
