"""What must be shown before a preset is believed: two real generations, the settings read back, the model's name.

Restarts nothing. `putting` uses it after a restart; `prove_running` for a server as it stands.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from loadgen.records import Generation, GenerationRequest, Generator, Message, Outcome
from loadgen.spec import Target
from reconfig.durations import words as duration
from reconfig.effective import compare
from reconfig.expectations import Expected
from reconfig.failure import NotInEffectError
from reconfig.limits import Limits
from reconfig.logwatch import LogWatch
from reconfig.presets import SettingFound
from reconfig.server import Listing, ServerFacts, ServerView
from reconfig.steps import Steps
from reconfig.waiting import wait_until

PROBE_TOKENS = 24
IN_A_ROW = 2
SAME_FAULT = 3
SPARE_S = 1.0
SHOWN_CHARACTERS = 80
LOG_LAG_S = 3.0
_WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "kelp", "lotus", "maple", "olive")


class Prover:
    """Takes the proof's steps on one server.

    Args:
        target: the server; an empty model name stands for whatever it serves.
        server: who asks it; `generator`: who runs the generations; `steps`: who is told.
    """

    def __init__(
        self, *, target: Target, server: ServerView, generator: Generator, limits: Limits, steps: Steps
    ) -> None:
        self.target = target
        self.server = server
        self.generator = generator
        self.limits = limits
        self.steps = steps
        self.generations: list[str] = []
        self.warnings: list[str] = []
        self.answered = 0
        self.settings: tuple[SettingFound, ...] = ()
        self.facts: ServerFacts | None = None
        self.model: str | None = None
        self._clock = asyncio.get_running_loop().time

    async def wait_until_healthy(self, until: float, state: Callable[[], str], *, must: bool = True) -> None:
        """Waits for a good `/health`.

        Args:
            until: the loop's time at which it is too late.
            state: what the log says the server is doing.
            must: whether too late is a failure; a server that is only busy says 503 too, and its answers decide.

        Raises:
            NotInEffectError: it is too late.
        """
        self.steps.begin("health", "waiting for the server's own health check")
        while True:
            health = await self.server.health()
            if health.good:
                self.steps.done("health", health.words)
                return
            if health.status in {401, 403}:
                raise NotInEffectError(
                    "key", f"the server refuses us ({health.words}): correct api_key_env in [server]"
                )
            self.steps.news("health", f"{health.words}: {'busy or ' if health.status == 503 else ''}{state()}")
            if self._clock() >= until and not must:
                self.warnings.append(f"/health says {health.words}")
                self.steps.done("health", f"{health.words}: busy, or not well; the generations decide")
                return
            if self._clock() >= until:
                raise NotInEffectError("timeout", f"not healthy in time: /health says {health.words}")
            await asyncio.sleep(self.limits.look_s)

    async def generate_twice(self) -> None:
        """Two real generations in a row, each with a fresh random prompt; one at a time.

        Raises:
            NotInEffectError: the server refuses, or the limit is over.
        """
        self.steps.begin("generate", "two real generations with fresh prompts", "waiting for the first answer")
        until = self._clock() + self.limits.generate_s
        answered_badly = 0
        while len(self.generations) < IN_A_ROW:
            answered = self.answered
            problem = await self._one_generation(round(min(self.limits.probe_s, max(until - self._clock(), 0.1)), 1))
            if problem is not None:
                self.generations.clear()
                self.steps.news("generate", problem)
                answered_badly += self.answered - answered
                if answered_badly >= SAME_FAULT:
                    raise NotInEffectError("generate", f"{SAME_FAULT} generations in a row were no good: {problem}")
                if self._clock() >= until:
                    limit = duration(self.limits.generate_s)
                    raise NotInEffectError("generate", f"up, but not generating for {limit}: {problem}")
                await asyncio.sleep(self.limits.look_s)
            elif len(self.generations) < IN_A_ROW:
                self.steps.news("generate", f"one of {IN_A_ROW}: {self.generations[-1]!r}")
        self.steps.done("generate", " | ".join(repr(text) for text in self.generations))

    async def check_settings(
        self,
        expected: Sequence[Expected],
        *,
        log: LogWatch,
        log_is_whole: bool,
        given_env: Mapping[str, str] | None = None,
    ) -> None:
        """Reads the effective settings back and compares them with the asked ones.

        Raises:
            NotInEffectError: one differs, or can't be seen.
        """
        self.steps.begin("settings", "reading the effective settings back")
        self.facts = await self._facts()
        if log_is_whole and any(item.window_log is not None for item in expected):
            await wait_until(lambda: log.window_line is not None, limit_s=LOG_LAG_S, every_s=self.limits.look_s)
        self.settings = tuple(
            compare(
                expected,
                self.facts,
                window_line=log.window_line,
                log_read=log_is_whole and log.lines > 0,
                given_env=given_env,
            )
        )
        wrong = [found for found in self.settings if not found.ok]
        if wrong:
            raise NotInEffectError("setting", "; ".join(_mismatch(found) for found in wrong))
        self.steps.done("settings", ", ".join(f"{found.setting} {found.asked}" for found in self.settings))

    async def check_model(self) -> None:
        """Compares the model that is served with the one that was configured.

        Raises:
            NotInEffectError: another one is served, or the server does not tell.
        """
        self.steps.begin("model", "comparing the model's name")
        listing = await self._listing()
        if listing is None or not listing.models:
            raise NotInEffectError("model", "the server does not tell its models (/v1/models)")
        served = ", ".join(listing.models)
        if self.target.model and self.target.model not in listing.models:
            self.model = listing.models[0]
            raise NotInEffectError(
                "model", f'the server serves "{served}", not "{self.target.model}": correct model in [server]'
            )
        self.model = self.target.model or listing.models[0]
        self.steps.done("model", self.model)

    async def _one_generation(self, limit_s: float) -> str | None:
        """Runs one; the words of what was wrong, `None` when it was good."""
        request = probe_request(limit_s)
        try:
            # The generator ends it by its own limits; this one is for a generator that does not.
            async with asyncio.timeout(limit_s + SPARE_S):
                generation = await self.generator.generate(request)
        except TimeoutError:
            return f"up, not generating: no answer within {duration(limit_s)}"
        self.answered += generation.record.outcome in {Outcome.OK, Outcome.TRUNCATED}
        problem = judge(generation)
        if problem is not None:
            await self._refuse_if_final(generation)
            return problem
        text = generation.content.strip() or generation.reasoning.strip()
        if looks_senseless(text):
            self.warnings.append(f"the probe's answer looks senseless: {text[:SHOWN_CHARACTERS]!r}")
        self.generations.append(text[:SHOWN_CHARACTERS])
        return None

    async def _refuse_if_final(self, generation: Generation) -> None:
        record = generation.record
        if record.outcome is not Outcome.HTTP_4XX or record.http_status in {408, 429}:
            return
        listing = await self.server.listing()
        served = f"; it serves: {', '.join(listing.models)}" if listing is not None and listing.models else ""
        words = f"the server refuses the probe: HTTP {record.http_status}: {record.error}{served}"
        cause = "model" if listing is not None and self.target.model not in listing.models else "generate"
        raise NotInEffectError(cause, words)

    async def _facts(self) -> ServerFacts | None:
        until = self._clock() + self.limits.settings_s
        while (facts := await self.server.facts()) is None and self._clock() < until:
            self.steps.news("settings", "/server_info does not answer yet")
            if await self.server.port_open() and await self.server.listing() is not None:
                return None
            await asyncio.sleep(self.limits.look_s)
        return facts

    async def _listing(self) -> Listing | None:
        until = self._clock() + self.limits.settings_s
        while (listing := await self.server.listing()) is None and self._clock() < until:
            self.steps.news("model", "/v1/models does not answer yet")
            await asyncio.sleep(self.limits.look_s)
        return listing


def probe_request(limit_s: float) -> GenerationRequest:
    """A short generation with a prompt that no cache has seen."""
    words = " ".join(secrets.SystemRandom().sample(_WORDS, 5))
    tag = secrets.token_hex(6)
    return GenerationRequest(
        rid=f"probe-{tag}",
        messages=(Message("user", f"[{tag}] Write one sentence that uses these words: {words}."),),
        max_tokens=PROBE_TOKENS,
        purpose="probe",
        category="probe",
        keep_text=True,
        request_timeout_s=limit_s,
        first_token_timeout_s=limit_s,
        stall_timeout_s=limit_s,
    )


def judge(generation: Generation) -> str | None:
    """What is wrong with a probe's answer: it must have text, a clean end and usage; `None` when all is well."""
    record = generation.record
    if record.outcome is Outcome.TIMEOUT:
        return f"up, not generating: {record.error or 'no answer in time'}"
    if record.outcome is not Outcome.OK:
        return f"the generation failed: {record.outcome.value}{f': {record.error}' if record.error else ''}"
    if not (generation.content.strip() or generation.reasoning.strip()):
        return "the answer is empty"
    if record.finish_reason not in {"stop", "length"}:
        return f"the answer has no clean end (finish reason {record.finish_reason})"
    if not record.n_out:
        return "the answer came without usage, so that tokens can't be counted"
    return None


def looks_senseless(text: str) -> bool:
    """Whether a text is one thing over and over ("!!!!!!!!"): it generates, but weights or drafts may be broken."""
    units = text.split()
    return len(text) >= 6 and (len(set(text)) <= 2 or (len(units) >= 6 and len(set(units)) == 1))


def _mismatch(found: SettingFound) -> str:
    seen = "nothing" if found.found is None else found.found
    return f"{found.setting}: asked {found.asked}, found {seen} ({found.source})"
