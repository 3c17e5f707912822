"""The engine's eyes: GPU readings, the server's gauges and its log, kept for the cell that is being measured.

Nothing here may delay a cell: the GPUs are read on a thread of their own, the gauges with short time limits.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from loadgen.decode_log import BatchLine, read_batch_line
from loadgen.figures import GpuWindow, ServerWindow
from reconfig.loglines import LogLine
from reconfig.restart import GpuMemory
from sessions.events import GpusSampled, IdlePowerMeasured, Said, ServerLogged, ServerSampled
from sessions.recorder import Recorder
from telemetry.changes import gpu_changes, server_changes
from telemetry.ownership import ServerHint
from telemetry.poller import Poller
from telemetry.samples import GpuSample, GpuSource, ServerSample
from telemetry.server import ServerGauges
from telemetry.windows import gpu_window, idle_power_w, server_window

EDGE_LIMIT_S = 0.15
IDLE_READINGS = 3
GAUGES_LIMIT_S = 1.0
LOG_INTERVAL_S = 0.25
LOG_LINES_MOST = 40
SAMPLES_KEPT = 7200
BATCHES_KEPT = 2000
RELEASED_SHARE = 0.05
"""A GPU with less of its memory in use than this has been given back by the server."""


class Watch:
    """Samples the machine and the server, records what it sees, and answers for a window of time.

    Args:
        recorder: where samples go.
        source: what reads the GPUs, or `None` for nothing.
        gauges: what reads the server's gauges.
        interval_s: seconds between readings.
        devices: the server's GPUs by the sweep file, where it names them.
    """

    def __init__(
        self,
        recorder: Recorder,
        source: GpuSource | None,
        gauges: ServerGauges,
        interval_s: float,
        devices: tuple[str, ...] | None = None,
    ) -> None:
        self._source = source
        self._devices = devices
        self._recorder = recorder
        self._gauges = gauges
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self.gpus: deque[GpuSample] = deque(maxlen=SAMPLES_KEPT)
        self.server: deque[ServerSample] = deque(maxlen=SAMPLES_KEPT)
        self._fresh = asyncio.Event()
        self._gauging = asyncio.Lock()
        self._log_lines: list[str] = []
        self._log_left_out = 0
        self._batches: deque[tuple[float, BatchLine]] = deque(maxlen=BATCHES_KEPT)
        self._poller = (
            None if source is None else Poller(source, self._deliver, clock=recorder.now, interval_s=interval_s)
        )

    def start(self) -> None:
        """Begins to read the GPUs."""
        if self._poller is not None:
            self._poller.start()

    def stop(self) -> None:
        """Ends reading the GPUs."""
        if self._poller is not None:
            self._poller.stop()

    def tell_cost(self) -> None:
        """Tells what reading the GPUs cost."""
        cost = None if self._poller is None else self._poller.cost()
        if cost is not None and cost.reads:
            slowest = f"the slowest took {cost.wall_max_s * 1e3:.0f} ms"
            words = f"GPUs read {cost.reads} times at {cost.cpu_share:.2%} of a core; {slowest}"
            self._recorder.happen(Said(level="info", words=words))

    async def measure_idle(self) -> None:
        """Takes the GPUs' power before the sweep as a baseline; a moment at the start, nothing where none is read."""
        began = self._recorder.now()
        for _ in range(IDLE_READINGS):
            self._fresh.clear()
            try:
                async with asyncio.timeout(2 * self._interval_s):
                    await self._fresh.wait()
            except TimeoutError:
                return
        power = idle_power_w(list(self.gpus), began, self._recorder.now())
        if any(watts is not None for watts in power):
            self._recorder.happen(IdlePowerMeasured(power_w=power))

    async def run(self) -> None:
        """Reads the gauges and passes log lines on, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sample_gauges())
            tasks.create_task(self._pass_log_on())

    def logged(self, line: LogLine) -> None:
        """Takes a line of the server's log; a flood is thinned here, so that nobody downstream has to."""
        if (batch := read_batch_line(line.text)) is not None and batch.kind == "decode":
            self._batches.append((self._recorder.now(), batch))
        if line.replaces and self._log_lines:
            self._log_lines[-1] = line.text
            return
        self._log_lines.append(line.text)
        if len(self._log_lines) > LOG_LINES_MOST:
            self._log_lines.pop(0)
            self._log_left_out += 1

    async def edge(self) -> None:
        """Takes readings at the edge of a cell, without holding the cell up for long."""
        self._fresh.clear()
        if self._poller is not None:
            self._poller.poke()
        await asyncio.gather(self._wait_for_gpus(), self._gauge())

    def gpu_window(self, start: float, end: float, cell_start: float, cell_end: float) -> GpuWindow | None:
        """Returns what our GPUs did in a window (session seconds); peak memory over the whole cell."""
        facts = gpu_window(list(self.gpus), start, end, cell_start, cell_end)
        return None if facts is None else msgspec.convert(msgspec.structs.asdict(facts), GpuWindow)

    def server_window(self, start: float, end: float, cell_start: float, cell_end: float) -> ServerWindow | None:
        """Returns the server's own view of a window; counter deltas over the whole cell."""
        facts = server_window(list(self.server), start, end, cell_start, cell_end)
        return None if facts is None else msgspec.convert(msgspec.structs.asdict(facts), ServerWindow)

    def graph_missed(self, start: float, end: float) -> int | None:
        """Tells whether the server decoded without its captured graphs in a cell, though it uses them elsewhere.

        Args:
            start: of the cell, in session seconds.
            end: of the cell.

        Returns:
            The largest batch that ran without a graph, where most decode reports of the cell did; else `None`.
        """
        told = [(t, batch) for t, batch in self._batches if batch.graph is not None]
        inside = [batch for t, batch in told if start <= t <= end]
        without = [batch.running or 0 for batch in inside if not batch.graph]
        if not without or 2 * len(without) <= len(inside) or not any(batch.graph for _, batch in told):
            return None
        return max(without)

    async def gpu_memory(self) -> GpuMemory:
        """Tells whether the server's GPUs have given their memory back, from a reading taken now."""
        self._fresh.clear()
        if self._poller is not None:
            self._poller.poke()
        await self._wait_for_gpus()
        if not self.gpus:
            return GpuMemory(released=True, words="no GPU reading")
        sample = self.gpus[-1]
        ours = [g for g in sample.gpus if sample.ours is None or g.index in sample.ours]
        full = [
            g
            for g in ours
            if g.memory_used_bytes is not None
            and g.memory_total_bytes
            and g.memory_used_bytes / g.memory_total_bytes > RELEASED_SHARE
        ]
        if not full:
            return GpuMemory(released=True, words="GPU memory is released")
        used = ", ".join(f"GPU {g.index} {(g.memory_used_bytes or 0) / 2**30:.1f} GiB" for g in full)
        return GpuMemory(released=False, words=f"still in use: {used}")

    def new_server(self, pid: int | None) -> None:
        """A new instance of the server: counters begin anew, endpoints may have changed, so may its GPUs.

        Args:
            pid: its main process, where it runs on this machine and is known.
        """
        self._gauges.forget()
        if self._source is not None and pid is not None:
            self._source.watch(ServerHint(pids=(pid,), gpus=self._devices))

    def _deliver(self, sample: GpuSample) -> None:
        self._loop.call_soon_threadsafe(self._take, sample)

    def _take(self, sample: GpuSample) -> None:
        before = self.gpus[-1] if self.gpus else None
        self.gpus.append(sample)
        self._recorder.happen(GpusSampled(sample=sample))
        if not (self._switching and sample.source == "simulated"):
            self._say(gpu_changes(before, sample))
        self._fresh.set()

    async def _wait_for_gpus(self) -> None:
        if self._poller is None:
            return
        try:
            async with asyncio.timeout(EDGE_LIMIT_S):
                await self._fresh.wait()
        except TimeoutError:
            return  # the reading comes when it comes; the window then interpolates from its neighbours

    async def _sample_gauges(self) -> None:
        while True:
            await self._gauge()
            await asyncio.sleep(self._interval_s)

    async def _gauge(self) -> None:
        async with self._gauging:
            try:
                async with asyncio.timeout(GAUGES_LIMIT_S):  # Python 3.11's wait_for can lose a cancellation
                    sample = await self._gauges.sample(self._recorder.now())
            except TimeoutError:
                return
            before = self.server[-1] if self.server else None
            self.server.append(sample)
            self._recorder.happen(ServerSampled(sample=sample))
            if not self._switching:
                self._say(server_changes(before, sample))

    @property
    def _switching(self) -> bool:
        """A server that restarts is out of reach as a matter of course."""
        return self._recorder.state.phase in ("idle", "reconfiguring", "probing", "checking")

    def _say(self, lines: tuple[str, ...]) -> None:
        for line in lines:
            self._recorder.happen(Said(level="warning", words=line))

    async def _pass_log_on(self) -> None:
        while True:
            await asyncio.sleep(LOG_INTERVAL_S)
            if self._log_lines:
                lines, left_out = tuple(self._log_lines), self._log_left_out
                self._log_lines, self._log_left_out = [], 0
                self._recorder.happen(ServerLogged(lines=lines, left_out=left_out))
