"""Background text of any length: pieces of the running Python's own standard library.

Every piece begins with a character that is no white space and ends with an empty line, so that its tokens do not depend
on its neighbours and the counts of pieces add up.
"""

from __future__ import annotations

import functools
import math
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

MODULES = (
    "argparse", "ast", "calendar", "configparser", "contextlib", "copy", "csv", "dataclasses", "difflib", "doctest",
    "enum", "fractions", "ftplib", "functools", "getopt", "glob", "gzip", "heapq", "imaplib", "inspect", "ipaddress",
    "mailbox", "optparse", "pathlib", "pdb", "pickle", "queue", "random", "selectors", "shlex", "shutil", "smtplib",
    "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "traceback", "typing",
    "uuid", "weakref", "zipfile",
)  # fmt: skip
PIECE_CHARACTERS = 320  # about 80 tokens: fine enough for a prompt of 1,000, few enough for one of 100,000
_SHORTEST_PIECE = 120
_WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]+|\n+|[ \t]+")


def estimate_tokens(text: str) -> float:
    """Tokens of a text, guessed without a tokenizer: right within some 10 %, and nearly always to the same side.

    A word is a token for its first seven letters and one for every further five, three digits are one, two signs
    are one, a run of spaces counts from its second on. A calibration scales this to the server's tokenizer.
    """
    total = 0
    for found in _WORD.findall(text):
        first = found[0]
        if first in " \t":
            total += 1 if len(found) > 1 else 0
        elif first == "\n":
            total += 1
        elif first.isalpha():
            total += 1 + max(0, math.ceil((len(found) - 7) / 5))
        elif first.isdigit():
            total += math.ceil(len(found) / 3)
        else:
            total += math.ceil(len(found) / 2)
    return float(total)


@functools.lru_cache(maxsize=1)
def code_pieces() -> tuple[str, ...]:
    """Pieces of Python source, in an order that mixes modules and is always the same.

    Raises:
        ValueError: when the standard library's sources are not on this machine.
    """
    library = Path(sysconfig.get_path("stdlib"))
    found: list[str] = []
    for module in MODULES:
        for path in (library / f"{module}.py", library / module / "__init__.py"):
            if path.is_file():
                found.extend(_cut(path.read_text(encoding="utf-8", errors="replace")))
    if not found:
        raise ValueError(f"no Python sources in {library}, which the background of prompts is made of")
    return _mixed(found)


@functools.lru_cache(maxsize=1)
def prose_pieces() -> tuple[str, ...]:
    """Pieces of English prose: the language's own documentation; source code where Python comes without it."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return code_pieces()
    found: list[str] = []
    for topic in sorted(topics):
        found.extend(_cut("\n\n".join(_running_text(topics[topic]))))
    return _mixed(found)


def _running_text(topic: str) -> Iterator[str]:
    """The paragraphs of a topic that are sentences, not headings, grammar or examples."""
    for paragraph in re.split(r"\n\s*\n", topic):
        flat = " ".join(paragraph.split())
        letters = sum(c.isalpha() or c == " " for c in flat)
        if len(flat) >= _SHORTEST_PIECE and letters > 0.9 * len(flat) and flat[0].isupper() and flat.endswith("."):
            yield textwrap.fill(flat, 100)


def _cut(source: str) -> Iterator[str]:
    """Cuts a source at empty lines into pieces of about the wanted length."""
    block: list[str] = []
    size = 0
    for paragraph in re.split(r"\n[ \t]*\n", source):
        block.append(paragraph.strip("\n"))
        size += len(paragraph)
        if size >= PIECE_CHARACTERS:
            yield from _piece("\n".join(block))
            block, size = [], 0


def _piece(text: str) -> Iterator[str]:
    text = textwrap.dedent(text).strip("\n")
    limit = 2 * PIECE_CHARACTERS
    if len(text) > limit:
        text = text[: text.rfind("\n", 0, limit) + 1].rstrip("\n")
    if len(text) >= _SHORTEST_PIECE and text.isascii() and not text[0].isspace() and "<|" not in text:
        yield text.rstrip() + "\n\n"


def _mixed(pieces: list[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(pieces))
    random.Random(len(unique)).shuffle(unique)
    return tuple(unique)
