"""`python -m sessions.engine FOLDER [--resume]`: the engine's process, from its session's folder to its end.

Builds the parts, joins them, and ends them in order. It never imports the screens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import uvloop

from loadgen.certificates import trusted
from loadgen.lag import LagWatcher
from loadgen.pool import WorkerPool
from loadgen.spec import Target
from reconfig.loads import LoadMemory
from reconfig.managers import manager_from
from sessions.commands import Command, Reply
from sessions.control import ControlServer
from sessions.engine.applying import Applying
from sessions.engine.checking import Checking, reference_texts
from sessions.engine.conductor import Conductor, Ending
from sessions.engine.guarding import Guard
from sessions.engine.measuring import Measuring
from sessions.engine.opening import is_simulated, opened
from sessions.engine.watching import Watch
from sessions.errors import SessionError, SpectopError
from sessions.events import AnyEvent, Said, SessionEnded
from sessions.folder import publish_control, read_info, socket_path
from sessions.launch import ENGINE_LOG
from sessions.log import SessionLog
from sessions.logread import state_of
from sessions.notify import Notifier, notice_of
from sessions.recorder import Recorder
from sessions.sweep import Sweep, sweep_from_json
from telemetry.choose import TelemetryConfig, gpu_source
from telemetry.server import ServerGauges

TICK_S = 1.0
FAR_GPUS = "no GPU telemetry: the server is managed on another machine; name DCGM's exporter there (dcgm_url)"


async def run_engine(folder: Path, *, resume: bool) -> Ending:
    """Runs a session to its end.

    Args:
        folder: with the `session.json` that says what to do.
        resume: go on with what is missing.

    Raises:
        SpectopError: the session cannot be taken up.
    """
    info = read_info(folder)
    sweep = sweep_from_json(bytes(info.sweep))
    with SessionLog(folder, texts=sweep.keep_texts) as log:
        recorder = Recorder(log, state_of(folder) if resume else None)
        conductor: Conductor | None = None

        async def obey(command: Command) -> Reply:
            if conductor is None:
                return Reply(ok=False, words="the engine is still starting")
            return await conductor.obey(command)

        path = socket_path(folder)
        control = ControlServer(path, lambda: recorder.state, obey)
        recorder.subscribe(control.publish)
        notifier = Notifier(
            sweep.notify.command,
            sweep.notify.timeout,
            lambda trouble: recorder.happen(Said(level="warning", words=trouble)),
        )

        def tell(event: AnyEvent) -> None:
            if (notice := notice_of(event, recorder.state, str(folder))) is not None:
                notifier.tell(notice)

        recorder.subscribe(tell)
        memory = LoadMemory()
        target = first_target(sweep)
        manager = manager_from(sweep.server.manager, state_dir=folder)
        far = manager.elsewhere and sweep.telemetry.gpus == "auto" and sweep.telemetry.dcgm_url is None
        devices = None if sweep.telemetry.devices is None else tuple(map(str, sweep.telemetry.devices))
        choice = await asyncio.to_thread(
            gpu_source,
            TelemetryConfig(
                base_url=sweep.server.base_url,
                source="none" if far else sweep.telemetry.gpus,
                dcgm_url=sweep.telemetry.dcgm_url,
                gpus=devices,
                pcie_rate=sweep.telemetry.pcie,
                interval_s=sweep.telemetry.interval,
            ),
        )
        simulated = is_simulated(sweep) or choice.source.name == "simulated"
        recorder.happen(opened(folder, info, sweep, recorder.state, memory, resume=resume, simulated=simulated))
        try:  # terminals are let in now and not before: a resumed session's old end is not the end
            await control.start()
            publish_control(folder, path)
        except OSError as error:
            raise SessionError(
                f"terminals could not be let in ({path}, {folder}): {error.strerror or error}"
            ) from error
        for repaired in log.repaired:
            recorder.happen(Said(level="warning", words=repaired))
        recorder.happen(Said(level="info", words=FAR_GPUS if far else choice.why))
        gauges = ServerGauges(target.base_url, target.dialect, target.api_key, verify=trusted(target.base_url))
        watch = Watch(recorder, choice.source, gauges, sweep.telemetry.interval, devices)
        pool = WorkerPool(sweep.load.workers, log.origin_ns, target)
        await pool.start()
        watch.start()
        guard = Guard(target, manager, watch.logged)
        measuring = Measuring(sweep, recorder, pool, watch, target, guard)
        memory_seen = watch.gpu_memory if choice.source.name == "nvml" and not manager.elsewhere else None
        applying = Applying(sweep, recorder, pool, watch, manager, memory, measuring, target, guard, memory_seen)
        checking = Checking(sweep, recorder, pool, guard, reference_texts(folder, recorder.state))
        conductor = Conductor(sweep, recorder, applying, measuring, checking)
        background = [asyncio.create_task(watch.run()), asyncio.create_task(_tick(recorder))]
        _obey_signals(conductor)
        lag = LagWatcher()
        lag.start()
        try:
            if choice.source.name in ("nvml", "dcgm"):
                await watch.measure_idle()
            ending, words = await conductor.run()
            await applying.leave()
            watch.tell_cost()
            recorder.happen(Said(level="info", words=_own_health(lag)))
        except Exception as error:
            words = f"a fault of spectop itself ({type(error).__name__}: {error}); {ENGINE_LOG} says where"
            recorder.happen(Said(level="error", words=words))
            with contextlib.suppress(Exception):  # the fault is told; leaving the server is all that is left to try
                await applying.leave()
            recorder.happen(SessionEnded(status="failed", words=words))
            raise
        else:
            recorder.happen(SessionEnded(status=ending, words=words))
        finally:
            lag.stop()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await guard.forget()
            watch.stop()
            checking.close()
            await pool.close()
            await gauges.close()
            recorder.sync()
            await recorder.settle()
            await notifier.close()
            await control.close()
        if ending == "finished":
            try:
                await asyncio.to_thread(_write_tables, folder)
            except SpectopError as error:  # the log has it all, and Parquet can be made of it at any time
                recorder.happen(Said(level="warning", words=str(error)))
        return ending


def first_target(sweep: Sweep) -> Target:
    """Returns the server as the sweep file tells it, before it was ever asked."""
    key = os.environ.get(sweep.server.api_key_env) if sweep.server.api_key_env else None
    return Target(
        base_url=sweep.server.base_url.rstrip("/"),
        model=sweep.server.model or "",
        dialect=sweep.server.dialect or "sglang",
        api_key=key,
    )


async def _tick(recorder: Recorder) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        recorder.tick()


def _obey_signals(conductor: Conductor) -> None:
    """SIGTERM and SIGINT stop the session in an orderly way."""
    loop = asyncio.get_running_loop()
    asking: set[asyncio.Task[Reply]] = set()

    def stop() -> None:
        task = loop.create_task(conductor.obey(Command(name="stop")))
        asking.add(task)
        task.add_done_callback(asking.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _write_tables(folder: Path) -> None:
    from sessions.tables import write_parquet  # late: Polars is slow to load, and needed only here

    write_parquet(folder)


def _own_health(lag: LagWatcher) -> str:
    """Says how the engine's process fared: a terminal, however slow, must not be able to hold its event loop up."""
    return (
        f"the engine's event loop was at most {lag.lag_s(0.99) * 1e3:.1f} ms late 99 % of the time, "
        f"and took {lag.cpu_share():.1%} of a core"
    )


def main() -> int:
    """Runs the engine's process and returns its exit status."""
    parser = argparse.ArgumentParser(prog="sessions.engine", description="The engine of one session.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGHUP, lambda *_: None)  # a closed terminal concerns nobody here; children get the default
    try:
        ending = uvloop.run(run_engine(asked.folder, resume=asked.resume))
    except SpectopError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0 if ending == "finished" else 1


if __name__ == "__main__":
    sys.exit(main())
