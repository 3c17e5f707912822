"""Tests as source: calls a `check(candidate)`, and tells tests that run from tests that only define things."""

from __future__ import annotations

import ast

from evals import source


def runnable(tests: str, entry_point: str | None) -> str:
    """Returns tests that run: a `check(candidate)` that they define and never call is called with the entry point."""
    tree = source.parse(tests)
    if tree is None or entry_point is None or not source.defines(tree, "check") or _calls_check(tree):
        return tests
    return f"{tests}\n\ncheck({entry_point})\n"


def runs_something(tests: str) -> bool:
    """Tells whether tests do anything when they are run; tests that only define things would pass every answer."""
    tree = source.parse(tests)
    if tree is None:
        return False
    return any(
        not source.is_definition(statement)
        and not source.is_prose_like(statement)
        and not isinstance(statement, ast.Pass)
        for statement in tree.body
    )


def _calls_check(tree: ast.Module) -> bool:
    outside = [statement for statement in tree.body if not isinstance(statement, ast.FunctionDef | ast.ClassDef)]
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check"
        for statement in outside
        for node in ast.walk(statement)
    )
