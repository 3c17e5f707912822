"""Adds to the chosen code what it uses and an earlier block of the same answer defines.

Models like to give a helper in one block and the function in the next. Taking the last block alone would blame the
model for a `NameError`; joining all blocks would run its examples. So only definitions that are needed are taken.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from evals import source


def needed_definitions(code: str, others: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns source to put before `code`, and the names it brings.

    Args:
        code: the chosen code, which compiles.
        others: other code blocks of the answer, those nearest to the chosen one first.
    """
    known: dict[str, tuple[int, ast.stmt, str]] = {}
    for number, other in enumerate(others):
        tree = source.parse(other)
        if tree is None:
            continue
        for name, statement in source.top_level_names(tree).items():
            text = ast.get_source_segment(other, statement)
            if name not in known and text and source.is_definition(statement):
                known[name] = (-number, statement, _with_decorators(other, statement, text))
    pending = [name for name in source.missing_names(code) if name in known]
    taken: dict[str, tuple[int, ast.stmt, str]] = {}
    while pending:
        name = pending.pop()
        if name in taken:
            continue
        taken[name] = known[name]
        pending.extend(needed for needed in source.missing_names(known[name][2]) if needed in known)
    parts = sorted(taken.values(), key=lambda part: (part[0], part[1].lineno))
    texts = list(dict.fromkeys(part[2] for part in parts))
    return "".join(text + "\n\n" for text in texts), tuple(sorted(taken))


def _with_decorators(code: str, statement: ast.stmt, text: str) -> str:
    decorators = getattr(statement, "decorator_list", [])
    if not decorators:
        return text
    lines = code.splitlines()
    return "\n".join(lines[decorators[0].lineno - 1 : statement.lineno - 1]) + "\n" + text
