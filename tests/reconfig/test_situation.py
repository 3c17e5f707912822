"""A look at a server: what is kept of its start and its version, whichever way its family tells it."""

from __future__ import annotations

import pytest

from loadgen.spec import Target
from reconfig.situation import Onlooker
from tests.loadgen.canned import answer, canned
from tests.reconfig.scripted import ScriptedManager, World


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"/server_info": '{"version": "0.5.23", "random_seed": 7}'}, {"version": "0.5.23", "random_seed": "7"}),
        ({"/get_server_info": '{"random_seed": 7}'}, {"random_seed": "7"}),
        ({"/version": '{"version": "0.32.0"}'}, {"version": "0.32.0"}),
        ({"/version": '{"version": 3}'}, {}),
        ({"/version": "[]"}, {}),
        ({}, {}),
    ],
    ids=["sglang", "old sglang", "vllm", "not a text", "not an object", "says nothing"],
)
async def test_what_a_server_tells_of_itself(answers: dict[str, str], told: dict[str, str]) -> None:
    async with canned({path: answer(body) for path, body in answers.items()}) as (url, _):
        target = Target(base_url=url, model="m")
        situation = await Onlooker(target, ScriptedManager(World()), None, None).look()
    server = {k.removeprefix("server "): v for k, v in situation.identity.items() if k.startswith("server ")}
    assert server == told
