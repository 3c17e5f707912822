"""What a `[server.manager]` table can't mean, said while the file is read and not when a server is to be restarted.

Each function gives the words of what is wrong; none where nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reconfig.durations import seconds
from reconfig.redaction import is_secret

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Not what a shell's script calls ${arguments} or ${env}.
_ARGUMENTS_WITHIN = re.compile(r"(?<!\$)\{arguments\}")
_ENV_WITHIN = re.compile(r"(?<!\$)\{env(:[^}]*)?\}")


def durations(given: Mapping[str, str | float], *, may_be_zero: Sequence[str]) -> Iterator[str]:
    """Texts that are no durations, and limits of nothing at all."""
    for key, value in given.items():
        try:
            value_s = seconds(value)
        except ValueError as error:
            yield f"{key}: {error}"
            continue
        if value_s == 0 and key not in may_be_zero:
            yield f"{key} = {value}: nothing is done in no time; give a limit"


def command(key: str, words: Sequence[str], *, example: str) -> Iterator[str]:
    """A list that can't be run."""
    if not words or not words[0].strip():
        yield f"{key} = {list(words)}: an argument list is needed, such as {example}"
    if any("\0" in word for word in words):
        yield f"{key}: a null character can't be in a command"


def placeholders(key: str, words: Sequence[str], *, needed: bool = False) -> Iterator[str]:
    """Placeholders that would reach the server as they are, or no place for a preset's flags where one is needed."""
    for word in words:
        if word != "{arguments}" and _ARGUMENTS_WITHIN.search(word):
            yield (
                f'{key}: "{word}": {{arguments}} becomes several elements and must be one of its own; within a text '
                "that a shell splits again write {quoted_arguments}"
            )
        if _ENV_WITHIN.search(word) and not _ENV_WITHIN.fullmatch(word):
            yield f'{key}: "{word}": {{env}} must be an element of its own'
    if needed and not any("{arguments}" in word or "{quoted_arguments}" in word for word in words):
        yield (
            f'{key} has no place for a preset\'s flags: add the element "{{arguments}}", or "{{quoted_arguments}}" '
            "where a shell splits the line again (ssh)"
        )


def environment(given: Mapping[str, str]) -> Iterator[str]:
    """Variables that can't be, and keys in a file that every session keeps."""
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            yield f"env: {name!r} can't be an environment variable"
        elif is_secret(name):
            yield f"env: {name}: a session keeps its sweep file; give keys to the server by its own environment"


def unit(name: str) -> Iterator[str]:
    """No name of a service."""
    if not _UNIT.fullmatch(name):
        yield f'unit = "{name}": the name of a service is wanted, such as "sglang.service"'


def variable(name: str | None) -> Iterator[str]:
    """No name of a variable; `$NAME` is how a unit writes it, not how it is called."""
    if name is not None and not _VARIABLE.fullmatch(name):
        yield f'arguments = "{name}": the name of a variable is wanted, without $, such as "SGLANG_EXTRA_ARGS"'


def dropin(folder: str | None, name: str) -> Iterator[str]:
    """A place where systemd looks for no drop-in."""
    if folder is not None and not folder.startswith("/"):
        yield f'dropin_dir = "{folder}": a whole path is needed, such as "/run/systemd/system"'
    if "/" in name or not name.endswith(".conf") or name == ".conf":
        yield f'dropin_name = "{name}": systemd reads files called NAME.conf only'


def same_machine(systemctl: Sequence[str], others: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A unit of another machine whose files or log would be taken from this one."""
    if not over_ssh(systemctl):
        return
    for key, words in others.items():
        if not over_ssh(words):
            yield (
                f"systemctl goes over ssh and {key} does not, so it would be this machine's: give "
                f'{key} = ["ssh", ...] as well'
            )


def over_ssh(words: Sequence[str]) -> bool:
    """Whether a command is run on another machine through ssh."""
    return any(word.rsplit("/", 1)[-1] in {"ssh", "autossh"} for word in words)
