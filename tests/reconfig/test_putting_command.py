"""The simulated server behind a container-like pair of scripts, here and through a real sshd on loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from loadgen.client import LocalGenerator
from loadgen.spec import Target
from reconfig.interrogate import interrogate
from reconfig.managers import CommandConfig, manager_from
from reconfig.presets import Preset
from reconfig.processes import LocalProcesses
from reconfig.waiting import wait_until
from tests.needs import needs
from tests.reconfig.parts import B8T4, NONE, QUICK, Bench, bench, free_port, sim_command

ROOT = Path(__file__).parents[2]
BOX = '''#!{python}
"""A box in the manner of a container: start NAME-less, stop, status, log; one folder is its whole state."""
import json, os, pathlib, signal, subprocess, sys, time

box = pathlib.Path({box!r})
verb, words = sys.argv[1], sys.argv[2:]


def pid():
    try:
        number = int((box / "pid").read_text())
        os.kill(number, 0)
        stat = pathlib.Path(f"/proc/{{number}}/stat").read_text()
        return None if stat.rsplit(")", 1)[1].split()[0] == "Z" else number
    except (OSError, ValueError):
        return None


if verb == "start":
    if pid():
        sys.exit("box: runs already")
    pairs = [word for word in words if "=" in word and not word.startswith("-")]
    rest = [word for word in words if word not in pairs]
    log = open(box / "log", "wb")
    env = {{**os.environ, **dict(pair.split("=", 1) for pair in pairs)}}
    child = subprocess.Popen({command!r} + rest, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd={root!r},
                             env=env, start_new_session=True)
    (box / "pid").write_text(str(child.pid))
    (box / "count").write_text(str(time.time_ns()))
elif verb == "stop":
    number = pid()
    if number:
        os.kill(number, signal.SIGTERM)
    until = time.time() + 20
    while pid() and time.time() < until:
        time.sleep(0.02)
elif verb == "status":
    print("running" if pid() else "exited", (box / "count").read_text() if (box / "count").exists() else "")
elif verb == "log":
    os.execvp("tail", ["tail", "-n", "+1", "--follow=name", "--retry", "--quiet", str(box / "log")])
'''


@pytest.fixture
async def lab() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


def box(lab: Bench, folder: Path, *more: str, before: list[str] | None = None) -> CommandConfig:
    """A configuration for the box; `before` is what stands before each command (ssh)."""
    folder.mkdir(exist_ok=True)
    script = folder / "box.py"
    command = sim_command(lab.port, *more)
    script.write_text(BOX.format(python=sys.executable, box=str(folder), command=command, root=str(ROOT)))
    script.chmod(0o755)
    first = [*(before or []), str(script)]
    arguments = "{quoted_arguments}" if before else "{arguments}"
    return CommandConfig(
        start=[*first, "start", "{env}", arguments], stop=[*first, "stop"], status=[*first, "status"],
        log=[*first, "log"], stop_timeout=30,
    )  # fmt: skip


async def test_a_container_like_pair_of_scripts_is_switched_and_proven(lab: Bench, tmp_path: Path) -> None:
    manager = manager_from(box(lab, tmp_path / "box"), state_dir=tmp_path)
    seen = []
    for preset in (B8T4, NONE):
        proof = await lab.put(preset, manager)
        assert proof.in_effect, proof.failure
        seen.append(proof.instance["manager status"])
        assert proof.log_tail
    assert len(set(seen)) == 2
    checks = await manager.check()
    assert checks[0][1] == "good"
    await manager.stop()
    assert (await manager.status()).state in {"stopped", "failed"}


async def test_a_variable_reaches_the_server_and_a_crash_in_the_box_is_told(lab: Bench, tmp_path: Path) -> None:
    manager = manager_from(box(lab, tmp_path / "box"), state_dir=tmp_path)
    tree = Preset(name="tree", algorithm="DDTREE", budget=8, topk=4)
    from reconfig.vocabularies import VOCABULARIES

    proof = await lab.put(tree, manager, vocabulary=VOCABULARIES["ddtree-29907"])
    assert proof.in_effect, proof.failure
    await manager.stop()

    crashing = manager_from(box(lab, tmp_path / "box", "--sim-fault=crash-while-loading"), state_dir=tmp_path)
    proof = await lab.put(NONE, crashing)
    assert proof.cause == "oom", proof.failure

    broken = manager_from(
        CommandConfig(start=["/no/such/docker", "run", "{arguments}"], stop=["true"]), state_dir=tmp_path
    )
    proof = await lab.put(NONE, broken)
    assert "/no/such/docker" in (proof.failure or "")
    assert (await broken.check())[0][1] == "warning"


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """An argument list that stands before a command to run it on "another machine": this one, through sshd."""
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "client.pub", tmp_path / "authorized")
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile {tmp_path}/sshd.pid\n"
        f"AuthorizedKeysFile {tmp_path}/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    with (tmp_path / "sshd.log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", config], stdout=log, stderr=log)
    yield [
        "ssh", "-F", "none", "-p", str(port), "-i", str(tmp_path / "client"), "-o", "StrictHostKeyChecking=no",
        "-o", f"UserKnownHostsFile={tmp_path}/known", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "127.0.0.1",
    ]  # fmt: skip
    server.terminate()
    server.wait(timeout=20)


@pytest.mark.sshd
@needs("sshd")
async def test_the_same_through_a_real_sshd(lab: Bench, tmp_path: Path, ssh: list[str]) -> None:
    def answers() -> bool:
        return subprocess.run([*ssh, "true"], check=False, capture_output=True).returncode == 0

    assert await wait_until(answers, limit_s=20, every_s=0.1)
    manager = manager_from(box(lab, tmp_path / "box", before=ssh), state_dir=tmp_path)
    for preset in (B8T4, NONE):
        proof = await lab.put(preset, manager)
        assert proof.in_effect, proof.failure
        assert any("fired up" in line for line in proof.log_tail) or proof.log_tail
    await manager.stop()
    left = [one for one in psutil.process_iter() if str(tmp_path) in " ".join(_words(one)) and "tail" in _words(one)]
    assert left == []


@pytest.mark.sshd
@needs("sshd")
async def test_a_server_behind_a_port_that_ssh_forwards_is_switched_and_proven(
    lab: Bench, tmp_path: Path, ssh: list[str]
) -> None:
    manager = manager_from(box(lab, tmp_path / "box", before=ssh), state_dir=tmp_path)
    near = free_port()
    forward = [*ssh[:-1], "-N", "-L", f"127.0.0.1:{near}:127.0.0.1:{lab.port}", ssh[-1]]

    def answers() -> bool:
        return subprocess.run([*ssh, "true"], check=False, capture_output=True).returncode == 0

    assert await wait_until(answers, limit_s=20, every_s=0.1)
    forwarder = await asyncio.create_subprocess_exec(*forward, stderr=subprocess.DEVNULL)
    try:
        assert await wait_until(lambda: bool(LocalProcesses().listeners(near)), limit_s=20, every_s=0.1)
        lab.target = Target(base_url=f"http://127.0.0.1:{near}", model=lab.target.model)
        await lab.generator.close()
        lab.generator = LocalGenerator(lab.target, time.perf_counter_ns())
        for preset in (B8T4, NONE):
            proof = await lab.put(preset, manager, limits=msgspec.structs.replace(QUICK, stop_s=10.0))
            assert proof.in_effect, proof.failure
            assert "listener pid" not in proof.instance
        found = await interrogate(lab.target)
        assert found.run_by.kind == "manual"
        assert "forwards the port" in found.run_by.words
    finally:
        await manager.stop()
        forwarder.terminate()
        await forwarder.wait()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
