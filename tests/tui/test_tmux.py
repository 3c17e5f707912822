"""The screens in real terminals: tmux, and tmux through a real sshd."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sessions.folder import folders
from sessions.log import lock_holder
from sessions.review import open_session
from tests.needs import needs
from tests.tui.terminals import Tmux, sshd

SPECTOP = str(Path(sys.executable).with_name("spectop"))
DEMO = f"{SPECTOP} demo --sim-speed 2 --sim-load-seconds 2"

pytestmark = [pytest.mark.tmux, pytest.mark.timeout(240)]


def environment(tmp_path: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TMUX", "SSH_", "LC_")) and k != "NO_COLOR"}
    return {**env, "LANG": "C.UTF-8", "SPECTOP_SESSIONS_DIR": str(tmp_path / "sessions"), "PS1": "$ ", "ENV": ""}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Tmux]]:
    """Terminals that are closed at the end, and engines that are ended with them."""
    opened: list[Tmux] = []
    yield opened
    for terminal in opened:
        terminal.close()
    for folder in folders(tmp_path / "sessions"):
        end_engine(folder)


def end_engine(folder: Path) -> None:
    holder = lock_holder(folder)
    if holder:
        engine = psutil.Process(holder)
        family = engine.children(recursive=True)
        engine.terminate()
        psutil.wait_procs([engine, *family], timeout=20)


def screens_of(terminal: Tmux) -> list[psutil.Process]:
    return [
        p for p in psutil.Process(terminal.pane_pid()).children(recursive=True) if "spectop" in " ".join(p.cmdline())
    ]


def far_screens() -> list[psutil.Process]:
    """The screens that a sshd of this test started: not children of the terminal's shell."""
    sshds = [p for p in psutil.Process().children() if p.name() == "sshd"]
    found = [c for p in sshds for c in p.children(recursive=True)]
    return [p for p in found if "spectop" in " ".join(p.cmdline()[:2])]


def wait_until(condition: object, what: str) -> None:
    end = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.05)


@needs("tmux")
@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
def test_start_watch_switch_detach_attach_and_stop(tmp_path: Path, started: list[Tmux], size: tuple[int, int]) -> None:
    terminal = Tmux(tmp_path, size, environment(tmp_path))
    started.append(terminal)
    terminal.type(DEMO)
    terminal.wait_for("SIMULATED", "switching to b8t4-wnone")
    terminal.wait_for("in effect", "measuring 60 ×", deadline_s=90)
    terminal.wait_for("cell 3/12", deadline_s=90)
    shown = terminal.text().splitlines()
    assert "±" in "\n".join(shown)
    assert len(shown) == size[1]
    terminal.press("2")
    terminal.wait_for("Switch the server to b8t4-w2048?", "Restarts the server")
    terminal.press("y")
    terminal.wait_for("switching to b8t4-w2048")
    terminal.wait_for("b8t4-w2048  ● in effect", "60 ×", deadline_s=90)
    terminal.press("Enter")
    terminal.wait_for("tokens ×", "users")
    terminal.press("Escape")
    terminal.wait_for("q quit")
    terminal.press("d")
    terminal.wait_for("$", "attach", gone="q quit")
    (folder,) = folders(tmp_path / "sessions")
    assert lock_holder(folder) is not None
    terminal.type(f"clear; {SPECTOP} attach last")
    terminal.wait_for("SIMULATED", "q quit")
    terminal.press("x")
    terminal.wait_for("Stop the sweep?")
    terminal.press("y")
    terminal.wait_for("stopped", deadline_s=90)
    wait_until(lambda: lock_holder(folder) is None, "the engine ended")
    terminal.press("q")
    terminal.wait_for("$", gone="q quit")
    assert open_session(folder).state.status == "stopped"


@needs("tmux")
def test_a_finished_sweep_is_compared_and_left(tmp_path: Path, started: list[Tmux]) -> None:
    terminal = Tmux(tmp_path, (120, 40), environment(tmp_path))
    started.append(terminal)
    log = tmp_path / "log.txt"
    terminal.type(f"{SPECTOP} demo --headless --sim-speed 8 --sim-load-seconds 0.5 > {log}; {SPECTOP} view last")
    terminal.wait_for("finished: 12 of 12", deadline_s=120)
    terminal.press("C")
    terminal.wait_for("with which preset?")
    terminal.press("1")
    terminal.wait_for("over all cells that count")
    terminal.press("Escape")
    terminal.wait_for("q quit")
    terminal.press("R")
    terminal.wait_for("policy")
    terminal.press("Escape")
    terminal.wait_for("q quit")
    terminal.press("q")
    terminal.wait_for("$", gone="q quit")


@needs("tmux")
def test_resizing_suspending_and_a_vanished_terminal_leave_nothing_behind(tmp_path: Path, started: list[Tmux]) -> None:
    terminal = Tmux(tmp_path, (120, 40), environment(tmp_path))
    started.append(terminal)
    terminal.type(DEMO)
    terminal.wait_for("measuring", deadline_s=90)
    for i in range(40):
        terminal.resize(60 + i * 37 % 100, 14 + i * 13 % 40)
    terminal.resize(40, 8)
    terminal.wait_for("too small")
    terminal.resize(100, 30)
    terminal.wait_for("SIMULATED", "q quit")
    terminal.press("C-z")
    terminal.wait_for("$", gone="q quit")
    terminal.type("fg")
    terminal.wait_for("SIMULATED", "q quit")
    terminal.press("m")
    terminal.wait_for("t/s user")
    watching = screens_of(terminal)
    assert watching
    (folder,) = folders(tmp_path / "sessions")
    terminal.close()
    _, alive = psutil.wait_procs(watching, timeout=20)
    assert alive == []
    assert lock_holder(folder) is not None


@needs("tmux")
def test_with_the_hang_up_ignored_the_loss_of_the_terminal_is_found_out(tmp_path: Path, started: list[Tmux]) -> None:
    terminal = Tmux(tmp_path, (100, 30), environment(tmp_path))
    started.append(terminal)
    terminal.type(f"trap '' HUP; {DEMO}")
    terminal.wait_for("SIMULATED", "q quit")
    watching = screens_of(terminal)
    assert watching
    terminal.close()
    _, alive = psutil.wait_procs(watching, timeout=30)
    assert alive == []


@needs("tmux")
def test_a_terminated_screen_gives_the_terminal_back(tmp_path: Path, started: list[Tmux]) -> None:
    terminal = Tmux(tmp_path, (100, 30), environment(tmp_path))
    started.append(terminal)
    terminal.type(DEMO)
    terminal.wait_for("SIMULATED", "q quit")
    for process in screens_of(terminal):
        process.send_signal(signal.SIGTERM)
    terminal.wait_for("$", gone="q quit")
    terminal.type("echo still $((40 + 2)) here")
    terminal.wait_for("still 42 here")


@needs("tmux", "sshd")
@pytest.mark.sshd
def test_through_a_real_sshd_the_sweep_survives_the_connection(tmp_path: Path, started: list[Tmux]) -> None:
    with sshd(tmp_path) as ssh:
        terminal = Tmux(tmp_path, (100, 30), environment(tmp_path))
        started.append(terminal)
        words = f"SPECTOP_SESSIONS_DIR={tmp_path / 'sessions'} LANG=C.UTF-8"
        terminal.type(shlex.join([*ssh, f"env {words} {DEMO}"]))
        terminal.wait_for("SIMULATED", "measuring", deadline_s=90)
        terminal.press("m")
        terminal.wait_for("t/s user")
        (folder,) = folders(tmp_path / "sessions")
        far = far_screens()
        assert far
        terminal.close()
        _, alive = psutil.wait_procs(far, timeout=30)
        assert alive == []
        assert lock_holder(folder) is not None
        again = Tmux(tmp_path / "ssh", (100, 30), environment(tmp_path))
        started.append(again)
        again.type(shlex.join([*ssh, f"env {words} {SPECTOP} attach last"]))
        again.wait_for("SIMULATED", "cell", "q quit")
        again.press("2")
        again.wait_for("Switch the server to b8t4-w2048?")
        again.press("n")
        again.press("d")
        again.wait_for("the sweep goes on")
        assert lock_holder(folder) is not None
