"""Tokens and text: one count for all, the same text for the same prompt, and code that is right when it should be."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserver import tokenizer, writing
from simserver.problems import SOLUTIONS, solve, wanted_function
from simserver.writing import compose

CHECKS = {
    "is_palindrome": "assert is_palindrome('A man, a plan, a canal: Panama') and is_palindrome('') "
    "and not is_palindrome('abab')",
    "fib": "assert [fib(n) for n in (0, 1, 2, 10)] == [0, 1, 1, 55]",
    "merge_sorted": "assert merge_sorted([1, 1, 2], [1, 3]) == [1, 1, 1, 2, 3] and merge_sorted([], [1]) == [1]",
    "word_count": "assert word_count('Go, go, GO! (no)') == {'go': 3, 'no': 1} and word_count('') == {}",
    "gcd": "assert gcd(0, 9) == 9 and gcd(-12, 18) == 6 and gcd(1071, 462) == 21 and gcd(0, 0) == 0",
}
FILLER = "def helper(x):\n    pass\n" * 200
TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<"), max_size=200)


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_tokens_joined_are_the_text_and_any_run_of_them_tokenizes_to_itself(text: str) -> None:
    pieces = tokenizer.split(text)
    assert "".join(pieces) == text
    for cut in range(0, len(pieces), 3):
        assert tokenizer.split("".join(pieces[:cut])) == pieces[:cut]


def test_special_tokens_are_single_tokens() -> None:
    assert tokenizer.split("a</think>b") == ["a", "</think>", "b"]
    prompt = tokenizer.chat_prompt([("system", "Be brief."), ("user", "Hi")], thinking=True)
    assert prompt.endswith("<|im_assistant|>assistant<|im_middle|><think>")
    assert tokenizer.split(prompt)[-1] == "<think>"


def test_ids_are_the_same_in_every_process_and_lead_back_to_the_text() -> None:
    program = "from simserver.tokenizer import token_id; print(token_id(' return'), token_id('</think>'))"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert other.split() == [str(tokenizer.token_id(piece)) for piece in (" return", "</think>")]
    ids = [tokenizer.token_id(piece) for piece in tokenizer.split("def fib(n):\n    return n")]
    assert "".join(map(tokenizer.piece_of, ids)) == "def fib(n):\n    return n"
    assert tokenizer.piece_of(3) == " t3"


def run(code: str, check: str) -> bool:
    scope: dict[str, object] = {}
    try:
        exec(code + "\n" + check, scope)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", SOLUTIONS)
def test_right_answers_are_right_and_wrong_ones_are_wrong(name: str) -> None:
    assert run(solve(name, "", True).right, CHECKS[name])
    assert not run(solve(name, "", False).right, CHECKS[name])


@pytest.mark.parametrize("name", SOLUTIONS)
def test_the_reasoning_holds_broken_code_and_the_answer_ends_with_the_whole_function(name: str) -> None:
    prompt = f"Write a Python function `{name}(x)` that does it."
    answer = compose(prompt, random.Random(3), thinking=True, right=True)
    text = "".join(answer.pieces)
    thought, tag, said = text.partition("</think>")
    assert tag
    assert text.count("</think>") == 1
    assert "<think>" not in text
    assert "".join(answer.pieces[: answer.reasoning]) == thought + tag
    blocks = re.findall(r"```python\n(.*?)```", thought, re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        with pytest.raises(SyntaxError):
            compile(block, "reasoning", "exec")
    assert run(re.findall(r"```python\n(.*?)```", said, re.DOTALL)[-1], CHECKS[name])


def test_text_depends_on_the_prompt_and_the_seed_alone() -> None:
    def say(prompt: str, seed: int) -> str:
        return "".join(compose(prompt, random.Random(f"{seed}|{prompt}"), thinking=True, right=True).pieces)

    assert say("Tell me a story.", 1) == say("Tell me a story.", 1)
    assert say("Tell me a story.", 1) != say("Tell me a story.", 2)
    assert say("Tell me a story.", 1) != say("Tell me a tale.", 1)


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Write a Python function `fib(n)` that returns the n-th number.", "fib"),
        ("import math\ndef gcd(a, b): ...\n" * 5 + "Write a function named `count_vowels` please", "count_vowels"),
        ("def helper(x):\n    pass\n\nNow implement word_count(text).", "word_count"),
        ("Complete this:\n\ndef has_close_elements(numbers, threshold):\n", "has_close_elements"),
        (
            'Complete this.\n\n```python\ndef digitSum(s):\n    """Adds.\n\n    Words.\n```\n\nAnswer in code.',
            "digitSum",
        ),
        ('def add(x, y):\n    """Adds.\n\n    Plain words here.\n    """\n', "add"),
        (FILLER + "\n\nDo this.\n\nWrite a Python function that adds.", "solution"),
        (FILLER + "\n\nNow to the text.\n\nWrite a story about rain.", None),
        ("Why is the sky blue?", None),
    ],
    ids=range(9),
)
def test_the_function_that_is_asked_for_last_counts(prompt: str, name: str | None) -> None:
    found = wanted_function(prompt)
    assert (found[0] if found else None) == name


def test_an_unknown_function_gets_code_that_compiles() -> None:
    code = solve("has_close_elements", "numbers: list, threshold: float = 0.5", True).right
    scope: dict[str, object] = {}
    exec(code, scope)
    assert "has_close_elements" in scope


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("Write a Python function `gcd(a, b)`.", "code"),
        ("What does this Python code print?", "snippets"),
        ("Solve for x: the equation 2x = 4. How many solutions?", "math"),
        ("Write a short story about a storm.", "prose"),
        ("What should I cook tonight?", "chat"),
    ],
)
def test_the_kind_of_content(prompt: str, kind: str) -> None:
    assert writing.kind_of(prompt) == kind


def test_what_follows_an_ignored_end_has_the_wanted_length() -> None:
    assert len(writing.carry_on(random.Random(1), 333)) == 333


def test_corrupted_text_differs_early_and_keeps_its_length() -> None:
    pieces = list(compose("Tell me a story.", random.Random(1), thinking=False, right=True).pieces)
    broken = writing.corrupt(pieces, random.Random(2))
    assert len(broken) == len(pieces)
    first = next(index for index, (a, b) in enumerate(zip(pieces, broken, strict=True)) if a != b)
    assert first < 64
