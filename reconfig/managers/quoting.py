"""Arguments put into commands: spliced into a list, quoted for a shell at the other end, quoted for systemd."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_ENV = re.compile(r"^\{env(?::(?P<before>[^}]*))?\}$")


def with_arguments(command: Sequence[str], arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """A command with a preset's arguments in it: where a placeholder stands, or at its end.

    Placeholders are whole elements: "{arguments}", "{quoted_arguments}", "{env}", "{env:-e}".
    """
    spliced: list[str] = []
    placed = False
    for element in command:
        if element == "{arguments}":
            spliced.extend(arguments)
            placed = True
        elif "{quoted_arguments}" in element:
            spliced.append(element.replace("{quoted_arguments}", shlex.join(arguments)))
            placed = True
        elif (match := _ENV.match(element)) is not None:
            for name, value in env.items():
                spliced.extend([match["before"]] if match["before"] else [])
                spliced.append(f"{name}={value}")
        else:
            spliced.append(element)
    return spliced if placed else [*spliced, *arguments]


def as_shell_line(command: Sequence[str], env: Mapping[str, str]) -> str:
    """A command as one would type it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    return " ".join([*variables, shlex.join(command)])


def systemd_environment(name: str, value: str) -> str:
    """A line `Environment="NAME=VALUE"` of a unit file."""
    return f'Environment="{_escaped(name)}={_escaped(value)}"'


def systemd_command(command: Sequence[str]) -> str:
    """A command line of a unit file; nothing in it is expanded."""
    return " ".join(f'"{_escaped(word).replace("$", "$$")}"' for word in command)


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped.replace("\n", "\\n").replace("\t", "\\t")
