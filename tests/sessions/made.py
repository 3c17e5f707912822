"""Sessions made for tests: real folders, written by the real log, with figures whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from evals.verdicts import EvalSummary, Extraction, Judgement, LosslessSummary, Suspicion, Verdict
from loadgen.figures import CellFigures, ClientFigures, Interval, Mark, Percentiles, RequestCounts
from loadgen.records import AcceptanceSource, Chunk, Outcome, RequestRecord
from loadgen.spec import CellProgress
from reconfig.presets import Preset, Proof, SettingFound
from sessions import events as ev
from sessions.events import CellKey
from sessions.folder import create, describe_host
from sessions.log import SavedText, SessionLog
from telemetry.samples import GpuReading, GpuSample, ServerSample

PRESETS = (
    Preset(name="none", algorithm="NONE"),
    Preset(name="b8t4-w2048", algorithm="DDTREE", budget=8, topk=4, window=2048),
    Preset(name="b16t4-w2048", algorithm="DDTREE", budget=16, topk=4, window=2048, env={"HF_TOKEN": "hf_secret"}),
)
SPEED = {"none": 80.0, "b8t4-w2048": 170.0, "b16t4-w2048": 175.0}


def truth(preset: str, context: int, concurrency: int) -> float:
    """Throughput in tok/s that a made session scatters around."""
    per_user = SPEED.get(preset, 100.0) * (1 - context / 40_000)
    gain: float = concurrency**0.75
    if preset == "b16t4-w2048":  # a wide tree pays at few streams and costs at many
        gain *= 1.1 if concurrency == 1 else 0.85
    return per_user * gain


def figures(
    tok_s: float, *, concurrency: int = 1, acceptance: float | None = 4.3, marks: tuple[Mark, ...] = ()
) -> CellFigures:
    """Figures of a cell of this throughput, with a half-interval of 1.5 %."""
    user = tok_s / concurrency
    steps = 1000.0
    return CellFigures(
        prompt_tokens_mean=4096.0,
        throughput_tok_s=tok_s,
        throughput_ci95=Interval(tok_s * 0.985, tok_s * 1.015),
        whole_run_throughput_tok_s=tok_s * 0.93,
        decode_tok_s=Percentiles(user, user * 1.1, user * 1.2, 24, True),
        ttft_s=Percentiles(0.2, 0.3, 0.35, 24, True),
        tpot_s=Percentiles(1 / user, 1.1 / user, 1.2 / user, 24, True),
        e2e_s=Percentiles(3.0, 3.4, 3.6, 24, True),
        chunk_gap_s=Percentiles(0.02, 0.03, 0.05, 4000),
        decode_ci95=Interval(user * 0.98, user * 1.02),
        ttft_ci95=Interval(0.19, 0.21),
        acceptance_ci95=None if acceptance is None else Interval(acceptance - 0.05, acceptance + 0.05),
        acceptance_length=acceptance,
        acceptance_source=None if acceptance is None else AcceptanceSource.PER_REQUEST.value,
        verify_steps=None if acceptance is None else steps,
        committed_tokens=None if acceptance is None else steps * acceptance,
        accepted_histogram=None if acceptance is None else (120, 180, 200, 180, 140, 90, 60, 30),
        survival=None if acceptance is None else (1.0, 0.88, 0.7, 0.5, 0.32, 0.18, 0.09, 0.03),
        effective_concurrency=concurrency * 0.99,
        output_tokens=12_288,
        ramp_s=0.5,
        steady_s=20.0,
        tail_s=1.0,
        requests=RequestCounts(valid=24, failed={}),
        cached_token_share=0.0,
        energy_j_per_tok=3400 / tok_s,
        gpu_memory_peak_bytes=(94_600_000_000,) * 8,
        gpu_power_mean_w=3400.0,
        gpu_utilisation_mean=0.96,
        client=ClientFigures(0.0004, 0.2, concurrency, 0.0001),
        marks=marks,
    )


def gpu_sample(t: float, count: int = 8) -> GpuSample:
    """One reading of `count` GPUs."""
    readings = tuple(
        GpuReading(
            index=i,
            uuid=f"GPU-{i}",
            name="NVIDIA RTX PRO 6000",
            memory_used_bytes=94_600_000_000,
            memory_total_bytes=102_600_000_000,
            memory_kind="v2",
            utilisation=0.9 + 0.01 * i,
            power_w=400.0 + 5 * i + 10 * (int(t) % 3),
            power_limit_w=600.0,
            temperature_c=70.0 + i,
            sm_clock_mhz=2400.0,
            memory_clock_mhz=1700.0,
            throttle=(),
            energy_j=400.0 * t,
        )
        for i in range(count)
    )
    return GpuSample(t=t, source="simulated", gpus=readings, driver="595.10")


def request(t: float, run: str, rid: str, *, chunks: int = 5) -> RequestRecord:
    """One good request."""
    return RequestRecord(
        t=t,
        cell=run,
        rid=rid,
        purpose="cell",
        category="code",
        t_due=max(0.0, t - 1),
        t_send=max(0.0, t - 1),
        ttft=0.2,
        ttfo=0.2,
        e2e=0.9,
        n_out=chunks * 4,
        n_first=4,
        n_first_known=True,
        prompt_tokens=4096,
        finish_reason="length",
        outcome=Outcome.OK,
        chunks=tuple(Chunk(0.2 + 0.1 * i, 4) for i in range(chunks)),
        verify_steps=chunks,
        correct_drafts=chunks * 3,
        accepted_histogram=(1, 2, 2),
        acceptance_source=AcceptanceSource.PER_REQUEST,
        max_tokens=512,
    )


def proof(preset: Preset) -> Proof:
    """A proof that a preset is in effect."""
    found = tuple(
        SettingFound(key, str(value), str(value), "server_info", True)
        for key in ("budget", "topk", "window")
        if (value := getattr(preset, key)) is not None
    )
    return Proof(
        preset=preset.name, in_effect=True, settings=found, instance={"pid": "41207"}, took_s=12.5, load_s=11.0
    )


def make_session(
    sessions_dir: Path,
    label: str = "made",
    *,
    presets: Sequence[Preset] = PRESETS,
    contexts: Sequence[int] = (1024, 4096),
    concurrencies: Sequence[int] = (1, 8),
    repeats: int = 3,
    speed: Callable[[str, int, int], float | None] = truth,
    noise: float = 0.01,
    seed: int = 0,
    model: str = "kimi-k2.6",
    sweep: bytes = b'{"label": "made", "matrix": {"max_tokens": 512}}',
    driver: str = "595.10",
    marks: Callable[[CellKey], tuple[Mark, ...]] = lambda _: (),
    end: bool = True,
    last_cells: int | None = None,
    progress: int = 3,
    requests: int = 2,
) -> Path:
    """Writes a whole session and returns its folder.

    `speed` gives a cell's true throughput, `None` for a cell that fails. With `last_cells` the session stops after so
    many cells, in the middle of the next one; without `end` its engine was killed.
    """
    rng = random.Random(seed)
    info = describe_host(label, sweep=sweep, gpus=("NVIDIA RTX PRO 6000",) * 8, driver=driver)
    folder = create(sessions_dir, label, info)
    cells = tuple(
        CellKey(preset=p.name, context=x, concurrency=c, repetition=r)
        for p in presets
        for r in range(1, repeats + 1)
        for x in contexts
        for c in concurrencies
    )
    t = 0.0

    def at() -> str:
        return f"2026-11-03T10:{int(t) // 60 % 60:02d}:{t % 60:06.3f}Z"

    with SessionLog(folder) as log:
        log.append(
            ev.SessionStarted(
                t=t,
                at=at(),
                label=label,
                session=folder.name,
                base_url="http://127.0.0.1:30000",
                model=model,
                presets=tuple(presets),
                cells=cells,
                reference="none" if any(p.name == "none" for p in presets) else None,
                repeats=repeats,
                max_tokens=512,
                coding="core-5",
                lossless_prompts=16,
                simulated=True,
                load_s_expected=12.0,
            )
        )
        done = 0
        for preset in presets:
            t += 1
            log.append(ev.PhaseChanged(t=t, at=at(), phase="reconfiguring", preset=preset.name, words="restart asked"))
            t += 11.5
            log.append(ev.PresetProved(t=t, at=at(), proof=proof(preset)))
            _write_evals(log, preset, t)
            for key in (c for c in cells if c.preset == preset.name):
                t += 0.5
                log.append(ev.PhaseChanged(t=t, at=at(), phase="measuring", preset=preset.name, cell=key))
                log.append(ev.CellStarted(t=t, at=at(), cell=key, run=key.text))
                true = speed(key.preset, key.context, key.concurrency)
                measured = None if true is None else true * (1 + rng.gauss(0, noise))
                for i in range(progress):
                    t += 1
                    log.append(ev.GpusSampled(t=t, sample=gpu_sample(t)))
                    log.append(
                        ev.ServerSampled(t=t, sample=ServerSample(t=t, source="sglang", running=key.concurrency))
                    )
                    log.append(
                        ev.CellProgressed(
                            t=t,
                            at=at(),
                            cell=key,
                            progress=CellProgress(
                                cell=key.text,
                                phase="steady",
                                t=t,
                                started=i + 1,
                                finished=i,
                                failed=0,
                                running=1,
                                total=3,
                                share_done=i / max(1, progress),
                                tokens=100 * i,
                                tok_s=measured if i else None,
                                acceptance_length=4.3,
                            ),
                        )
                    )
                for i in range(requests):
                    log.request(request(t, key.text, f"{key.text}-{i}"))
                if done == last_cells:
                    if end:
                        log.append(ev.SessionEnded(t=t, at=at(), status="stopped", words="asked to stop"))
                    return folder
                if measured is None:
                    log.append(
                        ev.CellEnded(t=t, at=at(), cell=key, run=key.text, outcome="failed", reason="out of memory")
                    )
                else:
                    found = figures(
                        measured,
                        concurrency=key.concurrency,
                        acceptance=None if preset.name == "none" else 4.3,
                        marks=marks(key),
                    )
                    log.append(
                        ev.CellEnded(
                            t=t, at=at(), cell=key, run=key.text, outcome="measured", figures=found, took_s=3.0
                        )
                    )
                done += 1
        if end:
            log.append(ev.SessionEnded(t=t, at=at(), status="finished", words="all cells done"))
    return folder


def _write_evals(log: SessionLog, preset: Preset, t: float) -> None:
    for i, task in enumerate(("is_palindrome", "fib", "merge_sorted", "word_count", "gcd")):
        verdict = Verdict.FAIL if preset.name == "b16t4-w2048" and task == "gcd" else Verdict.PASS
        judgement = Judgement(
            t=t,
            preset=preset.name,
            problem_set="core-5",
            task_id=task,
            verdict=verdict,
            rid=f"{preset.name}-{i}",
            extraction=Extraction(
                code="def f(): ...", channel="content", origin="content, block 1 of 1", why="the only block"
            ),
        )
        log.append(ev.AnswerJudged(t=t, judgement=judgement))
        log.text(
            SavedText(
                t=t, rid=f"{preset.name}-{i}", purpose="eval", preset=preset.name, task_id=task, content="```\nx\n```"
            )
        )
    passed = 4 if preset.name == "b16t4-w2048" else 5
    log.append(
        ev.EvalEnded(
            t=t,
            summary=EvalSummary(
                preset=preset.name,
                problem_set="core-5",
                problems=5,
                samples=1,
                judged=5,
                passed=passed,
                pass_at_1=passed / 5,
                pass_at_1_ci95=(0.38, 0.96) if passed == 4 else (0.57, 1.0),
                verdicts={"pass": passed, "fail": 5 - passed},
            ),
        )
    )
    identical = 16 if preset.name == "none" else 15
    log.append(
        ev.LosslessEnded(
            t=t,
            summary=LosslessSummary(
                preset=preset.name,
                reference="none",
                prompts=16,
                compared=16,
                identical=identical,
                identical_share=identical / 16,
                median_first_difference=None if identical == 16 else 210.0,
                diverged=False,
            ),
        )
    )
    if preset.name == "b16t4-w2048":
        log.append(
            ev.SuspicionRaised(
                t=t,
                suspicion=Suspicion(
                    rule="wider-accepts-less",
                    suspect="server",
                    words="a wider tree accepts less than a narrower one",
                    evidence="4.30 against 4.31",
                    look_at="the mask of the verify step",
                    preset=preset.name,
                ),
            )
        )
