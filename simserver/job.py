"""One generation: what is asked, what the model will say, and how far it is. Known in full when it arrives."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Protocol

from simserver import tokenizer
from simserver.acceptance import Drafter


class Sink(Protocol):
    """Where a job's tokens go."""

    def push(self, job: Job, start: int, stop: int) -> None:
        """Takes the tokens `start` to `stop`; the last call has `job.finish` set and may be empty."""
        ...


@dataclass(frozen=True)
class Sampling:
    """What a request asks of the generation.

    Attributes:
        max_new, min_new: limits in tokens; `None` for the rest of the context.
        stop: strings that end the answer; `stop_ids`: token ids that do.
    """

    max_new: int | None = None
    min_new: int = 0
    temperature: float = 1.0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class Finish:
    """Why a generation ended: `length`, `stop` (with what matched) or `abort`."""

    kind: str
    matched: str | int | None = None
    length: int = 0
    message: str = ""

    def as_meta(self) -> dict[str, Any]:
        """Returns the object that `/generate` shows."""
        if self.kind == "length":
            return {"type": "length", "length": self.length}
        if self.kind == "abort":
            return {"type": "abort", "message": self.message, "status_code": None, "err_type": None}
        return {"type": "stop", "matched": self.matched}


class Job:
    """One generation on its way through the server.

    Attributes:
        pieces: visible text of every token that will be emitted; end tokens and trimmed stops are empty.
        ids: their token ids.
        limit: tokens that will be emitted; `ending`: why it ends there.
        emitted: tokens emitted so far. `correct` and `histogram` are not cut at the end of the answer.
        chunks: time of each write (`time.perf_counter_ns`) and tokens in it.
        drafted: drafts that the step under way will accept.
        fate: a fault that will hit this stream, and after how many tokens.
    """

    def __init__(self, rid: str, prompt: list[str], sampling: Sampling, sink: Sink, *, purpose: str = "user") -> None:
        self.rid = rid
        self.prompt = prompt
        self.prompt_length = len(prompt)
        self.sampling = sampling
        self.sink = sink
        self.purpose = purpose
        self.pieces: list[str] = []
        self.ids: list[int] = []
        self.limit = 0
        self.ending = Finish("length")
        self.finish: Finish | None = None
        self.reasoning = 0
        self.kind = "chat"
        self.drafter: Drafter | None = None
        self.emitted = 0
        self.drafted = 0
        self.verify_steps = 0
        self.correct = 0
        self.histogram: list[int] = []
        self.cached = 0
        self.prefilled = 0
        self.reserved = 0
        self.arrival_ns = 0
        self.wall_arrival = 0.0
        self.started_ns = 0
        self.queued_s = 0.0
        self.forward_wall = 0.0
        self.prefill_done_wall = 0.0
        self.finished_ns = 0
        self.first_due_ns = 0
        self.end_due_ns = 0
        self.late_max_ns = 0
        self.late_sum_ns = 0
        self.chunks: list[tuple[int, int]] = []
        self.fate: str | None = None
        self.fate_at = 0
        self.route = "chat"
        self.streamed = False

    @property
    def context(self) -> int:
        """Tokens in the KV cache for this job."""
        return self.prompt_length + self.emitted

    def say(self, pieces: list[str], reasoning: int, room: int, rng: random.Random) -> None:
        """Decides what will be said and where it ends.

        Args:
            pieces: the model's answer without its end token.
            reasoning: how many of them are reasoning, the closing tag included.
            room: tokens left in the context.
            rng: for what follows an ignored end.
        """
        from simserver.writing import carry_on

        sampling = self.sampling
        limit = min(room, sampling.max_new) if sampling.max_new is not None else room
        ids = [tokenizer.token_id(piece) for piece in pieces]
        if sampling.ignore_eos or len(pieces) < sampling.min_new:
            wanted = limit if sampling.ignore_eos else min(limit, sampling.min_new)
            more = carry_on(rng, max(0, min(wanted, 65536) - len(pieces)))
            pieces = pieces + more
            ids += [tokenizer.token_id(piece) for piece in more]
            self.ending = Finish("length", length=limit)
        if not sampling.ignore_eos:
            pieces = [*pieces, ""]
            ids.append(tokenizer.IM_END_ID)
        end, ending = min(limit, len(pieces)), Finish("length", length=limit)
        if not sampling.ignore_eos and len(pieces) <= limit:
            ending = Finish("stop", tokenizer.IM_END_ID)
        for number in sampling.stop_ids:
            if number in ids[:end]:
                end = ids.index(number) + 1
                pieces[end - 1], ending = "", Finish("stop", number)
        text = "".join(pieces[:end])
        stops = [(text.find(stop), stop) for stop in sampling.stop if stop and stop in text]
        if stops:
            at, stop = min(stops)
            end, ending = _cut(pieces, at, at + len(stop)), Finish("stop", stop)
        if ending.kind == "length":
            ending = Finish("length", length=end)
        self.pieces, self.ids, self.limit, self.ending = pieces[:end], ids[:end], end, ending
        self.reasoning = reasoning


def _cut(pieces: list[str], visible: int, covered: int) -> int:
    """Trims the text after `visible` characters; returns how many tokens cover `covered` characters."""
    position = 0
    for index, piece in enumerate(pieces):
        begin, position = position, position + len(piece)
        if position > visible:
            pieces[index] = piece[: max(0, visible - begin)]
        if position >= covered:
            return index + 1
    return len(pieces)
