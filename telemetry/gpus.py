"""The local GPUs through the real NVML: what each can tell, and a clear line where it can't.

One object, one thread: `read` blocks in the driver and belongs on the poller's thread alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from typing import Any

import msgspec

from telemetry import nvml, nvml_fields, ownership
from telemetry.nvml import Handle
from telemetry.nvml import binding as pynvml
from telemetry.ownership import Device, Ownership, ServerHint
from telemetry.samples import GpuReading, GpuSample
from telemetry.throttle import throttle_names

SLOW_EVERY_S = 10.0
"""Power limits and ECC counts change rarely and cost more: read this often."""
OWNER_FIRST_S = 10.0
OWNER_MAX_S = 300.0
"""Process lists take milliseconds a GPU: looked at with growing pauses until the server's processes were seen."""
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 300.0
LOST_RETRY_S = 60.0
UNSUPPORTED_RETRY_S = 60.0

NOT_SUPPORTED_MEMORY = "memory not reported (unified memory?)"
WHOLE_GPU = "MIG is on: figures are of the whole GPU"


class _Gpu:
    """One device, its fixed facts and what is kept between readings."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.slow = nvml_fields.SlowFacts()
        self.xid: int | None = None
        self.ask_again_at = -math.inf
        self.lost: str | None = None
        self.device = Device(index=handle.index)
        handle.begin(retry_absent=True)
        self.identify()

    def identify(self) -> None:
        """Reads the fixed facts; done again for a device that told none of them at first."""
        handle = self.handle
        pci = handle.read("pci", pynvml.nvmlDeviceGetPciInfo)
        self.device = Device(
            index=handle.index,
            uuid=nvml.text(handle.read("uuid", pynvml.nvmlDeviceGetUUID)),
            name=nvml.text(handle.read("name", pynvml.nvmlDeviceGetName)),
            pci_bus_id=nvml.text(pci.busId) if pci is not None else None,
            mig_uuids=nvml_fields.mig_uuids(handle),
        )


class NvmlSource:
    """Reads every local GPU; see `GpuSource`.

    Args:
        hint: where the server runs, so that `ours` can be told; changed with `watch` after each restart.
        pcie_rate: whether to take NVML's PCIe rate as well, which blocks 20 ms a direction and GPU.
    """

    name = "nvml"

    def __init__(self, hint: ServerHint | None = None, *, pcie_rate: bool = False) -> None:
        self._hint = hint or ServerHint()
        self._hint_changed = True
        self._pcie_rate = pcie_rate
        self._gpus: list[_Gpu] = []
        self._open = False
        self._driver: str | None = None
        self._events: Any = None
        self._problem: str | None = None
        self._retry_at = -math.inf
        self._retry_pause_s = RETRY_FIRST_S
        self._retry_absent_at = -math.inf
        self._owner = Ownership(ours=None, how="not known yet")
        self._owner_due = -math.inf
        self._owner_pause_s = OWNER_FIRST_S

    def watch(self, hint: ServerHint) -> None:
        """Says where the server runs now; may be called from another thread, the next reading uses it."""
        self._hint = hint
        self._hint_changed = True

    def devices(self) -> tuple[Device, ...]:
        """Returns the fixed facts of the GPUs seen so far."""
        return tuple(gpu.device for gpu in self._gpus)

    def read(self, t: float) -> GpuSample:
        """Reads all GPUs once; never raises for what the driver does.

        Args:
            t: seconds since the session's start.
        """
        if not self._open:
            if t < self._retry_at:
                return self._sample(t, tuple(self._absent()))
            self._start(t)
            if not self._open:
                return self._sample(t, tuple(self._absent()))
        retry_absent = t >= self._retry_absent_at
        if retry_absent:
            self._retry_absent_at = t + UNSUPPORTED_RETRY_S
        self._take_events()
        started = time.monotonic()
        readings = tuple(self._read_gpu(gpu, t, started, retry_absent=retry_absent) for gpu in self._gpus)
        if all(reading.state != "ok" for reading in readings):
            failures = [gpu.handle.failed for gpu in self._gpus if gpu.handle.failed is not None]
            self._stop_for(t, failures[0] if failures else pynvml.NVML_ERROR_UNKNOWN)
            return self._sample(t, readings)
        self._retry_pause_s = RETRY_FIRST_S
        if self._hint_changed or t >= self._owner_due:
            self._find_owner(t)
        return self._sample(t, readings)

    def close(self) -> None:
        """Shuts the library down for this process's user of it."""
        if self._open:
            self._shut_down()

    def _start(self, t: float) -> None:
        try:
            pynvml.nvmlInit()
        except nvml.NvmlError as error:
            self._later(t, nvml.words(nvml.code(error)))
            return
        try:
            count = pynvml.nvmlDeviceGetCount()
        except nvml.NvmlError as error:
            with contextlib.suppress(nvml.NvmlError):
                pynvml.nvmlShutdown()
            self._later(t, nvml.words(nvml.code(error)))
            return
        self._open = True
        with contextlib.suppress(nvml.NvmlError, UnicodeDecodeError):
            self._driver = nvml.text(pynvml.nvmlSystemGetDriverVersion())
        if count == 0:
            self._shut_down()
            self._later(t, "the NVIDIA driver sees no GPU here")
            return
        self._problem = None
        self._gpus = [_Gpu(Handle(index)) for index in range(count)]
        self._events = self._register_events()
        self._owner_due = -math.inf

    def _later(self, t: float, why: str) -> None:
        self._problem = f"GPU monitoring lost: {why}" if self._gpus else f"GPU telemetry not available: {why}"
        self._retry_at = t + self._retry_pause_s
        self._retry_pause_s = min(2 * self._retry_pause_s, RETRY_MAX_S)

    def _stop_for(self, t: float, number: int) -> None:
        """No device can be read: ends this use of the library, to begin anew after a pause that grows."""
        self._shut_down()
        self._later(t, nvml.words(number))

    def _shut_down(self) -> None:
        self._open = False
        if self._events is not None:
            with contextlib.suppress(nvml.NvmlError):
                pynvml.nvmlEventSetFree(self._events)
            self._events = None
        with contextlib.suppress(nvml.NvmlError):
            pynvml.nvmlShutdown()

    def _absent(self) -> list[GpuReading]:
        return [
            GpuReading(**_identity(gpu.device), state="lost" if gpu.lost else "absent", note=gpu.lost)
            for gpu in self._gpus
        ]

    def _sample(self, t: float, readings: tuple[GpuReading, ...]) -> GpuSample:
        return GpuSample(
            t=t,
            source=self.name,
            gpus=readings,
            problem=self._problem,
            ours=self._owner.ours if readings else None,
            ours_from=self._owner.how if readings else None,
            ours_warning=self._owner.warning if readings else None,
            driver=self._driver,
        )

    def _read_gpu(self, gpu: _Gpu, t: float, started: float, *, retry_absent: bool) -> GpuReading:
        handle = gpu.handle
        if gpu.lost is not None and t < gpu.ask_again_at:
            return GpuReading(**_identity(gpu.device), state="lost", note=gpu.lost, xid=gpu.xid)
        handle.begin(retry_absent=retry_absent)
        if gpu.device.uuid is None and gpu.device.pci_bus_id is None:
            gpu.identify()
        energy_mj = handle.read("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption)
        read_after_s = time.monotonic() - started
        memory = nvml_fields.memory(handle)
        utilisation = handle.read("utilisation", pynvml.nvmlDeviceGetUtilizationRates)
        power_mw = handle.read("power", pynvml.nvmlDeviceGetPowerUsage)
        temperature = handle.read("temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
        sm_clock = handle.read("sm_clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        memory_clock = handle.read("memory_clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)
        mask = nvml_fields.throttle_mask(handle)
        counters = nvml_fields.pcie_counters(handle)
        rates = nvml_fields.pcie_rates(handle) if self._pcie_rate else (None, None)
        if t >= gpu.slow.at + SLOW_EVERY_S and handle.answered:
            gpu.slow = nvml_fields.slow_facts(handle, t)
        if handle.lost:
            gpu.lost = nvml.words(handle.failed or pynvml.NVML_ERROR_GPU_IS_LOST)
            gpu.ask_again_at = t + LOST_RETRY_S
            return GpuReading(**_identity(gpu.device), state="lost", note=gpu.lost, xid=gpu.xid)
        gpu.lost = None
        if handle.answered == 0 and handle.failed is not None:
            return GpuReading(**_identity(gpu.device), state="absent", note=nvml.words(handle.failed))
        return GpuReading(
            **_identity(gpu.device),
            **memory,
            utilisation=utilisation.gpu / 100.0 if utilisation is not None else None,
            power_w=power_mw / 1000.0 if power_mw is not None else None,
            power_limit_w=gpu.slow.power_limit_w,
            temperature_c=float(temperature) if temperature is not None else None,
            sm_clock_mhz=float(sm_clock) if sm_clock is not None else None,
            memory_clock_mhz=float(memory_clock) if memory_clock is not None else None,
            throttle=throttle_names(mask) if mask is not None else None,
            energy_j=energy_mj / 1000.0 if energy_mj is not None else None,
            pcie_tx_bytes=counters[0],
            pcie_rx_bytes=counters[1],
            pcie_tx_bytes_s=rates[0],
            pcie_rx_bytes_s=rates[1],
            ecc_uncorrected=gpu.slow.ecc_uncorrected,
            xid=gpu.xid,
            mig=gpu.slow.mig,
            note=WHOLE_GPU if gpu.slow.mig else (NOT_SUPPORTED_MEMORY if not memory else None),
            read_after_s=read_after_s,
        )

    def _find_owner(self, t: float) -> None:
        if self._hint_changed:
            self._hint_changed = False
            self._owner_pause_s = OWNER_FIRST_S
        hint = self._hint
        tree = ownership.process_tree(hint.pids) if hint.pids else frozenset()
        processes = (
            {gpu.handle.index: nvml_fields.compute_pids(gpu.handle) for gpu in self._gpus if not gpu.lost}
            if tree
            else None
        )
        devices = [msgspec.structs.replace(gpu.device, mig=gpu.slow.mig) for gpu in self._gpus]
        self._owner = ownership.resolve(devices, hint, processes, tree)
        if not self._owner.seen and hint.pids and hint.gpus is None and hint.visible_devices is None:
            self._owner = ownership.resolve(devices, ownership.hint_from_process(hint.pids[0]))
        self._owner_due = t + (OWNER_MAX_S if self._owner.seen else self._owner_pause_s)
        self._owner_pause_s = min(2 * self._owner_pause_s, OWNER_MAX_S)

    def _register_events(self) -> Any:
        """Asks for XID events, where the driver has them; they are collected without waiting."""
        try:
            events = pynvml.nvmlEventSetCreate()
        except nvml.NvmlError:
            return None
        registered = 0
        for gpu in self._gpus:
            with contextlib.suppress(nvml.NvmlError):
                pynvml.nvmlDeviceRegisterEvents(gpu.handle.device, pynvml.nvmlEventTypeXidCriticalError, events)
                registered += 1
        if registered == 0:
            with contextlib.suppress(nvml.NvmlError):
                pynvml.nvmlEventSetFree(events)
            return None
        return events

    def _take_events(self) -> None:
        if self._events is None:
            return
        by_address = {_address(gpu.handle.device): gpu for gpu in self._gpus}
        for _ in range(4 * len(self._gpus)):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NvmlError:
                return  # a time-out: nothing new
            if (gpu := by_address.get(_address(event.device))) is not None:
                gpu.xid = int(event.eventData)


def _identity(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "pci_bus_id": device.pci_bus_id,
    }


def _address(device: Any) -> int | None:
    return ctypes.cast(device, ctypes.c_void_p).value
