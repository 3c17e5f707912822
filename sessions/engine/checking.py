"""The evals of a preset as their own phase: never inside a measured cell, their requests logged like all others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from evals.coding import run_coding_eval
from evals.errors import EvalError
from evals.lossless import GreedyText, LosslessLimits, compare, fixed_prompts, run_lossless
from evals.problems import Problem, load_problem_set
from evals.sandbox import Sandbox, probe_level
from evals.suspicion import suspicions
from evals.verdicts import EvalSummary, Judgement
from loadgen.errors import WorkerLost
from loadgen.pool import WorkerPool
from loadgen.records import Generation
from sessions.engine.evidence import evidence_of
from sessions.engine.guarding import Guard
from sessions.events import AnswerJudged, EvalEnded, LosslessEnded, PhaseChanged, PresetLost, Said, SuspicionRaised
from sessions.lines import Decoder, Notes, iter_decoded
from sessions.log import TEXTS_FILE, SavedText
from sessions.recorder import Recorder
from sessions.state import SessionState
from sessions.sweep import Sweep

LOSSLESS_MAX_TOKENS = 256
CLEAN_ENDS = ("stop", "length", "tool_calls")


class Checking:
    """Runs the coding eval and the lossless check, and raises suspicions.

    Args:
        sweep: what is asked.
        recorder: where everything goes.
        pool: runs the generations.
        guard: tells whether it is still the proven server.
        reference_texts: the reference preset's greedy texts of a session that is resumed.
    """

    def __init__(
        self,
        sweep: Sweep,
        recorder: Recorder,
        pool: WorkerPool,
        guard: Guard,
        reference_texts: dict[int, GreedyText] | None = None,
    ) -> None:
        self._sweep = sweep
        self._recorder = recorder
        self._pool = pool
        self._guard = guard
        self._sandbox: Sandbox | None = None
        self._reference_texts: dict[int, GreedyText] = reference_texts or {}
        self._reference_name = recorder.state.reference or ""

    async def coding(self, preset: str) -> bool:
        """Runs the coding eval under the preset in effect; a refused one is told and does not come again.

        Returns:
            Whether it was still the proven server at the end.
        """
        if await self._server_lost(preset):
            return False
        evals = self._sweep.evals
        wanted = evals.coding or ""
        self._recorder.happen(PhaseChanged(phase="evaluating", preset=preset, words=f"coding eval {wanted}"))
        try:
            problems = await asyncio.to_thread(load_problem_set, wanted)
            sandbox = await self._sandboxed()
            summary, _ = await run_coding_eval(
                problems,
                generator=self._pool,
                sandbox=sandbox,
                preset=preset,
                samples=evals.samples,
                max_tokens=evals.max_tokens,
                concurrency=evals.concurrency,
                temperature=evals.temperature,
                pass_at=evals.pass_at,
                on_judgement=self._judged,
                on_generation=lambda problem, sample, done: self._answered(preset, wanted, problem, sample, done),
                rid_prefix=f"eval-{preset}-{self._moment()}",
                route=self._sweep.load.route,
                seed=self._sweep.load.seed,
                now=self._recorder.now,
            )
        except (EvalError, WorkerLost) as error:
            self._recorder.happen(Said(level="error", words=f"the coding eval did not run: {error}"))
            self._recorder.happen(EvalEnded(summary=_not_run(preset, wanted, evals.samples)))
            if isinstance(error, WorkerLost):
                await self._pool.start()
            return True
        if await self._server_lost(preset):
            return False
        self._recorder.happen(EvalEnded(summary=summary))
        self._recorder.sync()
        return True

    async def lossless(self, preset: str) -> bool:
        """Runs the lossless check under the preset in effect, against the reference preset's texts.

        Returns:
            Whether it was still the proven server at the end.
        """
        if await self._server_lost(preset):
            return False
        self._recorder.happen(PhaseChanged(phase="evaluating", preset=preset, words="lossless check"))
        count = self._sweep.evals.lossless_prompts
        limits = LosslessLimits(share=self._sweep.evals.lossless_share, position=self._sweep.evals.lossless_position)
        reference = self._recorder.state.reference or preset
        try:
            texts = await run_lossless(
                fixed_prompts(count),
                self._pool,
                max_tokens=LOSSLESS_MAX_TOKENS,
                concurrency=self._sweep.evals.concurrency,
                rid_prefix=f"lossless-{preset}-{self._moment()}",
                route=self._sweep.load.route,
                on_generation=lambda index, done: self._said_greedily(preset, index, done),
            )
        except WorkerLost as error:
            self._recorder.happen(Said(level="error", words=f"the lossless check did not run: {error}"))
            await self._pool.start()
            texts = {}
        if await self._server_lost(preset):
            return False
        if preset == reference or not self._reference_texts:
            self._reference_texts, self._reference_name = texts, preset
        summary = compare(
            self._reference_texts, texts, preset=preset, reference=self._reference_name, prompts=count, limits=limits
        )
        self._recorder.happen(LosslessEnded(summary=summary))
        self._recorder.sync()
        return True

    async def _server_lost(self, preset: str) -> bool:
        """Whether the server is not the proven one any more: nothing is concluded then, and the plan comes back."""
        why = await self._guard.changed()
        if why is not None:
            self._recorder.happen(PresetLost(preset=preset, reason=why))
        return why is not None

    def _moment(self) -> int:
        """The session's milliseconds: an eval that was cut short is run anew, and its requests are others."""
        return int(self._recorder.now() * 1000)

    def suspect(self) -> None:
        """Raises the suspicions that the state so far supports and that were not raised yet."""
        known = {(s.rule, s.preset) for s in self._recorder.state.suspicions}
        for suspicion in suspicions(evidence_of(self._recorder.state, self._sweep)):
            if (suspicion.rule, suspicion.preset) not in known:
                self._recorder.happen(SuspicionRaised(suspicion=suspicion))

    def close(self) -> None:
        """Gives the sandbox's threads back."""
        if self._sandbox is not None:
            self._sandbox.close()

    async def _sandboxed(self) -> Sandbox:
        if self._sandbox is None:
            level = await asyncio.to_thread(probe_level)
            self._sandbox = Sandbox(level, unsafe=self._sweep.evals.unsafe_exec)
            words = f"sandbox: {self._sandbox.level.words}"
            self._recorder.happen(Said(level="info" if level.safe else "warning", words=words))
        return self._sandbox

    def _said_greedily(self, preset: str, index: int, done: Generation) -> None:
        self._recorder.request(done.record)
        self._recorder.text(
            SavedText(
                t=done.record.t,
                rid=done.record.rid,
                purpose="lossless",
                preset=preset,
                sample=index,
                content=done.content,
                reasoning_content=done.reasoning,
                finish_reason=done.record.finish_reason,
                n_out=done.record.n_out,
            )
        )

    def _judged(self, judgement: Judgement) -> None:
        self._recorder.happen(AnswerJudged(judgement=judgement))

    def _answered(self, preset: str, problem_set: str, problem: Problem, sample: int, done: Generation) -> None:
        self._recorder.request(done.record)
        self._recorder.text(
            SavedText(
                t=done.record.t,
                rid=done.record.rid,
                purpose="eval",
                preset=preset,
                problem_set=problem_set,
                task_id=problem.task_id,
                sample=sample,
                recipe=problem.prompt,
                content=done.content,
                reasoning_content=done.reasoning,
                finish_reason=done.record.finish_reason,
                n_out=done.record.n_out,
            )
        )


def _not_run(preset: str, problem_set: str, samples: int) -> EvalSummary:
    return EvalSummary(
        preset=preset,
        problem_set=problem_set,
        problems=0,
        samples=samples,
        passed=0,
        pass_at_1=None,
        pass_at_1_ci95=None,
    )


def reference_texts(folder: Path, state: SessionState) -> dict[int, GreedyText]:
    """Returns the greedy texts of the reference preset that a session's earlier engine kept."""
    if not state.reference:
        return {}
    texts = iter_decoded(folder / TEXTS_FILE, Decoder.of(SavedText), Notes(TEXTS_FILE))
    return {
        text.sample: GreedyText(
            text="\n".join(part for part in (text.reasoning_content, text.content) if part), tokens=text.n_out
        )
        for text in texts
        if text.purpose == "lossless" and text.preset == state.reference and text.finish_reason in CLEAN_ENDS
    }
