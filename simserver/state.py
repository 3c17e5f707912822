"""The running server: its parts, its life's stages, and how a request becomes a job."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from simserver import tokenizer, writing
from simserver.acceptance import Drafter, sampled
from simserver.counters import Counters
from simserver.gpus import Gpus
from simserver.job import Job, Sampling, Sink
from simserver.log import ServerLog
from simserver.scheduler import Scheduler
from simserver.settings import Settings
from simserver.truth import Truth

VERSION = "0.5.23"
_FATES = ("stream-error", "truncate", "cut", "stall")
_KV_SHARE = 0.105


ARRIVED: ContextVar[int] = ContextVar("ARRIVED", default=0)


class RefusedError(Exception):
    """A request that the server answers with an error of its own.

    Attributes:
        status: HTTP status; `kind`: the error body's type.
    """

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _Nowhere:
    """A sink that nobody reads."""

    def push(self, job: Job, start: int, stop: int) -> None:
        """Drops the tokens."""


class Server:
    """Everything a route needs.

    Attributes:
        ready: warm-up is over; `stopping`: SIGTERM was received.
        startup_time: seconds of the phases, as `/server_info` shows them.
    """

    def __init__(self, settings: Settings, log: ServerLog, gpus: Gpus, startup_time: dict[str, Any]) -> None:
        self.settings = settings
        self.log = log
        self.gpus = gpus
        self.startup_time = startup_time
        self.faults = settings.faults
        self.counters = Counters()
        self.truth = Truth(settings.sim.history)
        self.started_wall = time.time()
        self.ready = False
        self.stopping = False
        self.healthy = True
        self._draws = 0
        self._seen: Counter[int] = Counter()
        self.scheduler = Scheduler(settings, log, self.counters, gpus, self.truth, kv_capacity(settings))

    @property
    def model_name(self) -> str:
        """The served model's name."""
        return str(self.settings.args["served_model_name"])

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""
        return int(self.settings.args["context_length"])

    @property
    def proposed(self) -> int:
        """Drafted tokens a step as the server counts them; 0 without speculation."""
        return max(0, self.settings.draft_tokens - 1)

    def shutting_down(self) -> bool:
        """Whether SIGTERM was received."""
        return self.stopping

    def new_rid(self) -> str:
        """Returns a fresh request id."""
        return uuid.uuid4().hex

    def make_job(
        self, rid: str, prompt_text: str, question: str, sampling: Sampling, sink: Sink, *, thinking: bool
    ) -> Job:
        """Decides everything about a generation.

        Args:
            rid: the request's id.
            prompt_text: what the model sees.
            question: what the user asked, which decides content and answer.
            sampling: what the request asks of the generation.
            sink: where its tokens go.
            thinking: whether the answer starts inside the reasoning.

        Raises:
            RefusedError: the prompt does not fit.
        """
        pieces = tokenizer.split(prompt_text)
        self.check_length(len(pieces), sampling)
        job = Job(rid, pieces, sampling, sink)
        job.arrival_ns = ARRIVED.get()
        settings = self.settings
        seed = f"{settings.sim.seed}|{prompt_text}"
        if sampling.temperature > 0:
            self._draws += 1
            seed += f"|{sampling.temperature}|{self._draws if sampling.seed is None else sampling.seed}"
        rng = random.Random(seed)
        right = rng.random() < settings.sim.eval_pass_rate
        answer = writing.compose(question, rng, thinking=thinking, right=right)
        said = list(answer.pieces)
        corrupt = self._corrupt()
        if corrupt:
            said = writing.corrupt(said, rng)
        job.say(said, answer.reasoning, max(0, self.context_length - len(pieces)), rng)
        job.kind = writing.kind_of(question)
        self._give_drafter(job, question, corrupt)
        self._give_fate(job, rid)
        return job

    def probe(self) -> None:
        """Generates one token for a health check: work like any other, but nobody's request."""
        job = Job(f"HEALTH_CHECK_{time.time()}", [" ok"], Sampling(max_new=1), _Nowhere(), purpose="health")
        job.say([" ok"], 0, 1, random.Random(0))
        self.scheduler.submit(job)

    def check_length(self, prompt_tokens: int, sampling: Sampling) -> None:
        """Refuses what does not fit into the context.

        Raises:
            RefusedError: the prompt alone, or with the tokens asked for, is too long.
        """
        limit = self.context_length
        if prompt_tokens >= limit:
            raise RefusedError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        wanted = sampling.max_new
        if wanted is not None and prompt_tokens + wanted > limit:
            raise RefusedError(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"You requested a total of {prompt_tokens + wanted} tokens: {prompt_tokens} tokens from the input "
                f"messages and {wanted} tokens for the completion. Please reduce the number of tokens in the input "
                "messages or the completion to fit within the limit."
            )

    def _corrupt(self) -> bool:
        limit = self.faults.number("mask-corruption")
        verification = self.settings.verification
        return limit is not None and verification.kind == "tree" and verification.budget >= limit

    def _give_drafter(self, job: Job, question: str, corrupt: bool) -> None:
        settings = self.settings
        if not settings.speculative:
            return
        profile = settings.profile
        name = settings.chain_quality
        quality = profile.eagle if name == "eagle" else profile.ngram if name == "ngram" else profile.quality[job.kind]
        key = hash(question)
        self._seen[key] += 1
        job.drafter = Drafter(
            settings.verification,
            sampled(quality, job.sampling.temperature),
            profile.ranks,
            random.Random(f"{settings.sim.seed}|draft|{self._seen[key]}|{question}"),
            corrupt=corrupt,
        )

    def _give_fate(self, job: Job, rid: str) -> None:
        for name in _FATES:
            share = self.faults.number(name)
            if share is None:
                continue
            rng = random.Random(f"{self.settings.sim.seed}|{name}|{rid}")
            if rng.random() < share:
                job.fate = name
                job.fate_at = max(2, int(job.limit * rng.uniform(0.2, 0.8)))
                return

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hands jobs to the scheduler.

        Raises:
            RefusedError: the queue is full, or the fault `server-error` says so.
        """
        full = self.settings.args["max_queued_requests"]
        share = self.faults.number("server-error")
        refused = share is not None and random.Random(f"{self.settings.sim.seed}|refuse|{jobs[0].rid}").random() < share
        if refused or (full is not None and len(self.scheduler.waiting) + len(jobs) > int(full)):
            raise RefusedError("The request queue is full.", 503, "SERVICE_UNAVAILABLE")
        for job in jobs:
            self.scheduler.submit(job)

    def disconnected(self, jobs: Sequence[Job]) -> None:
        """A client left: its work goes on for two simulated seconds, then it is aborted."""

        def stop() -> None:
            for job in jobs:
                if job.finish is None:
                    self.scheduler.abort(job.rid)
                self.truth.closed(job, "aborted")

        asyncio.get_running_loop().call_later(2.0 / self.settings.sim.speed, stop)


def kv_capacity(settings: Settings) -> int:
    """Returns the KV cache's size in tokens."""
    asked = settings.args["max_total_tokens"]
    profile = settings.profile
    found = profile.max_total_tokens_speculative if settings.speculative else profile.max_total_tokens
    return min(int(asked), found) if asked else found


def kv_bytes(settings: Settings) -> int:
    """Returns the bytes of KV cache on each GPU."""
    share = kv_capacity(settings) / settings.profile.max_total_tokens
    return int(settings.profile.gpu.memory_bytes * _KV_SHARE * share)
