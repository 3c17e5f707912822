"""Keeps tests fair: a value that equals or outranks everything must not pass `assert f(x) == y`.

The comparisons of a test are wrapped where they stand, so that line numbers stay true; values pass through unchanged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evals import source

GUARD = "__fair__"
"""Name under which `inside.py` gives the guard to the tests."""


def fair(tests: str) -> str:
    """Returns tests whose comparisons look at both sides first; tests that do not compile come back as they are."""
    tree = source.parse(tests)
    if tree is None:
        return tests
    lines = tests.encode().splitlines(keepends=True)
    inserts: list[tuple[int, int, int, bytes]] = []
    for node in _comparisons(tree):
        for side in (node.left, *node.comparators):
            if isinstance(side, ast.Constant | ast.JoinedStr) or side.end_lineno is None or side.end_col_offset is None:
                continue
            inserts.append((side.lineno, side.col_offset, 1, f"{GUARD}((".encode()))
            inserts.append((side.end_lineno, side.end_col_offset, 0, b"))"))
    for line, column, _, text in sorted(inserts, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column:]
    changed = b"".join(lines).decode()
    return changed if source.parse(changed) is not None else tests


def _comparisons(tree: ast.AST) -> Iterator[ast.Compare]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            continue  # positions inside f-strings are not those of the file
        if isinstance(node, ast.Compare) and any(_ranks(operator) for operator in node.ops):
            yield node
        yield from _comparisons(node)


def _ranks(operator: ast.cmpop) -> bool:
    return isinstance(operator, ast.Eq | ast.Lt | ast.Gt | ast.LtE | ast.GtE)
