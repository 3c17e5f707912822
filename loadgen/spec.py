"""What a cell asks of the load generator: a target, a workload, when requests start and when it is enough.

These values travel to the worker processes as msgpack; arrival ("when does the next request start?") and stopping
("is it enough?") are separate, so that any arrival goes with any stopping.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadgen.records import Route

DialectName = Literal["sglang", "vllm", "openai"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The server under test.

    Attributes:
        base_url: scheme, host and port, no trailing slash.
        model: the served model's name.
        dialect: how the server family speaks.
        api_key: sent as a bearer token; never logged. Named by environment variable in the sweep file.
        max_model_len: context limit in tokens where the server tells it.
    """

    base_url: str
    model: str
    dialect: DialectName = "sglang"
    api_key: str | None = None
    max_model_len: int | None = None
    incremental_streaming: bool = False


class ClosedLoop(msgspec.Struct, frozen=True, tag="closed"):
    """`concurrency` slots, each starting its next request when its last one ended."""


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """Evenly spaced starts, `rate` requests a second, whatever the server does."""

    rate: float


class Poisson(msgspec.Struct, frozen=True, tag="poisson"):
    """Exponentially distributed gaps with mean 1 / `rate` seconds."""

    rate: float


class Ramp(msgspec.Struct, frozen=True, tag="ramp"):
    """Starts whose rate rises linearly from `start_rate` to `end_rate` requests a second over `over_s` seconds."""

    start_rate: float
    end_rate: float
    over_s: float


Arrival = ClosedLoop | Constant | Poisson | Ramp


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """When a cell has enough; whichever comes first of those given, but never before `min_requests`.

    Attributes:
        requests: number of requests to start.
        duration_s: seconds during which requests may start.
        interval_share: stop when the 95 % interval of throughput is narrower than this share of it.
    """

    requests: int | None = None
    duration_s: float | None = None
    interval_share: float | None = None
    min_requests: int = 1


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked.

    Attributes:
        kind: content of the prompts, or "jsonl" for the operator's own.
        cache: "unique" prompts from their first token (default), "shared-prefix", or "warm" (repeated prompts).
        path: the JSONL file of own prompts.
        turns: turns of a conversation; 1 is a single question.
    """

    kind: Literal["coding", "prose", "math", "chat", "mixed", "jsonl"] = "coding"
    cache: Literal["unique", "shared-prefix", "warm"] = "unique"
    path: str | None = None
    turns: int = 1


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How a server counts the tokens of prompts; made by `loadgen.workload_calibration.calibrate`.

    Attributes:
        counts: tokens of the pieces that prompts are made of, by the CRC-32 of their text.
        scale: tokens of this server for one estimated token, for whatever is not among the counts.
        overhead: tokens that the server adds to a prompt: the chat template, the begin-of-text token.
    """

    counts: dict[int, float] = msgspec.field(default_factory=dict)
    scale: float = 1.0
    overhead: float = 10.0


class CellSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One cell for the load generator: everything needed to run it, nothing about presets.

    Attributes:
        cell: the cell's key, stamped on every record.
        context: wanted prompt length in the server's tokens.
        concurrency: slots (closed loop) or the most streams open at once.
        start_rate_limit: cap on request starts a second, `None` for none.
        warmup_requests: requests before the measured ones, recorded with purpose "warmup".
        seed: makes prompts and arrivals reproducible; another one for every repetition of a cell.
        salt: goes into the prompts' openings and nothing else: prompts of another salt are new to a prefix cache, and
            ask the same. Another one for every session and attempt.
        calibration: how the server counts prompt tokens; without one, prompts have about the wanted length.
    """

    cell: str
    context: int
    concurrency: int
    max_tokens: int = 512
    temperature: float = 0.0
    arrival: Arrival = ClosedLoop()
    stop: Stop = Stop()
    workload: Workload = Workload()
    warmup_requests: int = 0
    ignore_eos: bool = False
    route: Route = "chat"
    seed: int = 0
    salt: str = ""
    start_rate_limit: float | None = None
    request_timeout_s: float | None = None
    stall_timeout_s: float | None = None
    first_token_timeout_s: float | None = None
    keep_text: bool = False
    calibration: Calibration | None = None


class WorkerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator itself fared in a cell, over all its workers.

    Attributes:
        loop_lag_p99_s: worst worker's 99th percentile of event-loop lateness, seconds.
        cpu_share: busiest worker's CPU time / wall time over the measured part.
        streams_open_max: streams really open at once (all workers together).
        start_lateness_p99_s: 99th percentile of `t_send - t_due`, seconds.
    """

    loop_lag_p99_s: float
    cpu_share: float
    streams_open_max: int
    start_lateness_p99_s: float = 0.0
    workers: int = 1


class CellProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A running cell, a few times a second: counts and live rates over about the last second."""

    cell: str
    phase: Literal["calibrating", "warmup", "ramp", "steady", "tail"]
    t: float
    started: int
    finished: int
    failed: int
    running: int
    total: int | None
    share_done: float
    tokens: int
    tok_s: float | None
    acceptance_length: float | None
