"""Prompts have the wanted length in the server's own tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest

from loadgen.records import Generation, GenerationRequest
from loadgen.spec import Calibration, CellSpec, Stop, Workload
from loadgen.workload import PromptSource
from loadgen.workload_calibration import calibrate
from tests.loadgen.records import failed, ok

TEMPLATE_TOKENS = 23


class Server:
    """Counts tokens in a way of its own: short pieces, one special token before every text, a chat template."""

    def __init__(self, *, usage: bool = True) -> None:
        self.usage = usage
        self.asked: list[str] = []
        self.generated: list[GenerationRequest] = []

    @staticmethod
    def tokens_of(text: str) -> int:
        return len(re.findall(r" ?[A-Za-z]{1,4}| ?[0-9]| ?[^\sA-Za-z0-9]|\n+| +", text))

    async def count(self, texts: Sequence[str]) -> list[int | None]:
        self.asked += texts
        return [1 + self.tokens_of(text) for text in texts]

    def prompt_tokens(self, request: GenerationRequest) -> int:
        return TEMPLATE_TOKENS + sum(self.tokens_of(m.content) for m in request.messages)

    async def generate(self, request: GenerationRequest) -> Generation:
        self.generated.append(request)
        if not self.usage:
            return Generation(record=failed(0.0, 1.0))
        return Generation(record=ok(0.0, (1.0, 1), prompt_tokens=self.prompt_tokens(request), purpose="probe"))


def spec(context: int, kind: str = "coding") -> CellSpec:
    workload = msgspec.convert({"kind": kind}, Workload)
    return CellSpec(cell="c", context=context, concurrency=4, stop=Stop(requests=1), workload=workload)


@pytest.mark.parametrize("kind", ["coding", "prose", "math", "chat", "mixed"])
@pytest.mark.parametrize("context", [60, 200, 1024, 8192])
async def test_counting_every_piece_gives_the_wanted_length(context: int, kind: str) -> None:
    server = Server()
    asked = spec(context, kind)
    found = await calibrate(asked, server, server.count)
    source = PromptSource(asked, found)
    lengths = [server.prompt_tokens(source.request(i)) for i in range(40)]
    assert max(abs(n - context) for n in lengths) <= max(6, 0.02 * context)
    assert found.overhead == TEMPLATE_TOKENS


@pytest.mark.parametrize("context", [60, 1024, 8192])
async def test_usage_alone_gives_about_the_wanted_length(context: int) -> None:
    server = Server()
    found = await calibrate(spec(context), server)
    assert found.counts == {}
    source = PromptSource(spec(context), found)
    lengths = [server.prompt_tokens(source.request(i)) for i in range(40)]
    assert sum(lengths) / len(lengths) == pytest.approx(context, rel=0.05, abs=8)
    assert {r.purpose for r in server.generated} == {"probe"}
    assert {r.max_tokens for r in server.generated} == {1}


async def test_what_is_known_is_not_asked_again() -> None:
    server = Server()
    known = await calibrate(spec(8192), server, server.count)
    asked, generated = len(server.asked), len(server.generated)
    assert await calibrate(spec(1024), server, server.count, known) is known
    assert (len(server.asked), len(server.generated)) == (asked, generated)
    more = await calibrate(spec(60_000), server, server.count, known)
    assert len(more.counts) > len(known.counts)
    assert more.overhead == known.overhead
    assert len(server.generated) == generated


async def test_server_that_tells_nothing_leaves_the_guess() -> None:
    server = Server(usage=False)
    assert await calibrate(spec(1024), server) == Calibration()


async def test_server_that_stops_counting_falls_back_to_usage() -> None:
    server = Server()

    async def never(texts: Sequence[str]) -> list[int | None]:
        return [None] * len(texts)

    found = await calibrate(spec(1024), server, never)
    assert found.scale > 1.2
    assert len(server.generated) == 10
