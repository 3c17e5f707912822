"""The batch scheduler, in real time: one pass at a time, prefill before decode, a queue above `max_running_requests`.

The schedule is absolute: a step's due time is the last one's due time plus its length, so that a late wake-up does
not make the simulated server slower. What comes out late is counted; a process that stood still moves its schedule.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

from simserver.acceptance import context_penalty
from simserver.batch_report import BatchReport, LoadView
from simserver.counters import Counters
from simserver.gpus import Gpus
from simserver.job import Finish, Job
from simserver.log import ServerLog
from simserver.prefix_cache import PrefixCache
from simserver.settings import Settings
from simserver.timing import decode_seconds, prefill_seconds
from simserver.truth import Truth

_SLIP_S = 0.25
_EARLY_S = 0.0002
_TURN_S = 0.004
_LOG_EVERY = 40
_FIRST_PREFILLS_MS = (450.0, 180.0, 60.0)
_FIRST_STEPS = 24
_AFTER_FLUSH_MS = 60.0
_JITTER = 0.02
_WITHOUT_GRAPH = 1.5


class Scheduler:
    """Runs jobs in simulated passes and hands their tokens to their sinks."""

    def __init__(
        self, settings: Settings, log: ServerLog, counters: Counters, gpus: Gpus, truth: Truth, capacity: int
    ) -> None:
        self._settings = settings
        self._cost = settings.profile.cost
        self._speed = settings.sim.speed
        self._report = BatchReport(settings, log, counters)
        self._counters = counters
        self._gpus = gpus
        self._truth = truth
        self.capacity = capacity
        self.max_running = int(settings.args["max_running_requests"] or 256)
        self.graph_limit = int(settings.args["cuda_graph_max_bs_decode"] or self.max_running)
        self.cache = PrefixCache(capacity if not settings.args["disable_radix_cache"] else 0)
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._pass: list[tuple[Job, int]] | None = None
        self._busy = False
        self._due = 0.0
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._cold = list(_FIRST_PREFILLS_MS)
        self._steps_done = 0
        self._jitter = random.Random(settings.sim.seed)
        self._cold_start = settings.faults.number("cold-start")
        self._idle = asyncio.Event()
        self._idle.set()
        self._publish_every = int(settings.args["load_snapshot_publish_interval"] or 1)
        self._unpublished = 0
        self.published = self.load_view()

    @property
    def unfinished(self) -> list[Job]:
        """Jobs that wait, are computed for the first time, or run."""
        begun = [job for job, _ in self._pass or () if job not in self.waiting and job.finish is None]
        return [*self.waiting, *begun, *self.running]

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits until nothing runs or waits; returns whether that happened in time."""
        if self._idle.is_set():
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def submit(self, job: Job) -> None:
        """Takes a job into the queue."""
        job.arrival_ns = job.arrival_ns or time.perf_counter_ns()
        job.wall_arrival = time.time()
        if job.purpose == "user":
            self._truth.opened(job)
        if job.limit == 0:
            job.finish = job.ending
            self._end(job, 0, 0)
            return
        self.waiting.append(job)
        self._idle.clear()
        self.kick()

    def kick(self) -> None:
        """Starts a pass if none is under way."""
        if not self._busy and "hang-generate" not in self._settings.faults:
            self._begin(time.perf_counter())
            self._arm()

    def abort(self, rid: str, *, everything: bool = False, message: str = "Aborted by AbortReq.") -> None:
        """Ends a job, or all of them, with an abort."""
        for job in self.unfinished:
            if everything or job.rid == rid:
                for place in (self.running, self.waiting):
                    if job in place:
                        place.remove(job)
                if self._pass is not None:
                    self._pass = [each for each in self._pass if each[0] is not job]
                job.finish = Finish("abort", message=message)
                self._counters.aborted += 1
                self._end(job, job.emitted, job.emitted)
        self._note_idle()

    def flush(self) -> bool:
        """Empties the prefix cache and the acceptance counters; refused while anything runs."""
        if self.unfinished:
            return False
        self.cache.clear()
        self._cold = [_AFTER_FLUSH_MS]
        self._counters.reset_acceptance()
        return True

    def _note_idle(self) -> None:
        if not self.unfinished:
            self._idle.set()
            self._publish()

    def _publish(self) -> None:
        """Writes down how loaded it is, for `/v1/loads`: after a prefill, every few decode steps, and when idle."""
        self.published = self.load_view()
        self._unpublished = 0

    def _arm(self) -> None:
        if self._busy and self._timer is None:
            delay = max(0.0, self._due - time.perf_counter())
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        turn = time.perf_counter()
        while self._busy:
            now = time.perf_counter()
            if self._due > now + _EARLY_S or now > turn + _TURN_S:
                break
            late = now - self._due
            if late > _SLIP_S:
                self._truth.lateness.slip(late)
                self._due = now
            self._finish_pass(self._due)
            self._busy = False
            self._begin(self._due)
        self._arm()

    def _begin(self, start: float) -> None:
        self._began = start
        if "hang-generate" in self._settings.faults:
            return
        plan = self._plan_prefill() if self.waiting else None
        if plan:
            self._pass = plan
            seconds = prefill_seconds(self._cost, [(take, job.prefilled) for job, take in plan])
            seconds += self._warmth(plan)
        elif self.running:
            self._pass = None
            seconds = self._decode_seconds()
            self._draft()
        else:
            return
        if self._settings.faults.number("gpu-throttle") is not None:
            seconds *= 1.2
        self._due = start + seconds * self._jitter.lognormvariate(0.0, _JITTER) / self._speed
        self._busy = True
        self._gpus.work(start, self._due, self._pass is not None)
        for job, _ in self._pass or ():
            if not job.started_ns:
                job.started_ns = int(start * 1e9)
                job.queued_s = max(0.0, start - job.arrival_ns / 1e9)
                job.forward_wall = job.wall_arrival + job.queued_s

    def _warmth(self, plan: list[tuple[Job, int]]) -> float:
        if all(job.purpose != "user" for job, _ in plan):
            return 0.0
        extra = self._cold.pop(0) / 1000.0 if self._cold else 0.0
        cold_start = self._settings.faults.number("cold-start")
        if cold_start is not None and self._cold_start is not None:
            extra += cold_start
            self._cold_start = None
        return extra

    def _decode_seconds(self) -> float:
        running, window = self.running, self._settings.window
        contexts = [job.context for job in running]
        total = sum(contexts)
        seen = total if window is None else sum(min(context, window) for context in contexts)
        seconds = decode_seconds(self._cost, self._settings.verification, len(running), total, seen)
        if not self._captured():
            seconds *= _WITHOUT_GRAPH
        if self._steps_done < _FIRST_STEPS:
            seconds *= 1.0 + 1.5 * (1.0 - self._steps_done / _FIRST_STEPS)
        return seconds

    def _captured(self) -> bool:
        """Whether a decode graph was captured for a batch of the running size."""
        limit = self._settings.faults.number("graph-batch")
        return len(self.running) <= (self.graph_limit if limit is None else limit)

    def _draft(self) -> None:
        """Draws what the step under way will accept, so that its end has nothing left to do but write."""
        trained, window = self._settings.profile.trained_window, self._settings.window
        refused = "reject-drafts" in self._settings.faults
        for job in self.running:
            drafter = job.drafter
            if drafter is not None:
                if job.emitted & 31 < 8:
                    drafter.set_penalty(context_penalty(job.context, window, trained))
                job.drafted = 0 if refused else drafter.step()

    def _plan_prefill(self) -> list[tuple[Job, int]]:
        room = int(self._settings.args["chunked_prefill_size"] or 8192)
        plan: list[tuple[Job, int]] = []
        held = sum(job.reserved for job in self.running)
        most = min(self.max_running, int(self._settings.faults.number("small-batch") or self.max_running))
        while self.waiting and room > 0 and len(self.running) + len(plan) < most:
            job = self.waiting[0]
            if not job.reserved:
                wanted = job.prompt_length + int(0.7 * min(job.limit, 4096)) + 1
                if held + wanted > self.capacity and (self.running or plan):
                    break
                job.reserved = wanted
                job.cached = min(self.cache.match(job.prompt), job.prompt_length - 1) if self.cache.capacity else 0
                job.prefilled = job.cached
                self.cache.shrink_to(self.capacity - min(self.capacity, held + wanted))
            held += job.reserved
            take = min(room, job.prompt_length - job.prefilled)
            room -= take
            plan.append((job, take))
            if job.prefilled + take < job.prompt_length:
                break
            self.waiting.popleft()
        return plan

    def _finish_pass(self, due: float) -> None:
        if self._pass is not None:
            self._finish_prefill(self._pass, due)
            self._pass = None
        else:
            self._finish_decode(due)
        self._truth.lateness.add(max(0.0, time.perf_counter() - due))
        self._note_idle()

    def _finish_prefill(self, plan: list[tuple[Job, int]], due: float) -> None:
        counters = self._counters
        new = sum(take for _, take in plan)
        hits = sum(job.cached for job, _ in plan if job.prefilled == job.cached)
        counters.prefill_computed += new
        counters.prefill_cached += hits
        counters.prefill_passes += 1
        counters.prefill_busy_us += int((due - self._began) * 1e6)
        counters.cache_hit_rate = hits / (hits + new) if hits + new else 0.0
        started = sum(1 for job, _ in plan if job.prefilled == job.cached)
        self._report.prefill(self.load_view(), started, new, hits, due)
        self._publish()
        for job, take in plan:
            job.prefilled += take
            if job.prefilled < job.prompt_length:
                continue
            if self.cache.capacity:
                self.cache.insert(job.prompt)
            job.prefill_done_wall = job.forward_wall + (due - job.started_ns / 1e9)
            job.first_due_ns = int(due * 1e9)
            self._emit(job, 1, due)
            if job.finish is None:
                self.running.append(job)

    def _finish_decode(self, due: float) -> None:
        counters = self._counters
        window = counters.window
        tokens = correct = 0
        rows = len(self.running)
        self._steps_done += 1
        counters.decode_passes += 1
        for job in self.running:
            accepted = job.drafted
            if job.drafter is not None:
                job.verify_steps += 1
                job.correct += accepted
                histogram = job.histogram
                if accepted >= len(histogram):
                    histogram.extend([0] * (accepted + 1 - len(histogram)))
                histogram[accepted] += 1
            correct += accepted
            tokens += self._emit(job, accepted + 1, due)
        counters.decode_tokens += correct + rows
        window.steps += 1
        window.tokens += tokens
        window.rows += rows
        window.correct += correct
        self._unpublished += 1
        if self._unpublished >= self._publish_every:
            self._publish()
        if window.steps >= _LOG_EVERY:
            self._report.decode(self.load_view(), due)
        if any(job.finish is not None for job in self.running):
            self.running = [job for job in self.running if job.finish is None]

    def _emit(self, job: Job, tokens: int, due: float) -> int:
        start = job.emitted
        stop = min(job.limit, start + tokens)
        job.emitted = stop
        if stop >= job.limit:
            job.finish = job.ending
            job.end_due_ns = int(due * 1e9)
            self._end(job, start, stop, due)
        else:
            job.sink.push(job, start, stop)
            self._late(job, due)
        return stop - start

    @staticmethod
    def _late(job: Job, due: float) -> None:
        late = max(0, time.perf_counter_ns() - int(due * 1e9))
        job.late_sum_ns += late
        job.late_max_ns = max(job.late_max_ns, late)

    def _end(self, job: Job, start: int, stop: int, due: float | None = None) -> None:
        job.finished_ns = time.perf_counter_ns()
        if self.cache.capacity and job.prefilled >= job.prompt_length and job.finish and job.finish.kind != "abort":
            self.cache.insert(job.prompt + job.pieces[: job.emitted - 1])
        job.sink.push(job, start, stop)
        if due is not None:
            self._late(job, due)
        self._count_end(job)

    def _count_end(self, job: Job) -> None:
        if job.purpose != "user":
            return
        counters = self._counters
        counters.cached_tokens += job.cached
        counters.verify_calls += job.verify_steps
        stream = counters.streams[job.streamed]
        stream.prompt_tokens += job.prompt_length
        stream.generation_tokens += job.emitted
        stream.requests += 1
        counters.queue.observe(job.queued_s)
        if job.first_due_ns:
            first = (job.first_due_ns - job.arrival_ns) / 1e9
            whole = (job.finished_ns - job.arrival_ns) / 1e9
            stream.ttft.observe(first)
            stream.e2e.observe(whole)
            if job.emitted > 1:
                each = (whole - first) / (job.emitted - 1)
                stream.per_token.observe(each)
                counters.itl.observe(each, job.emitted - 1)

    def load_view(self) -> LoadView:
        """Returns how loaded the scheduler is right now."""
        return LoadView(
            running=len(self.running),
            waiting=len(self.waiting),
            waiting_uncached=sum(job.prompt_length - job.prefilled for job in self.waiting),
            used=sum(job.context for job in self.running),
            capacity=self.capacity,
            captured=self._captured(),
        )
