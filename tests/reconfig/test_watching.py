"""The watch of a proven instance, against scripted managers."""

from __future__ import annotations

from reconfig.managers.protocol import ManagerStatus
from reconfig.presets import Proof
from reconfig.redaction import redactor_for
from reconfig.watching import Trouble, wait_for_trouble
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
