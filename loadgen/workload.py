"""Makes the requests of a cell: the one place that decides what is asked.

A prompt is an opening of random words, background text of the wanted length, and a task. The opening makes it new to
a prefix cache from its first token on. Seed, cell and number decide every word, so a cell can be asked again; the
salt has a say in the opening alone, so that what is asked again is new to the cache. The preset is not among them:
all presets are asked the same.
"""

from __future__ import annotations

import math
import random
import secrets
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import get_args

import msgspec

from loadgen.records import Generation, GenerationRequest, Message
from loadgen.spec import Calibration, CellSpec
from loadgen.workload_filler import code_pieces, estimate_tokens, prose_pieces
from loadgen.workload_jsonl import OwnPrompt, read_prompts
from loadgen.workload_tasks import OPENING_WORDS, TASKS, Content

OPENING_LENGTH = 4
FEWEST_PIECES = 160
TYPICAL_PIECE_TOKENS = 80
WARM_PROMPTS_MOST = 16
_REFINE_TRIES = 12
_SHARED_TAIL_TOKENS = 60  # of a shared-prefix prompt, left for what differs: opening, task and refinements
_KINDS: dict[str, tuple[Content, ...]] = {
    "coding": ("code",),
    "prose": ("prose",),
    "math": ("math",),
    "chat": ("chat",),
    "mixed": get_args(Content),
}


def contents_of(kind: str) -> tuple[Content, ...]:
    """The kinds of content that a workload asks for; none for the operator's own prompts."""
    return _KINDS.get(kind, ())


def background_pieces(content: Content, context: int) -> tuple[str, ...]:
    """The pieces that the background of a prompt of `context` tokens is drawn from."""
    pieces = code_pieces() if content == "code" else prose_pieces()
    return pieces[: max(FEWEST_PIECES, math.ceil(1.5 * context / TYPICAL_PIECE_TOKENS))]


def part_key(text: str) -> int:
    """Under which a calibration keeps the token count of a piece of text."""
    return zlib.crc32(text.encode())


class _Part(msgspec.Struct, frozen=True):
    text: str
    tokens: float


class _Material(msgspec.Struct, frozen=True):
    """One kind of content with the token counts of its parts; pieces by rising count."""

    content: Content
    intro: _Part
    bridge: _Part
    tasks: tuple[_Part, ...]
    refinements: tuple[_Part, ...]
    pieces: tuple[_Part, ...]
    piece_tokens: tuple[float, ...]


class _Conversation(msgspec.Struct):
    """A slot's conversation so far."""

    messages: tuple[Message, ...]
    category: str
    turn: int


class PromptSource:
    """Makes the requests of one cell; everything slow is done here at the start.

    Args:
        spec: what the cell asks for.
        calibration: how the server counts tokens; the one of the spec where not given.

    Raises:
        ValueError: when the operator's own prompts cannot be read, or there is no text for a background.
    """

    def __init__(self, spec: CellSpec, calibration: Calibration | None = None) -> None:
        self._spec = spec
        self._calibration = calibration or spec.calibration or Calibration()
        self._own: tuple[OwnPrompt, ...] = ()
        if spec.workload.kind == "jsonl":
            if spec.workload.path is None:
                raise ValueError('a workload of kind "jsonl" needs the path of its file')
            self._own = read_prompts(spec.workload.path)
        self._materials = [self._material(content) for content in contents_of(spec.workload.kind)]
        self._shared = [self._shared_head(m) for m in self._materials]
        self._conversations: dict[int, _Conversation] = {}
        self._run = secrets.token_hex(6)

    def request(self, index: int, slot: int = 0, previous: Generation | None = None) -> GenerationRequest:
        """Returns request number `index`.

        Args:
            index: number within the cell, over all its workers; prompts of different numbers differ.
            slot: which slot asks; a conversation belongs to one.
            previous: what the slot's last request came to, for the next turn of a conversation.
        """
        spec = self._spec
        messages, category = self._next_turn(slot, previous) or self._first_turn(index, slot)
        raw = spec.route != "chat"
        return GenerationRequest(
            rid=f"{self._run}-{index}",
            messages=() if raw else messages,
            text="\n\n".join(m.content for m in messages) if raw else None,
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            ignore_eos=spec.ignore_eos,
            category=category,
            route=spec.route,
            keep_text=spec.keep_text or spec.workload.turns > 1,
            request_timeout_s=spec.request_timeout_s,
            stall_timeout_s=spec.stall_timeout_s,
            first_token_timeout_s=spec.first_token_timeout_s,
        )

    def predicted_tokens(self, request: GenerationRequest) -> float:
        """How many prompt tokens the server should count for a request of one turn."""
        text = request.text if request.text is not None else "".join(m.content for m in request.messages)
        return self._calibration.overhead + self._count(text)

    def _next_turn(self, slot: int, previous: Generation | None) -> tuple[tuple[Message, ...], str] | None:
        """The next turn of the slot's conversation; `None` where a new one is to begin."""
        talk = self._conversations.get(slot)
        if talk is None or previous is None or not previous.record.valid or talk.turn >= self._spec.workload.turns:
            return None
        follow_ups = TASKS["chat"].follow_ups
        for material in self._materials:
            if material.content == talk.category:
                follow_ups = TASKS[material.content].follow_ups
        talk.messages = (
            *talk.messages,
            Message(role="assistant", content=previous.content or previous.reasoning or "..."),
            Message(role="user", content=follow_ups[(talk.turn - 1) % len(follow_ups)]),
        )
        talk.turn += 1
        return talk.messages, talk.category

    def _first_turn(self, index: int, slot: int) -> tuple[tuple[Message, ...], str]:
        if self._spec.workload.cache == "warm":
            index %= max(1, min(self._spec.warmup_requests, WARM_PROMPTS_MOST))
        messages, category = self._own_prompt(index) if self._own else self._made_prompt(index)
        if self._spec.workload.turns > 1:
            self._conversations[slot] = _Conversation(messages, category, 1)
        return messages, category

    def _own_prompt(self, index: int) -> tuple[tuple[Message, ...], str]:
        """A line of the operator's file, made new to a prefix cache by an opening where prompts are to be unique."""
        own = self._own[index % len(self._own)]
        messages = own.as_messages()
        if self._spec.workload.cache == "unique":
            opening = self._opening(index)
            messages = (msgspec.structs.replace(messages[0], content=opening + messages[0].content), *messages[1:])
        return messages, own.category

    def _made_prompt(self, index: int) -> tuple[tuple[Message, ...], str]:
        which = index % len(self._materials)
        material, head = self._materials[which], self._shared[which]
        rng = self._rng(index)
        opening = self._part(self._opening(index))
        left = self._spec.context - self._calibration.overhead - opening.tokens
        if head is not None:
            left -= head.tokens
        task = _task(material.tasks, left, rng)
        left -= task.tokens
        if head is not None:
            start = head.text + opening.text
        else:
            background = _background(material, left, rng)
            start, left = opening.text + background.text, left - background.tokens
        text = " ".join((start + task.text, *_refine(material.refinements, left, rng)))
        return (Message(role="user", content=text),), material.content

    def _shared_head(self, material: _Material) -> _Part | None:
        """What all prompts of a shared-prefix cell begin with; `None` in the other modes."""
        if self._spec.workload.cache != "shared-prefix":
            return None
        room = self._spec.context - self._calibration.overhead - _SHARED_TAIL_TOKENS
        return _background(material, room, self._rng(-1))

    def _material(self, content: Content) -> _Material:
        given = TASKS[content]
        pieces = sorted(
            (self._part(text) for text in background_pieces(content, self._spec.context)), key=lambda p: p.tokens
        )
        return _Material(
            content=content,
            intro=self._part(given.intro),
            bridge=self._part(given.bridge),
            tasks=tuple(self._part(text) for text in given.tasks),
            refinements=tuple(self._part(text) for text in given.refinements),
            pieces=tuple(pieces),
            piece_tokens=tuple(p.tokens for p in pieces),
        )

    def _part(self, text: str) -> _Part:
        return _Part(text, self._count(text))

    def _count(self, text: str) -> float:
        known = self._calibration.counts.get(part_key(text))
        return self._calibration.scale * estimate_tokens(text) if known is None else known

    def _key(self, index: int) -> str:
        spec = self._spec
        return f"{spec.seed}/{spec.context}/{spec.concurrency}/{spec.temperature:g}/{index}"

    def _rng(self, index: int) -> random.Random:
        return random.Random(self._key(index))

    def _opening(self, index: int) -> str:
        """Random words; all openings are of one estimated length, so that the rest does not depend on the salt."""
        words = random.Random(f"{self._spec.salt}/{self._key(index)}").sample(OPENING_WORDS, OPENING_LENGTH)
        return f"{words[0].capitalize()} {' '.join(words[1:])}.\n\n"


def _task(tasks: Sequence[_Part], room: float, rng: random.Random) -> _Part:
    """A task that fits into the room; the shortest one where none does."""
    fitting = [t for t in tasks if t.tokens <= room]
    return rng.choice(fitting) if fitting else min(tasks, key=lambda t: t.tokens)


def _background(material: _Material, room: float, rng: random.Random) -> _Part:
    """Background of at most `room` tokens, and less by no more than refinements can fill; empty where none fits."""
    left = room - material.intro.tokens - material.bridge.tokens
    if left < material.piece_tokens[0]:
        return _Part("", 0.0)
    chosen: list[str] = []
    while left >= material.piece_tokens[0]:
        for number in rng.sample(range(len(material.pieces)), len(material.pieces)):
            piece = material.pieces[number]
            if piece.tokens <= left:
                chosen.append(piece.text)
                left -= piece.tokens
            if left < material.piece_tokens[-1]:
                break
        # What is left is less than the longest piece: the longest that fits comes closest.
        closest = bisect_right(material.piece_tokens, left) - 1
        if left < material.piece_tokens[-1] and closest >= 0:
            chosen.append(material.pieces[closest].text)
            left -= material.piece_tokens[closest]
    text = material.intro.text + "".join(chosen) + material.bridge.text
    return _Part(text, room - left)


def _refine(refinements: Sequence[_Part], room: float, rng: random.Random) -> list[str]:
    """Refinements, each at most once, that fill the room as well as a few tries can."""
    best: list[_Part] = []
    for _ in range(_REFINE_TRIES):
        chosen, left = _fill(refinements, room, rng)
        if not best or left < room - sum(r.tokens for r in best):
            best = chosen
        if left <= 0.5:
            break
    return [r.text for r in best]


def _fill(refinements: Sequence[_Part], room: float, rng: random.Random) -> tuple[list[_Part], float]:
    """Refinements in a random order as long as they fit, and what is left of the room."""
    unused, chosen = list(refinements), []
    while fitting := [r for r in unused if r.tokens <= room + 0.5]:
        exact = [r for r in fitting if abs(room - r.tokens) <= 0.5]
        one = rng.choice(exact or fitting)
        unused.remove(one)
        chosen.append(one)
        room -= one.tokens
    return chosen, room
