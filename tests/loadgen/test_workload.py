"""What is asked: unique, of the wanted length, and the same again for the same seed."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.records import Generation, GenerationRequest
from loadgen.spec import CellSpec, Stop, Workload
from loadgen.workload import PromptSource, background_pieces
from loadgen.workload_filler import code_pieces, estimate_tokens, prose_pieces
from loadgen.workload_tasks import OPENING_WORDS, TASKS
from tests.loadgen.records import failed, ok

KINDS = ["coding", "prose", "math", "chat", "mixed"]


def spec(context: int = 1024, **changes: Any) -> CellSpec:
    workload = msgspec.convert(
        {k: changes.pop(k) for k in ("kind", "cache", "turns", "path") if k in changes}, Workload
    )
    given: dict[str, Any] = {"cell": "c", "concurrency": 8, "stop": Stop(requests=1), "workload": workload}
    return CellSpec(context=context, **(given | changes))


def text(request: GenerationRequest) -> str:
    return "\n".join(m.content for m in request.messages)


def answered(content: str, **changes: Any) -> Generation:
    return Generation(record=ok(0.0, (0.1, 1)), content=content, **changes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("context", [60, 1024, 8192])
def test_prompts_have_about_the_wanted_length_even_uncalibrated(kind: str, context: int) -> None:
    source = PromptSource(spec(context, kind=kind))
    for index in range(20):
        predicted = source.predicted_tokens(source.request(index))
        assert predicted == pytest.approx(context, abs=max(4, 0.005 * context))


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_differ_from_their_first_words_on(kind: str) -> None:
    source = PromptSource(spec(kind=kind))
    openings = [text(source.request(i)).split("\n")[0] for i in range(300)]
    assert len(set(openings)) == 300
    assert len({o.split()[0] for o in openings}) > 80


def test_same_seed_asks_the_same_and_another_cell_something_else() -> None:
    asked = text(PromptSource(spec()).request(7))
    assert text(PromptSource(spec(cell="another preset")).request(7)) == asked
    for other in (spec(seed=1), spec(concurrency=4), spec(context=1025), spec(temperature=0.7)):
        assert text(PromptSource(other).request(7)) != asked


SALTS = st.text(max_size=20)


@settings(derandomize=True, deadline=None)
@given(st.lists(SALTS, min_size=2, max_size=2, unique=True), st.integers(0, 5000), st.integers(0, 9))
def test_another_salt_opens_otherwise_and_asks_the_same(salts: list[str], index: int, seed: int) -> None:
    one, other = (text(PromptSource(spec(200, seed=seed, salt=salt)).request(index)) for salt in salts)
    assert one[:16] != other[:16]
    assert one.partition("\n\n")[2] == other.partition("\n\n")[2] != ""
    assert text(PromptSource(spec(200, seed=seed, salt=salts[0])).request(index)) == one


def test_no_opening_of_one_session_is_found_in_another() -> None:
    sources = [PromptSource(spec(60, salt=f"night-{session}#{attempt}")) for session in range(3) for attempt in (1, 2)]
    openings = [text(source.request(i)).partition("\n\n")[0] for source in sources for i in range(500)]
    assert len(set(openings)) == 3000


def test_salt_opens_own_prompts_too_where_they_are_to_be_unique(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "What is a tree?"}\n')
    one, other = (
        text(PromptSource(spec(kind="jsonl", path=str(path), salt=salt)).request(0)) for salt in ("one", "other")
    )
    assert one != other
    assert one.partition("\n\n")[2] == other.partition("\n\n")[2] == "What is a tree?"


def test_salt_leaves_the_other_ways_of_caching_as_they_are() -> None:
    one, other = (PromptSource(spec(4096, cache="shared-prefix", salt=salt)) for salt in ("one", "other"))
    first, second = text(one.request(0)), text(other.request(0))
    assert first != second
    assert first[: int(0.9 * len(first))] == second[: int(0.9 * len(first))]
    warm = PromptSource(spec(cache="warm", warmup_requests=4, salt="one"))
    warmed = {text(warm.request(i)) for i in range(1_000_000_000, 1_000_000_004)}
    assert {text(warm.request(i)) for i in range(30)} == warmed
    fresh = PromptSource(spec(cache="warm", warmup_requests=4, salt="other"))
    assert not warmed & {text(fresh.request(i)) for i in range(4)}


def test_a_request_carries_what_the_cell_asks() -> None:
    asked = PromptSource(spec(max_tokens=77, temperature=0.6, ignore_eos=True, stall_timeout_s=9.0)).request(3)
    assert (asked.max_tokens, asked.temperature, asked.ignore_eos, asked.stall_timeout_s) == (77, 0.6, True, 9.0)
    assert asked.category == "code"
    assert asked.text is None
    assert [m.role for m in asked.messages] == ["user"]


def test_request_ids_are_never_used_twice() -> None:
    sources = [PromptSource(spec()) for _ in range(2)]
    assert len({source.request(i).rid for source in sources for i in range(5)}) == 10


def test_raw_route_has_text() -> None:
    asked = PromptSource(spec(route="generate")).request(0)
    assert asked.messages == ()
    assert asked.text == text(PromptSource(spec()).request(0))


def test_mixed_asks_all_kinds_alike() -> None:
    source = PromptSource(spec(kind="mixed"))
    counts = collections.Counter(source.request(i).category for i in range(40))
    assert counts == {"code": 10, "prose": 10, "math": 10, "chat": 10}


def test_shared_prefix_is_shared_and_the_rest_differs() -> None:
    source = PromptSource(spec(4096, cache="shared-prefix"))
    prompts = [text(source.request(i)) for i in range(20)]
    shared = 0
    while all(p[shared] == prompts[0][shared] for p in prompts):
        shared += 1
    assert shared > 0.9 * len(prompts[0])
    assert len(set(prompts)) == 20
    for index in range(20):
        assert source.predicted_tokens(source.request(index)) == pytest.approx(4096, rel=0.01)


def test_warm_asks_what_the_warm_up_asked() -> None:
    source = PromptSource(spec(cache="warm", warmup_requests=4))
    warmed = {text(source.request(i)) for i in range(1_000_000_000, 1_000_000_004)}
    assert len(warmed) == 4
    assert {text(source.request(i)) for i in range(30)} == warmed
    assert len({text(PromptSource(spec(cache="warm")).request(i)) for i in range(5)}) == 1


def test_a_conversation_goes_on_with_the_answer() -> None:
    source = PromptSource(spec(200, turns=3))
    first = source.request(0, slot=2)
    second = source.request(8, slot=2, previous=answered("def f(): ..."))
    third = source.request(16, slot=2, previous=answered("", reasoning="thinking"))
    assert [m.role for m in third.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert third.messages[:3] == second.messages
    assert second.messages[0] == first.messages[0]
    assert (second.messages[1].content, third.messages[3].content) == ("def f(): ...", "thinking")
    assert second.messages[2].content in TASKS["code"].follow_ups
    assert first.keep_text
    fourth = source.request(24, slot=2, previous=answered("done"))
    assert len(fourth.messages) == 1


def test_a_failed_turn_ends_the_conversation_and_slots_do_not_mix() -> None:
    source = PromptSource(spec(200, turns=3))
    source.request(0, slot=0)
    source.request(1, slot=1)
    assert len(source.request(2, slot=0, previous=Generation(record=failed(0.0, 1.0))).messages) == 1
    assert len(source.request(3, slot=1, previous=answered("yes")).messages) == 3
    assert len(source.request(4, slot=5, previous=answered("yes")).messages) == 1


def test_single_turns_ignore_what_came_before() -> None:
    source = PromptSource(spec(200))
    assert len(source.request(1, slot=0, previous=answered("yes")).messages) == 1


def test_context_too_small_for_anything_still_asks_a_task() -> None:
    asked = text(PromptSource(spec(5)).request(0))
    assert any(asked.endswith(task) for task in TASKS["code"].tasks)


def test_context_longer_than_all_background_repeats_it() -> None:
    source = PromptSource(spec(40_000, kind="prose"))
    assert source.predicted_tokens(source.request(0)) == pytest.approx(40_000, rel=0.01)


@pytest.mark.parametrize("pieces", [code_pieces(), prose_pieces()])
def test_pieces_add_up(pieces: tuple[str, ...]) -> None:
    """No piece's tokens depend on its neighbours: it starts with a visible character and ends with an empty line."""
    assert len(pieces) >= 100
    assert len(set(pieces)) == len(pieces)
    for piece in pieces:
        assert not piece[0].isspace()
        assert piece.endswith("\n\n")
        assert piece.isascii()
    assert estimate_tokens("".join(pieces[:50])) == sum(estimate_tokens(p) for p in pieces[:50])


def test_pool_grows_with_the_context() -> None:
    assert len(background_pieces("code", 60)) < len(background_pieces("code", 32_000))


def test_material_is_distinct_and_complete() -> None:
    assert len(set(OPENING_WORDS)) == len(OPENING_WORDS) >= 128
    assert {estimate_tokens(word) for word in OPENING_WORDS} == {1.0}  # prompts differ in length by no opening
    for material in TASKS.values():
        assert len(set(material.tasks)) == len(material.tasks) >= 10
        assert len(set(material.refinements)) == len(material.refinements) >= 9
        assert len(material.follow_ups) >= 2
