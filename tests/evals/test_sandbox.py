"""The sandbox as its callers see it: levels, limits, refusal, several runs at once, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from evals import confinement, running, syscall_filter
from evals.errors import SandboxRefusedError
from evals.program import Program, RunResult
from evals.sandbox import Sandbox, SandboxLevel, probe_level, why_not
from tests.needs import needs

NONE = SandboxLevel(name="none", words="no sandbox", why_not_higher=("bubblewrap is not installed",))


def program(code: str, tests: str = "assert add(1, 2) == 3\n", entry_point: str = "add") -> Program:
    return Program(code=code, tests=tests, entry_point=entry_point)


def run(code: str, tests: str = "assert add(1, 2) == 3\n", timeout_s: float = 5.0) -> RunResult:
    with Sandbox(parallel=1) as sandbox:
        return sandbox.run_blocking(program(code, tests), timeout_s=timeout_s)


@needs("bwrap")
def test_the_full_level_is_found() -> None:
    level = probe_level()
    assert level.name == "bwrap"
    assert level.safe
    assert "seccomp" in level.words and "65534" in level.words
    assert level.why_not_higher == ()


def test_the_next_level_is_found_where_namespaces_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(confinement.shutil, "which", lambda name: None if name == "bwrap" else real(name))
    level = probe_level()
    assert level.name == "landlock"
    assert level.safe
    assert "bubblewrap is not installed" in level.why_not_higher[0]


def test_a_level_that_does_not_start_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2\nexit 1\n")
    broken.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    level = probe_level()
    assert level.name == "landlock"
    assert any("Creating new namespace failed" in why or "Permission denied" in why for why in level.why_not_higher)


def test_without_libseccomp_no_level_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyseccomp", raising=False)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    syscall_filter.compiled.cache_clear()
    level = probe_level()
    assert level.name == "none"
    assert any("libseccomp2" in why for why in level.why_not_higher)
    with pytest.raises(SandboxRefusedError, match="libseccomp2"):
        Sandbox(level)


def test_a_weak_sandbox_does_not_pass_the_probe() -> None:
    reason = why_not(confinement.unsafe_way())
    assert reason is not None
    assert "sockets are not refused" in reason


def test_without_a_level_it_is_refused_unless_asked_for() -> None:
    with pytest.raises(SandboxRefusedError) as caught:
        Sandbox(NONE)
    assert "bubblewrap is not installed" in str(caught.value)
    assert "--unsafe-exec" in str(caught.value)
    with Sandbox(NONE, unsafe=True) as sandbox:
        assert "NO SANDBOX" in sandbox.level.words
        assert not sandbox.level.safe
        assert sandbox.run_blocking(program("def add(a, b):\n    return a + b\n")).status == "passed"


def test_unsafe_execution_never_runs_as_root() -> None:
    code = "import os\ndef add(a, b):\n    return os.geteuid() and 3\n"
    with Sandbox(NONE, unsafe=True) as sandbox:
        assert sandbox.run_blocking(program(code)).status == "passed"


def test_unsafe_execution_as_root_needs_a_readable_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    private = tmp_path / "python3"
    private.write_text("")
    private.chmod(0o700)
    monkeypatch.setattr(confinement, "interpreters", lambda: [(str(private), "")])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxRefusedError, match="not run as root"):
        confinement.unsafe_way()


@needs("bwrap")
@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("def add(a, b):\n    return a + b\n", "passed", ""),
        ("def add(a, b):\n    return a - b\n", "failed", "AssertionError"),
        ("def add(a, b):\n    return {}[a]\n", "failed", "KeyError"),
        ("def add(a, b):\n    return add(a, b)\n", "failed", "RecursionError"),
        ("def add(a, b):\n    return 'x' * 10**10\n", "failed", "MemoryError"),
        ("def add(a, b)\n    return a\n", "load_failed", "SyntaxError"),
        ("x = input()\n", "load_failed", "EOFError"),
        ("import numpy\n", "load_failed", "ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\n", "load_failed", "SystemExit"),
        ("def plus(a, b):\n    return a + b\n", "load_failed", "does not define add"),
        ("import os\nos._exit(0)\n", "exited", "exit status 0"),
        ("import os\nos._exit(3)\n", "exited", "exit status 3"),
        ("def add(a, b):\n    import os\n    os.abort()\n", "exited", "SIG"),
        (
            "class E(Exception):\n    def __str__(self):\n        raise self\ndef add(a, b):\n    raise E\n",
            "failed",
            "E",
        ),
    ],
)
def test_how_a_run_ends(code: str, status: str, words: str) -> None:
    result = run(code)
    assert result.status == status, result
    assert words in f"{result.error}: {result.message}"


@needs("bwrap")
def test_the_answer_is_imported_not_run_as_a_program() -> None:
    code = (
        "import sys, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        "def add(a, b):\n    return P(a).x + b\n"
        "if __name__ == '__main__':\n    sys.exit('run as a program')\n"
    )
    assert run(code).status == "passed"


@needs("bwrap")
def test_threads_asyncio_and_files_of_its_own_work() -> None:
    code = (
        "import asyncio, threading, tempfile, pathlib\n"
        "async def later(x):\n    await asyncio.sleep(0)\n    return x\n"
        "def add(a, b):\n"
        "    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(asyncio.run(later(a))))\n"
        "    thread.start()\n    thread.join()\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        path = pathlib.Path(folder, 'b')\n"
        "        path.write_text(str(b))\n"
        "        return found[0] + int(path.read_text())\n"
    )
    assert run(code).status == "passed"


@needs("bwrap")
def test_time_is_up() -> None:
    loading = run("while True:\n    pass\n", timeout_s=0.3)
    assert (loading.status, loading.phase) == ("timeout", "load")
    assert "0.3 s, while loading" in loading.message
    testing = run("import time\ndef add(a, b):\n    time.sleep(60)\n", timeout_s=0.3)
    assert (testing.status, testing.phase) == ("timeout", "tests")
    assert "in the tests" in testing.message


@needs("bwrap")
def test_output_is_kept_to_its_end_and_cut_at_its_beginning() -> None:
    code = "def add(a, b):\n    for n in range(40000):\n        print(n)\n    return a + b\n"
    result = run(code)
    assert result.status == "passed"
    assert result.output_capped
    assert result.output_bytes == sum(len(str(n)) + 1 for n in range(40000))
    assert len(result.output) <= running.OUTPUT_KEPT
    assert result.output.endswith("39998\n39999\n")


@needs("bwrap")
def test_the_whole_output_when_it_is_short() -> None:
    result = run("import sys\nprint('höher')\nprint('err', file=sys.stderr)\ndef add(a, b):\n    return 3\n")
    assert sorted(result.output.split()) == ["err", "höher"]
    assert not result.output_capped


@needs("bwrap")
def test_long_sources_and_odd_characters_arrive_whole() -> None:
    text = "é\N{SNOWMAN}" * 60_000
    code = f"TEXT = {text!r}\ndef add(a, b):\n    return a + b\n"
    result = run(code, tests=f"assert TEXT == {text!r}\nassert add(1, 2) == 3\n")
    assert result.status == "passed", result.message


@needs("bwrap")
def test_a_lone_surrogate_is_an_error_of_the_answer() -> None:
    assert run("x = '\ud800'\ndef add(a, b):\n    return a + b\n").status in {"passed", "load_failed"}


@needs("bwrap")
def test_runs_are_bounded_and_parallel() -> None:
    most = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, len(psutil.Process().children()))

    async def many() -> list[RunResult]:
        with Sandbox(parallel=2) as sandbox:
            sleeper = program("import time\ntime.sleep(0.3)\ndef add(a, b):\n    return a + b\n")
            return await asyncio.gather(*(sandbox.run(sleeper) for _ in range(5)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    results = asyncio.run(many())
    over.set()
    watcher.join()
    assert [result.status for result in results] == ["passed"] * 5
    assert most == 2


def children() -> list[psutil.Process]:
    deadline = time.monotonic() + 10
    while not (seen := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        os.sched_yield()
    return seen


@needs("bwrap")
@pytest.mark.parametrize("attempt", range(3))
def test_cancelling_kills_the_run(attempt: int) -> None:
    async def cancelled() -> list[psutil.Process]:
        with Sandbox(parallel=1) as sandbox:
            task = asyncio.create_task(sandbox.run(program("while True:\n    pass\n"), timeout_s=60))
            seen = await asyncio.to_thread(children)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return seen

    seen = asyncio.run(cancelled())
    assert seen
    assert psutil.wait_procs(seen, timeout=5)[1] == []


@needs("bwrap")
def test_a_run_that_is_stopped_before_it_starts_is_over_at_once() -> None:
    stopper = running.Stopper()
    stopper.stop()
    way = probe_level().way
    assert way is not None
    result = running.run(way, program("while True:\n    pass\n"), timeout_s=60, memory_bytes=1 << 30, stopper=stopper)
    assert (result.status, result.message) == ("exited", "stopped from outside")
    stopper.close()


@needs("bwrap")
@pytest.mark.parametrize("highest", ["bwrap", "landlock"])
def test_a_program_dies_with_the_process_that_runs_it(highest: str) -> None:
    code = (
        "from evals.program import Program\n"
        "from evals.sandbox import Sandbox, probe_level\n"
        f"sandbox = Sandbox(probe_level({highest!r}))\n"
        "print('started', flush=True)\n"
        "program = 'import threading, time as t\\n'\n"
        "program += 'threading.Thread(target=t.sleep, args=(600,)).start()\\nt.sleep(600)'\n"
        "sandbox.run_blocking(Program(code=program, tests='pass'), timeout_s=600)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        seen = asleep_under(process.pid)
        process.kill()
    assert seen
    assert psutil.wait_procs(seen, timeout=5)[1] == []


def asleep_under(pid: int) -> list[psutil.Process]:
    """Waits until a sandboxed Python below `pid` has started its thread; returns all processes below."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        below = psutil.Process(pid).children(recursive=True)
        for each in below:
            with contextlib.suppress(psutil.Error):
                if "python" in each.name() and each.num_threads() == 2:
                    return below
        os.sched_yield()
    return []


def _as_nobody(pipe: Connection) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    levels = [probe_level(), probe_level("landlock")]
    results = []
    for level in levels:
        assert level.way is not None, level
        code = "def add(a, b):\n    return a + b\n"
        results.append(running.run(level.way, program(code), timeout_s=10, memory_bytes=1 << 30).status)
    pipe.send(([level.name for level in levels], results))


@needs("bwrap", "root")
def test_both_levels_work_for_an_ordinary_user() -> None:
    assert probe_level("landlock").safe  # loads what an ordinary user might not be able to read here
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_as_nobody, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(30)
    assert ours.recv() == (["bwrap", "landlock"], ["passed", "passed"])
    process.join(10)
    ours.close()


@needs("bwrap")
@pytest.mark.parametrize("highest", ["bwrap", "landlock"])
def test_runs_are_repeatable_and_isolated(highest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere-at-all")
    code = "import sys\nprint(hash('spectop'), sys.path, sys.flags.no_user_site)\ndef add(a, b):\n    return a + b\n"
    level = probe_level("bwrap" if highest == "bwrap" else "landlock")
    with Sandbox(level) as sandbox:
        outputs = {sandbox.run_blocking(program(code)).output for _ in range(3)}
    (output,) = outputs
    assert "nowhere-at-all" not in output
    assert "''" not in output and "site-packages" not in output and output.strip().endswith("1")


@needs("bwrap")
def test_nothing_leaks_descriptors() -> None:
    with Sandbox(parallel=1) as sandbox:
        sandbox.run_blocking(program("def add(a, b):\n    return a + b\n"))
        before = psutil.Process().num_fds()
        for _ in range(5):
            sandbox.run_blocking(program("def add(a, b):\n    return a\n"))
        assert psutil.Process().num_fds() == before
