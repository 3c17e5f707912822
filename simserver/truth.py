"""What really happened, request by request, for tests that compare what was measured with what was done.

Times are `time.perf_counter_ns()`, one clock for all processes of a machine. Tokens are counted when their bytes are
handed to the socket. Lateness is measured against the simulation's own schedule.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from simserver.job import Job

_LATE_STEPS_MS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 250.0, 1000.0)


class Lateness:
    """How late the simulation was against its own schedule, over all steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.slips = 0
        self.slipped_s = 0.0
        self._worst_s = 0.0
        self._counts = [0] * (len(_LATE_STEPS_MS) + 1)

    def add(self, late_s: float) -> None:
        """Counts one step that was written `late_s` seconds after its due time."""
        self.steps += 1
        self._worst_s = max(self._worst_s, late_s)
        milliseconds = late_s * 1000.0
        for index, limit in enumerate(_LATE_STEPS_MS):
            if milliseconds <= limit:
                self._counts[index] += 1
                return
        self._counts[-1] += 1

    def slip(self, late_s: float) -> None:
        """Counts a step so late that the schedule was moved."""
        self.slips += 1
        self.slipped_s += late_s

    def _quantile(self, share: float) -> float | None:
        if not self.steps:
            return None
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= share * self.steps:
                return _LATE_STEPS_MS[index] / 1000.0 if index < len(_LATE_STEPS_MS) else self._worst_s
        return self._worst_s

    def summary(self) -> dict[str, Any]:
        """Returns quantiles (upper limits of their bins), seconds."""
        return {
            "steps": self.steps,
            "p50_s": self._quantile(0.5),
            "p90_s": self._quantile(0.9),
            "p99_s": self._quantile(0.99),
            "worst_s": self._worst_s,
            "slips": self.slips,
            "slipped_s": self.slipped_s,
        }


def _record(job: Job, outcome: str, *, text: bool, chunks: bool) -> dict[str, Any]:
    steps = job.verify_steps
    record: dict[str, Any] = {
        "rid": job.rid,
        "route": job.route,
        "stream": job.streamed,
        "outcome": outcome,
        "kind": job.kind,
        "finish_reason": job.finish.kind if job.finish else None,
        "matched": job.finish.matched if job.finish else None,
        "prompt_tokens": job.prompt_length,
        "cached_tokens": job.cached,
        "completion_tokens": job.emitted,
        "sent_tokens": sum(tokens for _, tokens in job.chunks),
        "reasoning_tokens": min(job.emitted, job.reasoning),
        "verify_steps": steps,
        "correct_drafts": job.correct,
        "accepted_histogram": job.histogram,
        "acceptance_length": (job.correct + steps) / steps if steps else None,
        "arrival_ns": job.arrival_ns,
        "start_ns": job.started_ns or None,
        "queued_s": job.queued_s,
        "first_token_due_ns": job.first_due_ns or None,
        "first_token_ns": job.chunks[0][0] if job.chunks else None,
        "first_tokens": job.chunks[0][1] if job.chunks else None,
        "last_token_ns": job.chunks[-1][0] if job.chunks else None,
        "end_due_ns": job.end_due_ns or None,
        "end_ns": job.finished_ns or None,
        "writes": len(job.chunks),
        "late_max_s": job.late_max_ns / 1e9,
        "late_mean_s": job.late_sum_ns / 1e9 / len(job.chunks) if job.chunks else None,
    }
    if text:
        record["text"] = "".join(job.pieces[: job.emitted])
    if chunks:
        record["chunks"] = job.chunks
    return record


class Truth:
    """The finished jobs, newest last, and those under way."""

    def __init__(self, history: int) -> None:
        self._finished: deque[tuple[Job, str]] = deque(maxlen=history)
        self._open: dict[int, Job] = {}
        self.forgotten = 0
        self.lateness = Lateness()

    def opened(self, job: Job) -> None:
        """Notes that a job arrived."""
        self._open[id(job)] = job

    def closed(self, job: Job, outcome: str) -> None:
        """Notes how a job ended: ok, aborted, error, truncated, cut, stalled."""
        if self._open.pop(id(job), None) is None:
            return
        if len(self._finished) == self._finished.maxlen:
            self.forgotten += 1
        job.finished_ns = job.finished_ns or time.perf_counter_ns()
        job.prompt, job.drafter = [], None
        self._finished.append((job, outcome))

    def clear(self) -> None:
        """Forgets the finished jobs."""
        self._finished.clear()
        self.forgotten = 0
        self.lateness = Lateness()

    def select(self, *, rid: str | None = None, prefix: str = "") -> list[tuple[Job, str]]:
        """Returns the jobs of one request id, or of all that start with a prefix; open ones last."""
        everything: Iterable[tuple[Job, str]] = (*self._finished, *((job, "open") for job in self._open.values()))
        return [
            (job, outcome)
            for job, outcome in everything
            if job.rid.startswith(prefix) and (rid is None or job.rid == rid)
        ]

    def report(self, jobs: list[tuple[Job, str]], *, text: bool, chunks: bool) -> dict[str, Any]:
        """Returns records and their sums; acceptance is a ratio of sums, over jobs that were not cut by a fault."""
        steps = sum(job.verify_steps for job, _ in jobs)
        correct = sum(job.correct for job, _ in jobs)
        histogram: list[int] = []
        for job, _ in jobs:
            histogram.extend([0] * (len(job.histogram) - len(histogram)))
            for index, count in enumerate(job.histogram):
                histogram[index] += count
        outcomes: dict[str, int] = {}
        for _, outcome in jobs:
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        firsts = [job.chunks[0][0] for job, _ in jobs if job.chunks]
        lasts = [job.chunks[-1][0] for job, _ in jobs if job.chunks]
        return {
            "schema": 1,
            "clock": "perf_counter_ns",
            "t_ns": time.perf_counter_ns(),
            "sums": {
                "requests": len(jobs),
                "outcomes": outcomes,
                "prompt_tokens": sum(job.prompt_length for job, _ in jobs),
                "cached_tokens": sum(job.cached for job, _ in jobs),
                "completion_tokens": sum(job.emitted for job, _ in jobs),
                "verify_steps": steps,
                "correct_drafts": correct,
                "accepted_histogram": histogram,
                "acceptance_length": (correct + steps) / steps if steps else None,
                "first_token_ns": min(firsts, default=None),
                "last_token_ns": max(lasts, default=None),
            },
            "lateness": self.lateness.summary(),
            "forgotten": self.forgotten,
            "requests": [_record(job, outcome, text=text, chunks=chunks) for job, outcome in jobs],
        }
