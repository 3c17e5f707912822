"""The watch of a proven instance, against scripted managers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reconfig.failure import NotInEffectError
from reconfig.limits import Limits
from reconfig.loglines import LogLine
from reconfig.managers.command import CommandManager
from reconfig.managers.config import CommandConfig
from reconfig.managers.protocol import ManagerStatus
from reconfig.presets import Proof
from reconfig.redaction import redactor_for
from reconfig.watching import StartWatch, Trouble, wait_for_trouble
from tests.reconfig.parts import until
from tests.reconfig.scripted import ScriptedManager, World, run_jumping

FACTS = {"pid": "4200"}
RUNNING = ManagerStatus(state="running", words="active", pid=4200, facts=FACTS)
PROOF = Proof(preset="b8t4", in_effect=True, instance={"manager pid": "4200"})


def test_known_keys_reach_neither_the_lines_nor_the_words_nor_the_tail_after_the_proof() -> None:
    key, token = "sk-very-secret", "hf-other-secret"
    world = World()
    world.state.update(status=RUNNING)
    world.at(1, log=f"GET /v1 with {key} and {token}\n".encode())
    world.at(2, log=f"RuntimeError: no access with {token}\n".encode())
    world.at(3, status=ManagerStatus(state="failed", words=f"ended: run {key}", pid=4200))

    async def work() -> Trouble:
        world.begin()
        clean = redactor_for(key, {"HF_TOKEN": token}).clean
        return await wait_for_trouble(PROOF, ScriptedManager(world), on_log=world.lines.append, clean=clean)

    trouble = run_jumping(work)
    assert [line.text for line in world.lines] == ["GET /v1 with *** and ***", "RuntimeError: no access with ***"]
    assert trouble.log_tail == tuple(line.text for line in world.lines)
    assert "run ***" in trouble.words
    assert key not in str(trouble) and token not in str(trouble)


class CountingManager(ScriptedManager):
    """Remembers when it was asked."""

    def __init__(self, world: World, **more: Any) -> None:
        super().__init__(world, **more)
        self.asked: list[float] = []

    async def status(self) -> ManagerStatus:
        self.asked.append(self.world.now)
        return await super().status()


GONE = ManagerStatus(state="failed", words="exit status 1", pid=4200)


@pytest.mark.parametrize(
    "blip",
    [
        GONE,
        ManagerStatus(state="stopped", words="no answer"),
        ManagerStatus(state="running", words="?", facts={"pid": "1"}),
    ],
)
def test_one_look_that_shows_trouble_is_not_trouble_and_two_in_a_row_are(blip: ManagerStatus) -> None:
    world = World()
    world.state.update(status=RUNNING)
    world.at(10, status=blip)
    world.at(10.1, status=RUNNING)
    world.at(30, status=GONE)

    async def work() -> tuple[Trouble, float]:
        world.begin()
        trouble = await wait_for_trouble(PROOF, ScriptedManager(world))
        return trouble, world.now

    trouble, seen_at = run_jumping(work)
    assert trouble.cause == "exited"
    assert 30 <= seen_at <= 32


def test_a_manager_behind_ssh_is_asked_every_two_seconds_and_out_of_memory_is_told_at_the_first_look() -> None:
    world = World()
    world.state.update(status=RUNNING)
    world.at(61, log=b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    manager = CountingManager(world)
    manager.pids_are_local = False

    async def work() -> tuple[Trouble, float]:
        world.begin()
        trouble = await wait_for_trouble(PROOF, manager, look_s=0.5)
        return trouble, world.now

    trouble, seen_at = run_jumping(work)
    assert trouble.cause == "oom"
    assert seen_at <= 64
    pauses = [later - before for before, later in zip(manager.asked, manager.asked[1:], strict=False)]
    assert min(pauses) >= 2 - 1e-6
    assert len(manager.asked) >= 25


def test_one_failing_look_does_not_end_a_start_of_many_minutes() -> None:
    world = World()
    world.state.update(status=RUNNING)
    world.at(100, status=GONE)
    world.at(100.2, status=RUNNING)
    world.at(500, status=GONE)

    async def work() -> float:
        world.begin()
        with pytest.raises(NotInEffectError, match="exit status 1"):
            await StartWatch(ScriptedManager(world), Limits(), lambda _: None).run()
        return world.now

    assert 500 <= run_jumping(work) <= 502


async def test_an_ssh_that_does_not_get_through_says_nothing_about_the_server(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host gpu1 port 22: Connection timed out' >&2\nexit 255\n")
    ssh.chmod(0o755)
    manager = CommandManager(
        CommandConfig(start=["true", "{arguments}"], stop=["true"], status=[str(ssh), "gpu1", "status"])
    )
    status = await manager.status()
    assert status.state == "unknown"
    assert "Connection timed out" in status.words
    ssh.write_text("#!/bin/sh\nexit 1\n")
    assert (await manager.status()).state == "stopped"


async def test_a_log_command_that_cant_be_run_is_said_once_and_breaks_no_watch() -> None:
    manager = CommandManager(
        CommandConfig(start=["true", "{arguments}"], stop=["true"], status=["false"], log=["/no/such/log"])
    )
    lines: list[str] = []
    watch = StartWatch(manager, Limits(look_s=0.05), lambda line: lines.append(line.text))
    with pytest.raises(NotInEffectError, match="stopped while it started"):
        await watch.run()
    assert len(lines) == 1
    assert "/no/such/log" in lines[0] and "correct [server.manager] log" in lines[0]


async def test_a_follower_that_is_started_again_does_not_give_the_log_s_past_as_news(tmp_path: Path) -> None:
    follower, started = tmp_path / "log", tmp_path / "started"
    follower.write_text(f"#!/bin/sh\necho 'CUDA out of memory of an hour ago'\necho x >> {started}\n")
    follower.chmod(0o755)
    manager = CommandManager(CommandConfig(start=["true", "{arguments}"], stop=["true"], log=[str(follower)]))
    news: list[LogLine] = []

    reader = asyncio.create_task(StartWatch(manager, Limits(), news.append).read_log("now"))
    await until(lambda: started.exists() and len(started.read_text().split()) >= 3)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert news == []
