"""What a piece of text says as Python source: does it compile, what does it define, what does it still need.

Nothing here runs anything. The text was written by a model, so every way in which Python's own parser can refuse it
(syntax, null bytes, lone surrogates, nesting too deep) is the same answer: it does not compile.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings

LONGEST_SOURCE = 400_000
"""Characters beyond which a text is not looked at as Python: no answer is that long, and parsing it would stall."""

_ALWAYS_THERE = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__builtins__", "__annotations__"}


def parse(code: str) -> ast.Module | None:
    """Returns the syntax tree of `code`, or `None` when it would not compile as a module."""
    if len(code) > LONGEST_SOURCE:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bad escape in a model's string is not our operator's warning
        try:
            tree = ast.parse(code)
            compile(tree, "answer.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None
    return tree


def syntax_error_line(code: str) -> int | None:
    """Returns the line (from 1) at which `code` stops compiling, or `None` when it compiles or no line is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "answer.py", "exec", dont_inherit=True)
        except SyntaxError as error:
            return error.lineno
        except (ValueError, RecursionError, MemoryError, OverflowError):
            return None
    return None


def top_level_names(tree: ast.Module) -> dict[str, ast.stmt]:
    """Returns every name bound at the top level (also inside `if`, `try` and `with` there) with its last statement."""
    names: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in _bound(statement):
            names[name] = statement
    return names


def _bound(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            return [(alias.asname or alias.name).split(".")[0] for alias in statement.names]
        case ast.Assign():
            return [name for target in statement.targets for name in _targets(target)]
        case ast.AnnAssign():
            return _targets(statement.target) if statement.value is not None else []
        case ast.If() | ast.For() | ast.While():
            return _bound_all(statement.body + statement.orelse)
        case ast.With():
            return _bound_all(statement.body)
        case ast.Try():
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            return _bound_all(statement.body + handlers + statement.orelse + statement.finalbody)
    return []


def _bound_all(statements: list[ast.stmt]) -> list[str]:
    return [name for statement in statements for name in _bound(statement)]


def _targets(target: ast.expr) -> list[str]:
    match target:
        case ast.Name():
            return [target.id]
        case ast.Tuple() | ast.List():
            return [name for element in target.elts for name in _targets(element)]
        case ast.Starred():
            return _targets(target.value)
    return []


def defines(tree: ast.Module, name: str) -> bool:
    """Tells whether the module binds `name` at its top level."""
    return name in top_level_names(tree)


def seems_to_define(code: str, name: str) -> bool:
    """Tells whether text that may not compile has the beginning of a definition of `name`."""
    word = re.escape(name)
    return bool(re.search(rf"(?m)^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{word}\b|^{word}[ \t]*=[^=]", code))


def missing_names(code: str) -> frozenset[str]:
    """Returns the global names that `code` (which compiles) uses without binding them: what it needs from elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = symtable.symtable(code, "answer.py", "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used: set[str] = set()
    pending = [table]
    while pending:
        scope = pending.pop()
        pending.extend(scope.get_children())
        for symbol in scope.get_symbols():
            if scope.get_type() != "module" and symbol.is_declared_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (symbol.is_global() or scope.get_type() == "module"):
                used.add(symbol.get_name())
    return frozenset(used - bound - _ALWAYS_THERE)


def is_definition(statement: ast.stmt) -> bool:
    """Tells whether a statement only gives names: an import, a function, a class or a plain assignment."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        value = statement.value
        return value is not None and not any(isinstance(node, ast.Call) for node in ast.walk(value))
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def is_prose_like(statement: ast.stmt) -> bool:
    """Tells whether a statement is an expression without a call: what a line of prose is when it happens to compile."""
    return isinstance(statement, ast.Expr) and not any(
        isinstance(node, ast.Call | ast.Await | ast.Yield) for node in ast.walk(statement.value)
    )
