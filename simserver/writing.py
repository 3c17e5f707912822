"""What the simulated model says: a function of the prompt and the seed alone.

A thinking model: reasoning first, with half-finished code blocks in it, then a bare `</think>`, then the answer with
its final code block.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from simserver import tokenizer
from simserver.problems import instruction_of, solve, wanted_function
from simserver.tokenizer import THINK_END

_THOUGHTS = (
    "The user wants {topic}, so let me think about what is really being asked here.",
    "First I should pin down the edge cases: empty input, a single element, and repeated values.",
    "A simple loop is probably enough, but let me check whether the obvious version handles {edge}.",
    "If the input is {edge}, the first idea returns the wrong thing, so I need to be careful.",
    "Wait, that is not quite right. Let me reconsider {edge}.",
    "Let me trace through a small example by hand: with {number} items the loop runs {number} times.",
    "The cost is linear in the size of the input, which should be fine for {number} thousand elements.",
    "Another way would be to sort first, but that changes the order and costs more than it gains.",
    "I could use a dictionary here; lookups are constant time and the code stays short.",
    "Hmm, what about {edge}? The statement does not say, so the safe reading is to handle it too.",
    "Python's slicing makes this easy, although an explicit index is clearer to read.",
    "So the plan is: normalise the input, walk over it once, and build the result as I go.",
    "That seems right. Checking again with {number}: the result matches what I expect.",
    "The context above also defines some other code, but the question only concerns the last part.",
    "I want the answer to be short and complete, without relying on anything outside the standard library.",
)
_EDGES = ("an empty string", "negative numbers", "zero", "duplicates", "mixed upper and lower case", "one element")
_TOPICS = ("a small, correct function", "a clear explanation", "working code", "a careful answer")
_PROSE = (
    "There are {number} points worth making here, and the first one matters most.",
    "The short answer is that it depends on {edge}, but the long answer is more useful.",
    "Consider what happens when the load grows: queues form, and the slowest part decides the pace.",
    "In practice people measure once, believe the figure, and move on; that is how mistakes survive.",
    "A careful reader would ask where the number came from and what was running at the time.",
    "The lighthouse keeper looked at the log again and found that {number} entries were missing.",
    "None of this is surprising once the parts are laid side by side and compared honestly.",
    "It helps to draw the path of a single request from its start to its last token.",
    "On balance the simpler design wins, because it can be explained in one paragraph.",
    "What remains is to try it with {edge} and to write down what was seen.",
)
_CLOSINGS = (
    "This runs in linear time and handles the edge cases above.",
    "It needs nothing beyond the standard library.",
    "The empty input is covered by the same path, so no special case is needed.",
)


@dataclass(frozen=True)
class Answer:
    """What the model would say if nobody stopped it.

    Attributes:
        pieces: tokens as text, without the end token.
        reasoning: how many of them are reasoning, the closing tag included.
    """

    pieces: tuple[str, ...]
    reasoning: int


def _fill(rng: random.Random, sentence: str) -> str:
    return sentence.format(topic=rng.choice(_TOPICS), edge=rng.choice(_EDGES), number=rng.choice((2, 3, 5, 7, 12, 40)))


def _unfinished(code: str, rng: random.Random) -> str:
    """Returns the beginning of some code, cut in the middle of a line, fenced as if it were finished."""
    lines = code.splitlines()
    cut = rng.randrange(2, max(3, len(lines)))
    last = lines[min(cut, len(lines) - 1)]
    stump = last[: max(6, len(last) // 2)].rstrip() + " = ["
    return "```python\n" + "\n".join([*lines[:cut], stump]) + "\n```\n"


def _reasoning(rng: random.Random, code: str | None, length: int) -> str:
    parts: list[str] = []
    blocks = 2 if code else 0
    tokens = 0
    while tokens < length or blocks:
        paragraph = " ".join(_fill(rng, rng.choice(_THOUGHTS)) for _ in range(rng.randrange(2, 5))) + "\n\n"
        if code and blocks and tokens >= length * (0.3 if blocks == 2 else 0.6):
            paragraph += "Something like this:\n\n" + _unfinished(code, rng) + "\nNo, let me start that again.\n\n"
            blocks -= 1
        parts.append(paragraph)
        tokens += len(paragraph) // 5
    return "".join(parts).rstrip("\n") + "\n"


def compose(prompt: str, rng: random.Random, *, thinking: bool, right: bool) -> Answer:
    """Writes the answer to a prompt.

    Args:
        prompt: the question as the user put it.
        rng: seeded by prompt and seed (and by the draw, when sampled).
        thinking: whether the answer starts with reasoning.
        right: whether a known coding problem is answered rightly.
    """
    wanted = wanted_function(prompt)
    reasoning = ""
    if wanted is None:
        if thinking:
            reasoning = _reasoning(rng, None, rng.randrange(120, 420)) + THINK_END + "\n\n"
        paragraphs = [
            " ".join(_fill(rng, rng.choice(_PROSE)) for _ in range(rng.randrange(3, 7)))
            for _ in range(rng.randrange(3, 7))
        ]
        answer = "\n\n".join(paragraphs)
    else:
        name, parameters = wanted
        solution = solve(name, parameters, right)
        if thinking:
            reasoning = _reasoning(rng, solution.right, rng.randrange(180, 520)) + THINK_END + "\n\n"
        answer = f"Here is `{name}`, which {solution.words}:\n\n```python\n{solution.right}```\n\n" + " ".join(
            rng.sample(_CLOSINGS, 2)
        )
    thought = tokenizer.split(reasoning)
    count = thought.index(THINK_END) + 1 if thought else 0
    return Answer(tuple(tokenizer.split(reasoning + answer)), count)


def carry_on(rng: random.Random, length: int) -> list[str]:
    """Returns tokens that follow an ignored end of the answer."""
    pieces: list[str] = []
    while len(pieces) < length:
        pieces += tokenizer.split("\n\n" + " ".join(_fill(rng, rng.choice(_PROSE)) for _ in range(5)))
    return pieces[:length]


def corrupt(pieces: list[str], rng: random.Random) -> list[str]:
    """Returns the tokens as a broken verify mask lets them through: now and then another token."""
    start = rng.randrange(4, 40)
    out = list(pieces)
    for index in range(start, len(out)):
        if (index == start or rng.random() < 0.04) and out[index] != THINK_END:
            out[index] = rng.choice((" the", " is", " return", " x", " not", " value"))
    return out


_KINDS = (
    ("snippets", r"\b(?:python|code|function|class|script|sql|regular expression)\b"),
    (
        "prose",
        r"\b(?:story|essay|poem|haiku|novel|letter|e-mail|portrait|describe|tell of|tell the|summarise|report)\b",
    ),
    (
        "math",
        r"\b(?:prove|integral|equations?|solve|how many|probability|compute|theorem|find|show that|determine|sum)\b",
    ),
)


def kind_of(prompt: str) -> str:
    """Returns the kind of content a prompt asks for: code, snippets, math, prose or chat."""
    if wanted_function(prompt) is not None:
        return "code"
    instruction = instruction_of(prompt).lower()
    return next((kind for kind, words in _KINDS if re.search(words, instruction)), "chat")
