"""Text to tokens and back: the one count that `/tokenize`, usage and the stream agree on.

Tokens are pieces of text. A piece's end depends on the piece alone, never on what follows, so that any run of tokens
tokenizes to itself again. Ids are a hash of the piece: the same in every process.
"""

from __future__ import annotations

import re
import zlib

IM_END = "<|im_end|>"
IM_END_ID = 163586
THINK = "<think>"
THINK_END = "</think>"

_SPECIAL = {
    "<|im_user|>user<|im_middle|>": 163587,
    "<|im_assistant|>assistant<|im_middle|>": 163588,
    "<|im_system|>system<|im_middle|>": 163594,
    IM_END: IM_END_ID,
    THINK: 163606,
    THINK_END: 163607,
}
_PIECE = re.compile(
    "|".join(re.escape(piece) for piece in _SPECIAL)
    + r"| ?[A-Za-z]{1,9}| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]{1,3}|\n+| +|[^\S\n ]+"
)
_FIRST_PLAIN, _PLAIN_IDS = 512, 150_000

_ids: dict[str, int] = dict(_SPECIAL)
_pieces: dict[int, str] = {number: piece for piece, number in _SPECIAL.items()}


def split(text: str) -> list[str]:
    """Returns the text's tokens as pieces of text; joined they are the text again."""
    return _PIECE.findall(text)


def token_id(piece: str) -> int:
    """Returns a piece's id."""
    number = _ids.get(piece)
    if number is None:
        number = _ids[piece] = _FIRST_PLAIN + zlib.crc32(piece.encode("utf-8", "replace")) % _PLAIN_IDS
        _pieces.setdefault(number, piece)
    return number


def piece_of(number: int) -> str:
    """Returns the text of an id: the piece first seen with it, or a made-up word that belongs to it alone."""
    return _pieces.get(number) or f" t{number}"


def join(numbers: list[object]) -> str:
    """Returns the text of ids; what is no id is left out."""
    return "".join(piece_of(number) for number in numbers if isinstance(number, int))


def chat_prompt(messages: list[tuple[str, str]], thinking: bool) -> str:
    """Renders a conversation as the model sees it.

    Args:
        messages: role and text of each.
        thinking: whether the template opens the reasoning, so that the answer starts inside it.
    """
    turns = [
        f"<|im_{role if role in ('system', 'assistant') else 'user'}|>"
        f"{role if role in ('system', 'assistant') else 'user'}<|im_middle|>{text}{IM_END}"
        for role, text in messages
    ]
    return "".join(turns) + "<|im_assistant|>assistant<|im_middle|>" + (THINK if thinking else f"{THINK}{THINK_END}")
