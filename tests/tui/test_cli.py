"""The command line as a script sees it: exit statuses, words on standard error, machine-readable output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sessions.folder import folders
from sessions.log import lock_holder
from sessions.logread import state_of
from tests.sessions.engines import DDTREE, free_port, sweep_on_simserver
from tests.sessions.made import make_session
from tests.sessions.terminals import wait_for
from tui.main import COMMANDS

SPECTOP = Path(sys.executable).with_name("spectop")


def spectop(*words: str, sessions: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line without a terminal."""
    env = {**os.environ, **more}
    if sessions is not None:
        env["SPECTOP_SESSIONS_DIR"] = str(sessions)
    return subprocess.run(
        [SPECTOP, *words], capture_output=True, text=True, env=env, timeout=110, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demonstration, run once, much faster than real."""
    sessions = tmp_path_factory.mktemp("sessions")
    return spectop("demo", "--sim-speed", "8", "--sim-load-seconds", "0.5", sessions=sessions), sessions


def test_the_demo_ends_well_with_tables_for_every_cell_and_the_word_simulated(demo):
    done, sessions = demo
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = folders(sessions)
    assert str(folder) in done.stdout and "SIMULATED" in done.stdout
    assert "12 of 12 cells measured" in done.stdout
    for cell in ("60 x 1", "60 x 4", "60 x 8", "2560 x 1", "2560 x 4", "2560 x 8"):
        assert done.stdout.count(cell) >= 2
    assert "tok/s" in done.stdout and "accept" in done.stdout and "5/5" in done.stdout


def test_show_json_has_every_key_of_the_contract(demo):
    done = spectop("show", "last", "--json", sessions=demo[1])
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert set(shown) >= {"schema", "session", "presets", "cells", "evals", "lossless"} and shown["schema"] == 1
    assert len(shown["cells"]) == 12 and len(shown["presets"]) == 2 and len(shown["evals"]) == 2
    keys = [
        "preset",
        "context",
        "concurrency",
        "temperature",
        "repetition",
        "prompt_tokens_mean",
        "throughput_tok_s",
        "throughput_ci95",
        "whole_run_throughput_tok_s",
        "decode_tok_s",
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "chunk_gap_s",
        "acceptance_length",
        "acceptance_source",
        "accepted_histogram",
        "effective_concurrency",
        "output_tokens",
        "steady_s",
        "requests",
        "cached_token_share",
        "energy_j_per_tok",
        "gpu_memory_peak_bytes",
        "client",
        "marks",
    ]
    for cell in shown["cells"]:
        assert set(cell) >= set(keys)
        assert set(cell["ttft_s"]) >= {"p50", "p90", "p99"} and set(cell["requests"]) >= {"valid", "failed"}
        assert set(cell["client"]) >= {"loop_lag_p99_s", "cpu_share"}
        assert cell["throughput_tok_s"] > 0 and cell["acceptance_length"] > 1
        assert len(cell["throughput_ci95"]) == 2 and len(cell["gpu_memory_peak_bytes"]) == 8
    for preset in shown["presets"]:
        assert set(preset) >= {"name", "settings", "in_effect", "proof"} and preset["in_effect"] is True


def test_an_ignored_window_is_told_and_gives_status_one(tmp_path: Path):
    done = spectop(
        "demo", "--sim-speed", "16", "--sim-load-seconds", "0.2", "--sim-fault", "ignore-window", sessions=tmp_path
    )
    assert done.returncode == 1
    assert "6 of 12 cells measured" in done.stdout
    (told,) = [line for line in done.stdout.splitlines() if "b8t4-w2048 is not in effect" in line]
    assert "2048" in told and "None" in told
    shown = json.loads(spectop("show", "last", "--json", sessions=tmp_path).stdout)
    lost = [c for c in shown["cells"] if c["preset"] == "b8t4-w2048"]
    assert len(lost) == 6 and all(c["throughput_tok_s"] is None and c["status"] == "not-in-effect" for c in lost)


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGINT, signal.SIGTERM)])
def test_an_interrupt_stops_the_sweep_even_when_another_follows_at_once(signals: tuple[int, ...], tmp_path: Path):
    """The engine is told before anybody leaves: words that say "stopping" must be true."""
    words = [SPECTOP, "demo", "--headless", "--sim-load-seconds", "0.2"]
    env = {**os.environ, "SPECTOP_SESSIONS_DIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env, stdin=subprocess.DEVNULL) as demo:
        assert demo.stdout is not None
        assert any("is in effect" in line for line in demo.stdout)
        for number in signals:
            demo.send_signal(number)
        said = demo.stdout.read()
    assert demo.returncode == 130
    (folder,) = folders(tmp_path)
    assert "stopping; everything measured so far is kept" in said
    assert ("is being stopped" in said) == (len(signals) == 2)
    wait_for(lambda: lock_holder(folder) is None, "the engine ends")
    assert state_of(folder).status == "stopped"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str):
    done = spectop(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: spectop {command}")


def test_help_names_every_command_and_version_is_the_packages():
    listed = spectop("--help").stdout
    assert all(name in listed for name in COMMANDS)
    assert spectop("--version").stdout.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("nonsense",), 2, "nonsense"),
        (("run",), 2, "no sweep file was named"),
        (("run", "/nowhere/sweep.toml"), 2, "/nowhere/sweep.toml: cannot be read"),
        (("show", "nothing-like-it"), 2, "no session"),
        (("bench", "--base-url", "http://127.0.0.1:9"), 1, "127.0.0.1:9"),
        (("bench", "--base-url", "http://127.0.0.1:9", "--rate", "3"), 2, "--rate needs --arrival"),
        (("bench", "--base-url", "http://127.0.0.1:9", "--contexts", "60", "60"), 2, "a value stands twice"),
        (("init", "--base-url", "http://127.0.0.1:9", "-o", "/tmp/never-written.toml"), 1, "nothing answers"),
        (("judge", "/nowhere.json", "--tests", "/nowhere.py"), 1, "/nowhere.json"),
        (("ctl", "last", "dance"), 2, "dance"),
    ],
)
def test_wrong_use_is_told_in_words(words: tuple[str, ...], status: int, told: str, tmp_path: Path):
    done = spectop(*words, sessions=tmp_path)
    assert done.returncode == status
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_ctl_and_attach_say_that_nothing_runs(tmp_path: Path):
    make_session(tmp_path)
    for words in (("ctl", "last", "pause"), ("attach", "last")):
        done = spectop(*words, sessions=tmp_path)
        assert done.returncode == 1 and "no engine runs" in done.stderr and "spectop view" in done.stderr


def test_bench_measures_a_running_server_and_writes_its_file(tmp_path: Path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "simserver",
        "--port",
        str(port),
        "--model-path",
        "sim/K",
        "--served-model-name",
        "kimi",
    ]
    command += [
        "--speculative-algorithm",
        "DDTREE",
        "--speculative-ddtree-budget",
        "8",
        "--speculative-ddtree-topk",
        "4",
    ]
    command += ["--speculative-draft-window-size", "2048", "--sim-load-seconds", "0", "--sim-speed", "8"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if "ready to roll" in line:
                break
        sweep_file = tmp_path / "found.toml"
        made = spectop("init", "--base-url", f"http://127.0.0.1:{port}", "-o", str(sweep_file))
        assert made.returncode == 0 and "budget = 8" in sweep_file.read_text()
        checked = spectop("check", str(sweep_file), sessions=tmp_path)
        assert checked.returncode == 0 and "0 wrong" in checked.stdout
        out = tmp_path / "b8t4.json"
        label = "budget=8 topk=4 window=2048"
        words = [
            "bench",
            "--base-url",
            f"http://127.0.0.1:{port}",
            "--label",
            label,
            "--coding",
            "--contexts",
            "60",
            "1024",
        ]
        words += ["--concurrency", "1", "4", "--max-tokens", "64", "--out", str(out)]
        done = spectop(*words, sessions=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        results = json.loads(out.read_text())
        assert [(c["context"], c["concurrency"]) for c in results["cells"]] == [(60, 1), (60, 4), (1024, 1), (1024, 4)]
        assert results["session"]["label"] == label and results["session"]["simulated"] is True
        (preset,) = results["presets"]
        assert preset["settings"]["budget"] == 8 and preset["settings"]["window"] == 2048
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def test_a_sweep_file_runs_headless_and_its_plan_can_be_seen_before(tmp_path: Path):
    sweep = sweep_on_simserver(DDTREE)
    manager = sweep.server.manager
    text = f"""
label = "from-file"
leave = "stopped"
[server]
base_url = "{sweep.server.base_url}"
[server.manager]
kind = "process"
command = {json.dumps(manager.command)}
env = {{ SGL_FORCE_SHUTDOWN = "1" }}
[flags]
vocabulary = "ddtree"
[[presets]]
algorithm = "DDTREE"
budget = 8
topk = 4
[matrix]
contexts = [60]
concurrency = [2]
max_tokens = 32
requests_per_slot = 2
"""
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    plan = spectop("run", str(path), "--dry-run", sessions=tmp_path)
    assert plan.returncode == 0 and "b8t4" in plan.stdout and "60 x 2" in plan.stdout
    assert not folders(tmp_path)
    done = spectop("run", str(path), "--label", "renamed", sessions=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = folders(tmp_path)
    assert folder.name.endswith("renamed")
    again = spectop("run", "--resume", "last", sessions=tmp_path)
    assert again.returncode == 0 and "1 of 1 cells measured" in again.stdout
