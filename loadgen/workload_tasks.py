"""What is asked of the model: tasks by kind of content, ways of asking more precisely, and follow-ups.

Written for this program. Acceptance depends on content more than on anything else, so the kinds are kept apart.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Content = Literal["code", "prose", "math", "chat"]


class TaskSet(msgspec.Struct, frozen=True, kw_only=True):
    """The material of one kind of content.

    Attributes:
        intro: stands between the opening and the background.
        bridge: stands between the background and the task.
        tasks: what is asked; each ends a sentence.
        refinements: sentences that may follow any task; they bring a prompt to its wanted length.
        follow_ups: the next turns of a conversation.
    """

    intro: str
    bridge: str
    tasks: tuple[str, ...]
    refinements: tuple[str, ...]
    follow_ups: tuple[str, ...]


_CODE = TaskSet(
    intro="These parts of a larger Python program are given for reference:\n\n",
    bridge="With the same habits of naming and layout, do the following.\n\n",
    tasks=(
        "Write a Python function that merges two sorted lists into one sorted list.",
        "Write a Python class for a bounded queue with blocking put and get.",
        "Write a Python function that parses an ISO 8601 duration into seconds.",
        "Write a Python function that finds the longest common subsequence of two strings.",
        "Write a least-recently-used cache in Python without functools.",
        "Write a Python function that evaluates an arithmetic expression with parentheses.",
        "Write a Python function that topologically sorts a graph and reports cycles.",
        "Write a Python iterator over the permutations of a list in lexicographic order.",
        "Write a Python class for a binary heap with push, pop and replace.",
        "Write a Python function that splits a text into sentences.",
        "Write a trie in Python with insert, delete and prefix search.",
        "Write a Python function that converts Roman numerals to integers and back.",
        "Write a token bucket rate limiter in Python.",
        "Write a Python function that solves a Sudoku by backtracking.",
        "Write a Python function that diffs two lists of lines.",
        "Write a Python command line program that counts words in files.",
        "Write a Python function that finds all paths in a maze given as a grid.",
        "Write a Python context manager that measures time and nests.",
        "Write a Python function that reads a CSV file and groups its rows by a column.",
        "Write a Python class for sparse matrices with addition and multiplication.",
        "Write a Python function that balances the brackets of a string with fewest changes.",
        "Write a Python decorator that retries with exponential waits.",
        "Write a Python function that compresses a string by run lengths and expands it again.",
        "Write an interval tree in Python with insertion and overlap queries.",
    ),
    refinements=(
        "Use type hints.",
        "Add a docstring.",
        "Handle empty input.",
        "Avoid recursion.",
        "Keep it short.",
        "Raise ValueError for wrong input.",
        "Give three examples.",
        "Then write tests for it.",
        "State the complexity.",
        "Use only the standard library.",
        "Explain each step in a comment.",
        "Make it work for very large inputs.",
        "Name every variable for what it holds.",
        "Show how it is called from another module.",
        "Compare it with a second way of doing the same.",
        "Do not change the arguments that are passed in.",
        "Mention the corner cases that are easily forgotten.",
        "Finish with a main block that prints a small demonstration.",
        "Write it so that a beginner can follow the order of events.",
        "Pay attention to equal elements, negative numbers and repeated calls.",
    ),
    follow_ups=(
        "Now write unit tests for it, one for each corner case.",
        "Make it twice as fast, and explain what you changed.",
        "Rewrite it as a class with a small public interface.",
        "Add logging and clear error messages.",
    ),
)
_PROSE = TaskSet(
    intro="Read this material first:\n\n",
    bridge="That was the material. Now to the text that is wanted.\n\n",
    tasks=(
        "Write a story about a lighthouse keeper who receives an unexpected letter.",
        "Describe a market in an old harbour town on a rainy morning.",
        "Write an essay on why people keep diaries.",
        "Tell the history of an invented island over three centuries.",
        "Write a letter from a gardener to a friend about the past year.",
        "Describe a long train journey through the mountains in winter.",
        "Write a portrait of a watchmaker who never leaves the street of the workshop.",
        "Write a report about the opening of a small museum.",
        "Tell of two neighbours who share a wall and nothing else.",
        "Write an essay on silence in large cities.",
    ),
    refinements=(
        "Avoid lists.",
        "Use the past tense.",
        "Let nobody speak.",
        "Take your time.",
        "Give it a title.",
        "Begin in the middle of things.",
        "Let the weather play a part.",
        "End on a quiet note.",
        "Write for a reader who is in no hurry.",
        "Keep the sentences long and the words simple.",
        "Mention a colour in every paragraph of the text.",
        "Do not explain more than the people in it could know.",
    ),
    follow_ups=(
        "Continue from there, ten years later.",
        "Tell the same from another point of view.",
        "Shorten it to half, and keep its mood.",
    ),
)
_MATH = TaskSet(
    intro="This background may or may not be of use:\n\n",
    bridge="The problem itself follows.\n\n",
    tasks=(
        "Find all integers n for which n squared plus n plus 41 is divisible by 43.",
        "Prove that the sum of the first n odd numbers is n squared.",
        "Compute the area between the curves y = x squared and y = 2x.",
        "How many ways are there to tile a 2 by 12 board with dominoes?",
        "Solve the system x + y + z = 6, xy + yz + zx = 11, xyz = 6.",
        "Show that the square root of 3 is irrational.",
        "A die is thrown until every face has appeared; find the expected number of throws.",
        "Find the last two digits of 7 to the power of 2026.",
        "Determine the eigenvalues of the matrix with rows (2, 1, 0), (1, 2, 1), (0, 1, 2).",
        "Find the shortest distance from the point (3, 4, 5) to the plane x + 2y + 2z = 9.",
    ),
    refinements=(
        "Show every step.",
        "Name each theorem used.",
        "Check the result.",
        "Give the exact value.",
        "Draw no pictures.",
        "Then solve it in a second way.",
        "State clearly where each assumption enters.",
        "Point out the step where most mistakes are made.",
        "Finish with the answer alone on a line of its own.",
    ),
    follow_ups=(
        "Generalise the result and prove the general statement.",
        "Give three similar problems with their solutions.",
        "Explain the key idea to a pupil of fifteen years.",
    ),
)
_CHAT = TaskSet(
    intro="For the record, this is what we looked at before:\n\n",
    bridge="But today I have another question.\n\n",
    tasks=(
        "How do I get a sourdough bread to rise in a cold kitchen?",
        "What should I look at before I buy a used bicycle?",
        "I have three days in Lisbon with two children; what would you do?",
        "My tomato plants have yellow leaves; what may be the reason?",
        "How can I learn to read music as an adult?",
        "Which questions should I ask before I rent a flat?",
        "What is a good way to begin with running after years without sport?",
        "How do I repair a dripping tap?",
        "How do I prepare for a job interview in a week?",
        "Can you explain how a heat pump works?",
    ),
    refinements=(
        "Be honest.",
        "Thanks in advance!",
        "I am a beginner.",
        "Please be specific.",
        "Money is a question too.",
        "Tell me what to avoid as well.",
        "A short list at the end would help me.",
        "I have about an hour each day for this.",
        "Please also say what you are not sure about.",
    ),
    follow_ups=(
        "Thank you. And what would you do if that did not work?",
        "Could you put that into a plan for the next two weeks?",
        "What do people get wrong there most often?",
    ),
)

TASKS: dict[Content, TaskSet] = {"code": _CODE, "prose": _PROSE, "math": _MATH, "chat": _CHAT}

OPENING_WORDS: tuple[str, ...] = (
    "amber", "anchor", "apple", "arrow", "autumn", "bamboo", "basket", "beacon", "bell", "birch", "bishop",
    "bottle", "branch", "bridge", "bronze", "butter", "cabin", "camel", "candle", "canyon", "carbon",
    "castle", "cedar", "chapel", "cherry", "circle", "cloud", "clover", "cobalt", "coffee", "copper", "coral",
    "corner", "cotton", "cradle", "crane", "crystal", "daisy", "delta", "desert", "diamond", "dolphin",
    "dragon", "eagle", "ember", "engine", "falcon", "feather", "fiddle", "field", "flame", "forest", "fossil",
    "fox", "garden", "garlic", "ginger", "glacier", "globe", "granite", "grape", "guitar",
    "hammer", "harbor", "hazel", "helmet", "honey", "horizon", "hunter", "island", "ivory", "jacket",
    "jasmine", "jungle", "kettle", "kitten", "ladder", "lagoon", "lantern", "lemon", "lily", "lizard",
    "magnet", "maple", "marble", "market", "meadow", "melon", "mirror", "monkey", "moon",
    "needle", "nickel", "oak", "ocean", "olive", "orange", "orchid", "oyster", "palace", "panther", "paper",
    "peach", "pearl", "pepper", "pigeon", "pilot", "planet", "plum", "pocket", "pony", "prairie", "rabbit",
    "raven", "ribbon", "river", "robin", "rocket", "saddle", "salmon", "satin", "shadow", "silver", "sparrow",
    "spider", "stone", "summer", "sunset", "temple", "thunder", "tiger", "timber", "tower", "tulip", "tunnel",
    "turtle", "valley", "velvet", "violin", "walnut", "whale", "willow", "winter", "wolf", "yellow",
)  # fmt: skip
