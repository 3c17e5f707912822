"""The eight simulated GPUs of a simulated server, read over its `/sim/gpus`."""

from __future__ import annotations

import time

import msgspec

from telemetry import ownership
from telemetry.fetch import FetchError, get, shown
from telemetry.ownership import Device, ServerHint
from telemetry.samples import GpuReading, GpuSample

PATH = "/sim/gpus"
TIMEOUT_S = 2.0


class _Answer(msgspec.Struct):
    gpus: list[GpuReading]
    driver: str | None = None
    t_ns: int | None = None


class SimulatedSource:
    """Reads the simulated GPUs; see `GpuSource`. They are the server's own, so all of them are ours unless named."""

    name = "simulated"

    def __init__(self, base_url: str, hint: ServerHint | None = None) -> None:
        self._url = base_url.rstrip("/") + PATH
        self._hint = hint or ServerHint()
        self._last: tuple[GpuReading, ...] = ()

    def watch(self, hint: ServerHint) -> None:
        """Says which GPUs the sweep file names; processes mean nothing to simulated GPUs."""
        self._hint = hint

    def read(self, t: float) -> GpuSample:
        """Reads all GPUs once; while the server is away they are absent.

        Args:
            t: seconds since the session's start.
        """
        asked_ns = time.perf_counter_ns()
        try:
            answer = get(self._url, TIMEOUT_S)
            if answer.status != 200:
                raise FetchError(f"{shown(self._url)}: HTTP {answer.status}")
            found = msgspec.json.decode(answer.body, type=_Answer)
        except (FetchError, msgspec.MsgspecError) as error:
            gone = tuple(
                GpuReading(index=gpu.index, uuid=gpu.uuid, name=gpu.name, pci_bus_id=gpu.pci_bus_id, state="absent")
                for gpu in self._last
            )
            return GpuSample(t=t, source=self.name, gpus=gone, problem=f"simulated GPUs: {error}")
        readings = tuple(map(_reading, found.gpus))
        self._last = readings
        devices = [Device(index=gpu.index, uuid=gpu.uuid, name=gpu.name) for gpu in readings]
        owner = ownership.resolve(devices, ServerHint(gpus=self._hint.gpus))
        how = "all simulated GPUs" if self._hint.gpus is None else owner.how
        return GpuSample(
            t=t + _read_after_s(asked_ns, found.t_ns),
            source=self.name,
            gpus=readings,
            ours=owner.ours,
            ours_from=how,
            ours_warning=owner.warning,
            driver=found.driver,
        )

    def close(self) -> None:
        """Holds nothing open."""


def _read_after_s(asked_ns: int, read_ns: int | None) -> float:
    """Seconds from the question to the reading itself, by the clock that all processes of a machine share."""
    if read_ns is None or not asked_ns <= read_ns <= time.perf_counter_ns():
        return 0.0
    return (read_ns - asked_ns) / 1e9


def is_simulated(base_url: str, timeout_s: float = 1.0) -> bool | None:
    """Asks once whether the server has simulated GPUs; a real one answers 404, and `None` means no answer."""
    try:
        answer = get(base_url.rstrip("/") + PATH, timeout_s)
    except FetchError:
        return None
    try:
        return answer.status == 200 and bool(msgspec.json.decode(answer.body, type=_Answer).gpus)
    except msgspec.MsgspecError:
        return False


def _reading(gpu: GpuReading) -> GpuReading:
    return msgspec.structs.replace(gpu, memory_kind=None if gpu.memory_used_bytes is None else "v2")
