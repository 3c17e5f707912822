"""Untyped values into typed ones, with every fault found and not just the first.

`msgspec.convert` stops at the first fault; an operator who waits hours for a sweep wants all of them at once. Used by
the sweep file, and by nothing that has to be fast.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Path = tuple[str | int, ...]
Faults = list[tuple[Path, str]]
Hook = Callable[[type, Any], Any]


def typed(value: Any, kind: Any, *, hook: Hook, path: Path = (), faults: Faults) -> Any:
    """Converts a value, descending into structs so that each key is judged on its own.

    Args:
        value: what the TOML reader gave.
        kind: the wanted type.
        hook: msgspec's `dec_hook` for types of our own; raises `ValueError` with words.
        path: where the value stands.
        faults: (path, words) of every fault are added here.

    Returns:
        The typed value, or `None` where there were faults.
    """
    members = _members(kind)
    structs = [m for m in members if _is_struct(m)]
    if structs and isinstance(value, dict):
        return _struct(value, structs, hook, path, faults)
    if structs and not (None.__class__ in members and value is None):
        plain = [m for m in members if not _is_struct(m)]
        if not plain:
            faults.append((path, f"a table is wanted here, found {_shown(value)}"))
            return None
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple) and arguments and _is_struct(arguments[0]) and isinstance(value, list):
        items = [typed(v, arguments[0], hook=hook, path=(*path, i), faults=faults) for i, v in enumerate(value)]
        return origin(items)
    try:
        return msgspec.convert(value, kind, dec_hook=hook)
    except (msgspec.ValidationError, ValueError) as fault:
        faults.append((path, f"{_plain(str(fault))}; found {_shown(value)}"))
        return None


def _struct(value: dict[str, Any], structs: Sequence[Any], hook: Hook, path: Path, faults: Faults) -> Any:
    kind = structs[0]
    tag_field = kind.__struct_config__.tag_field
    tag = kind.__struct_config__.tag
    if tag is not None:
        by_tag = {s.__struct_config__.tag: s for s in structs}
        asked = value.get(tag_field)
        if asked not in by_tag:
            allowed = ", ".join(f'"{name}"' for name in by_tag)
            found = "it is missing" if asked is None else f"found {_shown(asked)}"
            faults.append(((*path, tag_field), f"one of {allowed} is wanted; {found}"))
            return None
        kind = by_tag[asked]
        value = {k: v for k, v in value.items() if k != tag_field}
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    before = len(faults)
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            faults.append(((*path, key), f"unknown key{hint} (allowed: {', '.join(fields)})"))
    given: dict[str, Any] = {}
    for key, field in fields.items():
        if key in value:
            given[field.name] = typed(value[key], field.type, hook=hook, path=(*path, key), faults=faults)
        elif field.required:
            faults.append((path, f'the key "{key}" is missing'))
    if len(faults) > before:
        return None
    try:
        return kind(**given)
    except ValueError as fault:
        faults.append((path, str(fault)))
        return None


def _members(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _plain(words: str) -> str:
    replaced = words.replace("Expected `", "wanted ").replace("`, got `", ", got ").replace("`", "")
    return replaced[:1].lower() + replaced[1:]


def _shown(value: Any) -> str:
    shown = msgspec.json.encode(value, enc_hook=str).decode()
    return shown if len(shown) <= 60 else shown[:57] + "..."
