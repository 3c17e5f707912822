"""What is taken from an answer: a table of the ways in which models write code around, in and without fences."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import fences, source, thinking
from evals.extract import extract

F = "```"
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
BLOCK = f"{F}python\n{RIGHT}{F}\n"
DRAFT = f"{F}python\n{WRONG}{F}\n"

# (name, answer): each must give exactly RIGHT
TABLE: list[tuple[str, str]] = [
    ("plain block", BLOCK),
    ("tildes", f"~~~python\n{RIGHT}~~~\n"),
    ("no language", f"{F}\n{RIGHT}{F}"),
    ("capital language", f"{F}PYTHON\n{RIGHT}{F}"),
    ("version in the language", f"{F}Python3\n{RIGHT}{F}"),
    ("blank before the language", f"{F} python\n{RIGHT}{F}"),
    ("attributes", f'{F}python title="a.py" hl_lines="1"\n{RIGHT}{F}'),
    ("file name", f"{F}python:add.py\n{RIGHT}{F}"),
    ("braces", f"{F}{{.python .numberLines}}\n{RIGHT}{F}"),
    ("braces, R style", f"{F}{{python}}\n{RIGHT}{F}"),
    ("comma", f"{F}python,editable\n{RIGHT}{F}"),
    ("five backticks", f"{F}``python\n{RIGHT}{F}``"),
    ("closing fence is longer", f"{F}python\n{RIGHT}{F}``"),
    ("blanks behind the closing fence", f"{F}python\n{RIGHT}{F}   \nBye."),
    ("CRLF", BLOCK.replace("\n", "\r\n")),
    ("fence glued to the last line", f"{F}python\n{RIGHT.rstrip()}{F}\nDone."),
    ("fence never closed", f"Here:\n{F}python\n{RIGHT}"),
    ("closing fence only", f"{RIGHT}{F}\nThat is it."),
    ("closing fence, then another block", f"{RIGHT}{F}\nUse:\n{F}python\nprint(add(1, 2))\n{F}"),
    ("indented by three", "   " + BLOCK.replace("\n", "\n   ").rstrip(" ")),
    ("in a numbered list", "1. So:\n\n    " + BLOCK.replace("\n", "\n    ").rstrip(" ") + "\n2. Done."),
    ("behind a list marker", f"- {F}python\n  def add(a, b):\n      return a + b\n  {F}\n"),
    ("in a quote", "> " + BLOCK.rstrip().replace("\n", "\n> ")),
    ("indented by tabs", f"\t{F}python\n\tdef add(a, b):\n\t    return a + b\n\t{F}\n"),
    ("body indented, fence not", f"{F}python\n    def add(a, b):\n        return a + b\n{F}"),
    ("body less indented than the fence", f"  {F}python\n{RIGHT}  {F}\n"),
    ("draft before", f"{DRAFT}No, better:\n{BLOCK}"),
    ("usage after", f"{BLOCK}Use it:\n{F}python\nprint(add(1, 2))\n{F}"),
    ("usage with input() after", f"{BLOCK}{F}python\nx = int(input())\nprint(add(x, 1))\n{F}"),
    ("shell after", f"{BLOCK}{F}bash\npython add.py\n{F}"),
    ("output after", f"{BLOCK}Output:\n{F}\n3\n{F}"),
    ("tests after", f"{BLOCK}{F}python\nassert add(1, 2) == 3\n{F}"),
    ("another language that looks alike", f"{BLOCK}{F}ruby\ndef add(a, b)\n  a - b\nend\n{F}"),
    ("javascript after", f"{BLOCK}{F}js\nconst add = (a, b) => a - b;\n{F}"),
    ("wrong label, the only block", f"{F}text\n{RIGHT}{F}"),
    ("inside a markdown block", f"{F}markdown\n# Answer\n{BLOCK}{F}\n"),
    ("inside four backticks of markdown", f"{F}`md\nText\n{BLOCK}{F}`\n"),
    ("draft never closed, then a block", f"{F}python\ndef add(a, b):\n    return a\nNo wait.\n{BLOCK}"),
    ("session", f"{F}pycon\n>>> def add(a, b):\n...     return a + b\n...\n{F}"),
    ("session with output", f"{F}\n>>> def add(a, b):\n...     return a + b\n{F}"),
    ("ipython session", f"{F}\nIn [1]: def add(a, b):\n   ...:     return a + b\n{F}"),
    ("no fence", RIGHT),
    ("no fence, prose around", f"You can write\n\n{RIGHT}\nfor example add(2, 3) gives 5."),
    ("no fence, a word that compiles after", f"{RIGHT}\nDone"),
    ("no fence, a word that compiles before", f"Sure\n\n{RIGHT}"),
    ("no fence, indented", "Like this:\n\n    def add(a, b):\n        return a + b\n\nThat is all."),
    ("code outside, usage in a fence", f"{RIGHT}\nUsage:\n{F}python\nprint(add(1, 2))\n{F}"),
    ("thinking in tags", f"<think>\n{DRAFT}</think>\n{BLOCK}"),
    ("thinking, only closed", f"First:\n{DRAFT}hm.\n</think>\n\n{BLOCK}"),
    ("thinking, only closed, at the end of a line", f"{DRAFT}so that is it.</think>\n{BLOCK}"),
    ("thinking, answer on the line of the tag", f"{DRAFT}</think>{BLOCK}"),
    ("thinking with half a block in it", f"{F}python\ndef add(a,\n</think>\n{BLOCK}"),
    ("thinking closed twice", f"{DRAFT}</think>\n{DRAFT}</think>\n{BLOCK}"),
    ("thinking mentions its tag", f"I will close with `</think>` soon.\n{DRAFT}</think>\n{BLOCK}"),
    ("thinking in capital letters", f"<THINK>{DRAFT}</THINK>{BLOCK}"),
    ("thinking, other family", f"<thinking>\n{DRAFT}</thinking>\n{BLOCK}"),
    ("reasoning", f"<reasoning>\n{WRONG}</reasoning>\n{BLOCK}"),
    ("thought", f"<thought>\n{DRAFT}</thought>\n{BLOCK}"),
    ("brackets", f"[THINK]{DRAFT}[/THINK]{BLOCK}"),
    ("triangles", f"◁think▷{DRAFT}◁/think▷{BLOCK}"),
    ("begin of thought", f"<|begin_of_thought|>{DRAFT}<|end_of_thought|>\n{BLOCK}"),
    ("channels", f"<|channel|>analysis<|message|>{DRAFT}<|start|>assistant<|channel|>final<|message|>{BLOCK}"),
    ("unknown tag", f"[MUSING]\n{DRAFT}[/MUSING]\n{BLOCK}"),
    ("empty thinking", f"<think>\n\n</think>\n{BLOCK}"),
    ("thinking between", f"{DRAFT}<think>\nbetter\n</think>\n{BLOCK}"),
    ("a closing tag leaks behind the answer", f"{DRAFT}</think>\n{BLOCK}\n</think>\n"),
    ("inline code", "Use `def add(a, b): return a + b` for it."),
]


@pytest.mark.parametrize(("name", "answer"), TABLE, ids=[name for name, _ in TABLE])
def test_the_right_code_is_taken(name: str, answer: str) -> None:
    found = extract(answer, None, finish_reason="stop", entry_point="add")
    expected = "def add(a, b): return a + b\n" if name == "inline code" else RIGHT
    assert found.code is not None, found
    assert found.code.strip("\n") == expected.strip("\n"), found
    assert found.channel == "content"
    assert found.origin.startswith("content, ")
    assert not found.truncated
    if found.start is not None and found.end is not None:
        assert "add" in answer[found.start : found.end]


OFFSETS = ["plain block", "draft before", "thinking, only closed", "thinking in tags", "inside a markdown block"]


@pytest.mark.parametrize("name", [*OFFSETS, "no fence, prose around"])
def test_offsets_mark_the_code_in_the_answer(name: str) -> None:
    answer = dict(TABLE)[name]
    found = extract(answer, None, finish_reason="stop", entry_point="add")
    assert found.start is not None and found.end is not None
    assert answer[found.start : found.end].strip() == RIGHT.strip()


NOTHING = [
    ("empty", "", None, "stop", "none", False, False),
    ("missing", None, None, "stop", "none", False, False),
    ("only blanks", " \n\n", None, "stop", "none", False, False),
    ("prose", "I can not do that.", None, "stop", "content", False, False),
    ("another language", f"{F}rust\nfn add() {{}}\n{F}", None, "stop", "content", False, False),
    ("only in the reasoning channel", "", BLOCK, "length", "none", True, True),
    ("only in the reasoning channel, ended", "", BLOCK, "stop", "none", False, True),
    ("thinking never closed", f"<think>\n{BLOCK}but", None, "length", "none", True, True),
    ("cut before any code", "Let me see. We need", None, "length", "content", True, False),
    ("cut in the name", f"Sure.\n{F}python\ndef ad", None, "length", "content", True, False),
    ("nothing after the thinking", f"{BLOCK}</think>\n", None, "stop", "none", False, False),
]


@pytest.mark.parametrize(
    ("name", "content", "reasoning", "finish", "channel", "truncated", "thinking_"),
    NOTHING,
    ids=[n[0] for n in NOTHING],
)
def test_nothing_is_taken(
    name: str, content: str | None, reasoning: str | None, finish: str, channel: str, truncated: bool, thinking_: bool
) -> None:
    found = extract(content, reasoning, finish_reason=finish, entry_point="add")
    assert found.code is None
    assert found.why
    assert (found.channel, found.truncated, found.in_thinking) == (channel, truncated, thinking_)


def test_cut_in_the_code() -> None:
    found = extract(f"{F}python\ndef add(a, b):\n    total = a +", None, finish_reason="length", entry_point="add")
    assert found.truncated
    assert found.code is not None and source.parse(found.code) is None
    assert "does not compile" in found.why


def test_cut_without_a_fence() -> None:
    found = extract("Here:\ndef add(a, b):\n    return (a +", None, finish_reason="length", entry_point="add")
    assert found.truncated
    assert found.code is not None and found.code.startswith("def add")


def test_complete_although_cut() -> None:
    found = extract(f"{F}python\n{RIGHT}", None, finish_reason="length", entry_point="add")
    assert (found.code, found.truncated) == (RIGHT, True)


def test_cut_after_the_block_is_not_cut_code() -> None:
    found = extract(f"{BLOCK}It works as foll", None, finish_reason="length", entry_point="add")
    assert (found.code, found.truncated) == (RIGHT, False)


def test_the_last_of_several_is_graded() -> None:
    found = extract(f"{BLOCK}Simpler:\n{DRAFT}", None, finish_reason="stop", entry_point="add")
    assert found.code == WRONG
    assert found.origin == "content, block 2 of 2"


def test_a_broken_last_one_is_graded_all_the_same() -> None:
    broken = f"{F}python\ndef add(a, b:\n    return a\n{F}"
    found = extract(f"{BLOCK}{broken}", None, finish_reason="stop", entry_point="add")
    assert found.code is not None and "def add(a, b:" in found.code


def test_the_reasoning_channel_is_never_searched() -> None:
    found = extract(BLOCK, DRAFT, finish_reason="stop", entry_point="add")
    assert found.code == RIGHT


def test_a_block_without_the_entry_point_is_taken_and_named() -> None:
    found = extract(f"{F}python\ndef plus(a, b):\n    return a + b\n{F}", None, finish_reason="stop", entry_point="add")
    assert found.code is not None and "plus" in found.code
    assert "no block defines add" in found.why


@pytest.mark.parametrize(
    "definition",
    [
        "async def add(a, b):\n    return a\n",
        "class add:\n    pass\n",
        "add = lambda a, b: a + b\n",
        "from m import add\n",
    ],
)
def test_ways_to_define_a_name(definition: str) -> None:
    answer = f"{F}python\nadd_all = 1\n{F}\n{F}python\n{definition}{F}\n{F}python\nx = add(1, 2)\n{F}"
    assert extract(answer, None, entry_point="add").code == definition


def test_fences_inside_a_docstring() -> None:
    code = f'def add(a, b):\n    """Add.\n\n    {F}python\n    add(1, 2)\n    {F}\n    """\n    return a + b\n'
    assert extract(f"{F}python\n{code}{F}\n", None, entry_point="add").code == code


def test_fences_in_a_string_at_the_margin() -> None:
    code = f'def add(a, b):\n    text = """\n{F}\nx\n{F}\n"""\n    return a + b\n'
    assert extract(f"Here:\n{F}python\n{code}{F}\nBye.", None, entry_point="add").code == code


def test_tags_in_a_string_of_the_answer_are_code() -> None:
    code = "def strip(text):\n    return text.split('</think>')[-1]\n"
    assert extract(f"{F}python\n{code}{F}", None, entry_point="strip").code == code
    assert extract(f"thinking\n</think>\n{F}python\n{code}{F}", None, entry_point="strip").code == code


def test_helpers_of_other_blocks_are_added_when_used() -> None:
    answer = (
        f"{F}python\nimport math\n\ndef half(x):\n    return math.floor(x / 2)\n\nprint(half(3))\n{F}\n"
        f"Now:\n{F}python\ndef add(a, b):\n    return half(a) + half(b)\n{F}"
    )
    found = extract(answer, None, entry_point="add")
    assert found.code is not None
    assert "import math" in found.code and "def half" in found.code
    assert "print" not in found.code
    assert "half" in found.why
    assert found.start is None
    namespace: dict[str, object] = {}
    exec(found.code, namespace)
    assert namespace["add"](4, 6) == 5  # type: ignore[operator]


def test_helpers_are_not_added_when_not_used() -> None:
    answer = f"{F}python\nimport os\nlimit = 3\n{F}\n{BLOCK}"
    assert extract(answer, None, entry_point="add").code == RIGHT


def test_decorated_helpers_keep_their_decorators() -> None:
    helper = "import functools\n\n@functools.cache\ndef twice(x):\n    return 2 * x\n"
    answer = f"{F}python\n{helper}{F}\n{F}python\ndef add(a, b):\n    return twice(a)\n{F}"
    found = extract(answer, None, entry_point="add")
    assert found.code is not None and "@functools.cache\ndef twice" in found.code


def test_without_an_entry_point() -> None:
    answer = f"{F}bash\nls\n{F}\n{F}python\nclass A:\n    pass\n{F}\n{F}python\nprint(A())\n{F}\n{F}\nout\n{F}"
    assert extract(answer, None).code == "class A:\n    pass\n"
    assert extract("def f():\n    return 1\n", None).code == "def f():\n    return 1\n"
    assert extract("Nothing here.", None).code is None


@pytest.mark.parametrize(
    "code",
    ["x = '\\d'\n", "x = 1 is 1\n", "x = " + "(" * 300, "x = '\0'", "x = '\ud800'", "-" * 100_000 + "1", "9" * 10_000],
)
def test_odd_text_is_parsed_without_a_warning_or_an_error(code: str) -> None:
    extract(f"{F}python\ndef add():\n    pass\n{code}\n{F}", None, entry_point="add")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "answer",
    [
        "</think>\n" * 20_000,
        "<think>\n" * 20_000,
        "x </think> y " * 20_000,
        "```python\n" * 20_000,
        "def add(a, b):\n    return (\n" * 1_900,
        "def add(a, b):\n    return '''a\n" * 1_500,
        "word " * 100_000,
        "def add(a, b):\n    return a + b\n" + "prose that does not compile\n" * 3_000,
        "`" * 100_000,
    ],
    ids=range(9),
)
def test_hostile_answers_do_not_stall(answer: str) -> None:
    assert extract(answer, None, finish_reason="length", entry_point="add").why


def test_language_of_info_strings() -> None:
    infos = ["python", " Py3 ", "{.python #id}", "{python, echo=FALSE}", 'python title="x"', "python:a/b.py", ""]
    assert [fences.language_of(info) for info in infos] == ["python", "py3", "python", "python", "python", "python", ""]


@given(st.text(alphabet=string.ascii_letters + "`~ \n>.1-", max_size=300))
def test_scanning_never_fails_and_offsets_are_true(text: str) -> None:
    reached = 0
    for block in fences.scan(text).blocks:
        assert reached <= block.start <= block.end <= len(text)
        reached = block.end


@given(
    st.text(alphabet="ab \n`'", max_size=80), st.lists(st.sampled_from(["<think>", "</think>", "```\n"]), max_size=6)
)
def test_parting_keeps_the_length_and_the_lines(text: str, tags: list[str]) -> None:
    mixed = text.join(tags) if tags else text
    parted = thinking.part(mixed)
    assert len(parted.answer) == len(mixed)
    assert extract(mixed, None, entry_point="a") is not None


@given(st.sampled_from(TABLE), st.integers(0, 400))
def test_an_answer_cut_anywhere_is_never_taken_for_whole(entry: tuple[str, str], at: int) -> None:
    """Cut at any character, an answer gives the right code, code that is marked as cut, a draft, or nothing."""
    _, answer = entry
    cut = answer[:at]
    found = extract(cut, None, finish_reason="length", entry_point="add")
    if found.code is not None and RIGHT.strip() not in found.code and WRONG.strip() not in found.code:
        assert found.truncated or source.parse(found.code) is not None
