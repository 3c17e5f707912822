"""Answers to small coding problems: right ones, and wrong ones that look right."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Solution:
    """Code for one problem.

    Attributes:
        right, wrong: whole function definitions.
        words: what the function does, for the prose around it.
    """

    right: str
    wrong: str
    words: str


SOLUTIONS = {
    "is_palindrome": Solution(
        right='''def is_palindrome(s: str) -> bool:
    """Return True if s reads the same both ways, ignoring case and anything but letters and digits."""
    cleaned = [ch.lower() for ch in s if ch.isalnum()]
    return cleaned == cleaned[::-1]
''',
        wrong='''def is_palindrome(s: str) -> bool:
    """Return True if s reads the same both ways."""
    half = len(s) // 2
    return s[:half] == s[half:]
''',
        words="checks whether a string reads the same forwards and backwards",
    ),
    "fib": Solution(
        right='''def fib(n: int) -> int:
    """Return the n-th Fibonacci number, with fib(0) == 0 and fib(1) == 1."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
''',
        wrong='''def fib(n: int) -> int:
    """Return the n-th Fibonacci number."""
    a, b = 1, 1
    for _ in range(n):
        a, b = b, a + b
    return a
''',
        words="computes Fibonacci numbers with two running values",
    ),
    "merge_sorted": Solution(
        right='''def merge_sorted(a: list, b: list) -> list:
    """Merge two sorted lists into one sorted list."""
    merged = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            merged.append(a[i])
            i += 1
        else:
            merged.append(b[j])
            j += 1
    merged.extend(a[i:])
    merged.extend(b[j:])
    return merged
''',
        wrong='''def merge_sorted(a: list, b: list) -> list:
    """Merge two sorted lists into one sorted list."""
    merged = []
    for left, right in zip(a, b):
        merged.append(min(left, right))
        merged.append(max(left, right))
    return merged
''',
        words="walks both lists with one index each and always takes the smaller head",
    ),
    "word_count": Solution(
        right='''def word_count(text: str) -> dict:
    """Count how often each word occurs, ignoring case and punctuation around words."""
    counts: dict = {}
    for raw in text.lower().split():
        word = raw.strip(".,;:!?\\"'()[]{}")
        if word:
            counts[word] = counts.get(word, 0) + 1
    return counts
''',
        wrong='''def word_count(text: str) -> dict:
    """Count how often each word occurs."""
    counts: dict = {}
    for word in text.split(" "):
        counts[word] = 1
    return counts
''',
        words="splits the text into words and counts each one in a dictionary",
    ),
    "gcd": Solution(
        right='''def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor of a and b, never negative."""
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a
''',
        wrong='''def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor of a and b."""
    for candidate in range(2, min(a, b) + 1):
        if a % candidate == 0 and b % candidate == 0:
            return candidate
    return 1
''',
        words="uses Euclid's algorithm on the absolute values",
    ),
}

_SIGNATURE = re.compile(r"\bdef\s+([A-Za-z_]\w*)\s*\(([^)]*)\)")
_CALLED = re.compile(
    r"(?:function|method|def|named|called|implement|write)\s+(?:a\s+)?(?:python\s+)?(?:function\s+)?"
    r"(?:named\s+|called\s+)?[`'\"]?([a-z_]\w*)[`'\"]?\s*\(([^)\n]*)\)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?:function|named|called|implement)\s+[`'\"]([A-Za-z_]\w*)[`'\"]", re.IGNORECASE)
_FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
_CODE_LINE = re.compile(
    r"^\s*(?:def |class |>>>|return\b|import |from \w+ import|@\w|#|[\w.]+ = )|[({\[]\s*$", re.MULTILINE
)
_CODE_TASK = re.compile(
    r"\b(?:write|implement|create|complete|rewrite|add|make)\b.*\b(?:python|function|class|code|script|program|tests?)\b",
    re.IGNORECASE | re.DOTALL,
)
_TAIL = 3000


def instruction_of(prompt: str) -> str:
    """Returns what a prompt asks, without the material before it: the last two paragraphs, code left out."""
    kept: list[str] = []
    for paragraph in reversed([part for part in prompt[-_TAIL:].split("\n\n") if part.strip()]):
        if _CODE_LINE.search(paragraph) and kept:
            break
        kept.append(paragraph)
        if len(kept) == 2 or _CODE_LINE.search(paragraph):
            break
    return "\n\n".join(reversed(kept))


def wanted_function(prompt: str) -> tuple[str, str] | None:
    """Returns name and parameters of the function that a prompt asks for, or `None`.

    What the instruction names comes first, the last one of several; then the function of a fenced block, or of code at
    the prompt's start or end; a code task that names nothing wants a `solution`. Source code long before the question
    is not asked for.
    """
    instruction = instruction_of(prompt)
    named = _named(instruction)
    if named is not None:
        return named
    tail = prompt[-_TAIL:]
    blocks = list(_FENCED.finditer(tail))
    starts = len(prompt) < _TAIL and _CODE_LINE.match(prompt.lstrip()) is not None
    code = blocks[-1].group(1) if blocks else tail if starts or _CODE_LINE.search(instruction) else ""
    signatures = list(_SIGNATURE.finditer(code))
    if signatures:
        return signatures[-1].group(1), signatures[-1].group(2)
    return ("solution", "value") if _CODE_TASK.search(instruction) else None


def _named(text: str) -> tuple[str, str] | None:
    found: list[tuple[int, str, str]] = []
    for pattern in (_CALLED, _SIGNATURE, _QUOTED):
        found += [(each.start(1), each.group(1), (*each.groups(), "value")[1]) for each in pattern.finditer(text)]
    for name in SOLUTIONS:
        found += [(each.start(), name, "") for each in re.finditer(rf"\b{name}\b", text)]
    return max(found)[1:] if found else None


def solve(name: str, parameters: str, right: bool) -> Solution:
    """Returns code for the named function; an unknown one gets a plausible body that nobody has checked."""
    solution = SOLUTIONS.get(name)
    if solution is not None:
        return solution if right else Solution(solution.wrong, solution.wrong, solution.words)
    names = [part.split(":")[0].split("=")[0].strip(" *") for part in parameters.split(",")]
    names = [each for each in names if each.isidentifier()]
    first = names[0] if names else "value"
    body = f'''def {name}({parameters.strip() or "value"}):
    """Answer the question step by step."""
    result = []
    for item in {first} if hasattr({first}, "__iter__") else [{first}]:
        result.append(item)
    return result
'''
    return Solution(body, body, "goes through the input once and collects the result")
