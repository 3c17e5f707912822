"""The eight simulated GPUs of a simulated server, read over its `/sim/gpus`."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from telemetry import ownership
from telemetry.fetch import FetchError, get, shown
from telemetry.ownership import Device, ServerHint
from telemetry.samples import GpuReading, GpuSample

PATH = "/sim/gpus"
TIMEOUT_S = 2.0


class _Gpu(msgspec.Struct):
    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    state: Literal["ok", "lost", "absent"] = "ok"
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: tuple[str, ...] | None = None
    energy_j: float | None = None
    pcie_tx_bytes: int | None = None
    pcie_rx_bytes: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None


class _Answer(msgspec.Struct):
    gpus: list[_Gpu]
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


def _reading(gpu: _Gpu) -> GpuReading:
    fields = {name: getattr(gpu, name) for name in _Gpu.__struct_fields__}
    kind = "v2" if gpu.memory_used_bytes is not None else None
    return msgspec.convert({**fields, "memory_kind": kind}, GpuReading)
