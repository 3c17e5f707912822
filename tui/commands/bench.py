"""`spectop bench`: one server as it stands, with the old harness's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def bench(
    *,
    base_url: Annotated[str, Parameter(help="The server, such as http://127.0.0.1:30000.")],
    model: Annotated[str | None, Parameter(help="Model; what the server serves when left out.")] = None,
    label: Annotated[str, Parameter(help="Name of the session.")] = "bench",
    contexts: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative="", help="Prompt tokens.")] = (
        60,
        1024,
        4096,
        8192,
    ),
    concurrency: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative="", help="Streams at once.")] = (
        1,
        8,
        32,
        64,
    ),
    max_tokens: Annotated[int, Parameter(help="Output tokens of a request.")] = 512,
    temperature: Annotated[float, Parameter(help="0 is greedy.")] = 0.0,
    requests: Annotated[int | None, Parameter(help="Requests of a cell (default: 4 a stream).")] = None,
    duration: Annotated[str | None, Parameter(help='Instead: how long a cell starts requests, such as "30s".')] = None,
    warmup: Annotated[int | None, Parameter(help="Requests before a cell's measured ones.")] = None,
    rate: Annotated[float | None, Parameter(help="Request starts a second, with --arrival.")] = None,
    arrival: Annotated[Literal["closed", "poisson", "constant"], Parameter(help="When requests start.")] = "closed",
    repeats: Annotated[int, Parameter(help="Repetitions of every cell.")] = 1,
    workload: Annotated[
        Literal["coding", "prose", "math", "chat", "mixed"], Parameter(help="What is asked.")
    ] = "coding",
    ignore_eos: Annotated[bool, Parameter(negative="", help="Make every answer as long as allowed.")] = False,
    coding: Annotated[bool, Parameter(negative="", help="Run the five coding problems as well.")] = False,
    lossless: Annotated[bool, Parameter(negative="", help="Keep greedy texts, to compare sessions with.")] = False,
    unsafe_exec: Annotated[bool, Parameter(negative="", help="Run answers' code without a sandbox.")] = False,
    dialect: Annotated[Literal["sglang", "vllm", "openai"] | None, Parameter(help="How the server speaks.")] = None,
    api_key_env: Annotated[str | None, Parameter(help="Environment variable that holds the key.")] = None,
    workers: Annotated[int, Parameter(help="Load processes.")] = 1,
    out: Annotated[Path | None, Parameter(help="Write the results as JSON here.")] = None,
    headless: Annotated[bool, Parameter(negative="", help="No screen: one line an event, then the tables.")] = False,
    sessions_dir: Annotated[Path | None, Parameter(help="Where sessions are kept.")] = None,
) -> int:
    """Measure one server as it stands; nothing is restarted."""
    from sessions.folder import sessions_dir as directory
    from tui.bench_sweep import BenchOptions, bench_sweep, write_out
    from tui.session_run import new_session, run_session

    options = BenchOptions(
        base_url=base_url,
        model=model,
        label=label,
        contexts=list(contexts),
        concurrency=list(concurrency),
        max_tokens=max_tokens,
        temperature=temperature,
        requests=requests,
        duration=duration,
        warmup=warmup,
        rate=rate,
        arrival=arrival,
        repeats=repeats,
        workload=workload,
        ignore_eos=ignore_eos,
        coding=coding,
        lossless=lossless,
        unsafe_exec=unsafe_exec,
        dialect=dialect,
        api_key_env=api_key_env,
        workers=workers,
    )
    folder = new_session(bench_sweep(options), directory(sessions_dir))
    status = run_session(folder, headless=headless)
    if out is not None:
        write_out(folder, out)
    return status
