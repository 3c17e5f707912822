"""The operator's own prompts: a file with one JSON object a line, `{"messages": [...]}` or `{"prompt": "..."}`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadgen.records import Message


class OwnPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the file.

    Attributes:
        messages: a chat; or
        prompt: a single question.
        category: kind of content, for figures by category.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    category: str = ""

    def as_messages(self) -> tuple[Message, ...]:
        """The prompt as a chat."""
        return self.messages or (Message(role="user", content=self.prompt or ""),)


def read_prompts(path: str) -> tuple[OwnPrompt, ...]:
    """Reads all prompts of a file; empty lines are skipped.

    Raises:
        ValueError: naming the file and, where it is about a line, its number: what was found and what is wanted.
    """
    try:
        lines = Path(path).expanduser().read_bytes().splitlines()
    except OSError as exc:
        raise ValueError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    found: list[OwnPrompt] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.append(_read_line(line, f"{path}, line {number}"))
    if not found:
        raise ValueError(f'{path}: no prompts; wanted is one {{"messages": [...]}} or {{"prompt": "..."}} a line')
    return tuple(found)


def _read_line(line: bytes, where: str) -> OwnPrompt:
    try:
        own = msgspec.json.decode(line, type=OwnPrompt)
    except msgspec.ValidationError as exc:
        raise ValueError(f"{where}: {exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"{where}: not a JSON object: {exc}") from exc
    if (own.messages is None) == (own.prompt is None):
        raise ValueError(f'{where}: wanted is either "messages" or "prompt"')
    if own.messages is not None:
        if not own.messages:
            raise ValueError(f'{where}: "messages" is empty')
        if own.messages[-1].role == "assistant":
            raise ValueError(f"{where}: the last message is the assistant's, so there is nothing to answer")
    elif not (own.prompt or "").strip():
        raise ValueError(f'{where}: "prompt" is empty')
    return own
