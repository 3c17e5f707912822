"""The operator's own prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.records import Message
from loadgen.spec import CellSpec, Stop, Workload
from loadgen.workload import PromptSource
from loadgen.workload_jsonl import read_prompts

GOOD = """{"prompt": "One?", "category": "short"}

{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two?"}]}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(GOOD)
    return path


def source(path: Path | None, cache: str = "warm") -> PromptSource:
    workload = Workload(kind="jsonl", path=None if path is None else str(path), cache=cache)  # type: ignore[arg-type]
    return PromptSource(
        CellSpec(cell="c", context=60, concurrency=1, stop=Stop(requests=9), workload=workload, warmup_requests=16)
    )


def test_both_forms_are_read(own: Path) -> None:
    one, two = read_prompts(str(own))
    assert one.as_messages() == (Message("user", "One?"),)
    assert one.category == "short"
    assert [m.role for m in two.as_messages()] == ["system", "user"]


def test_warm_sends_them_as_they_are_written(own: Path) -> None:
    prompts = source(own)
    assert [prompts.request(i).messages[-1].content for i in range(3)] == ["One?", "Two?", "One?"]
    assert prompts.request(0).category == "short"


def test_unique_puts_an_opening_before_the_first_message(own: Path) -> None:
    prompts = source(own, "unique")
    contents = [prompts.request(i).messages[0].content for i in range(0, 40, 2)]
    assert len(set(contents)) == 20
    assert all(c.endswith("One?") for c in contents)
    system = prompts.request(1).messages
    assert system[0].content.endswith("Be brief.")
    assert system[1].content == "Two?"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "x"', "line 2: not a JSON object"),
        ("\\xff\\xfe", "line 2: not a JSON object"),
        ('["x"]', "line 2: Expected `object`, got `array`"),
        ('{"prompt": 5}', "line 2: Expected `str | null`, got `int`"),
        ('{"question": "x"}', "line 2: Object contains unknown field `question`"),
        ('{"prompt": "x", "messages": []}', 'line 2: wanted is either "messages" or "prompt"'),
        ("{}", 'line 2: wanted is either "messages" or "prompt"'),
        ('{"messages": []}', 'line 2: "messages" is empty'),
        ('{"prompt": "  "}', 'line 2: "prompt" is empty'),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "line 2: the last message is the assistant's"),
        ('{"messages": [{"role": "user"}]}', "line 2: Object missing required field `content`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"own\.jsonl") as caught:
        read_prompts(str(path))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.jsonl: cannot be read: No such file"):
        read_prompts(str(tmp_path / "gone.jsonl"))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    with pytest.raises(ValueError, match="no prompts"):
        read_prompts(str(empty))
    with pytest.raises(ValueError, match="needs the path"):
        source(None)
