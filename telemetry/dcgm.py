"""A remote server's GPUs, from DCGM's Prometheus exporter on its machine.

The exporter refreshes its figures every some seconds (30 by default): windows see through repeated readings, but short
cells get no energy figure from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from telemetry import exposition, ownership
from telemetry.exposition import Exposition, Series
from telemetry.fetch import FetchError, get, shown
from telemetry.ownership import Device, ServerHint
from telemetry.samples import GpuReading, GpuSample
from telemetry.throttle import throttle_names

TIMEOUT_S = 3.0
MIB = 1024 * 1024

_NAMES = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_FB_TOTAL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
)
_WANTED = exposition.name_filter(_NAMES)
_BLANKS = (0x7FFFFFF0, 2**47, 0x7FFFFFFFFFFFFFF0)
"""DCGM's marks for "blank", "not found", "not supported" and the like begin here, for 32 bits, reals and 64 bits."""
_BLANK_KINDS = 16


class DcgmSource:
    """Reads DCGM's exporter; see `GpuSource`.

    Args:
        url: the exporter's address, with or without `/metrics`.
    """

    name = "dcgm"

    def __init__(self, url: str, hint: ServerHint | None = None) -> None:
        base = url.rstrip("/")
        self._url = base if base.endswith("/metrics") else f"{base}/metrics"
        self._hint = hint or ServerHint()
        self._last: tuple[GpuReading, ...] = ()

    def watch(self, hint: ServerHint) -> None:
        """Says which GPUs are the server's; its process ids mean nothing on another machine."""
        self._hint = hint

    def read(self, t: float) -> GpuSample:
        """Reads all GPUs once; never raises for what the exporter does.

        Args:
            t: seconds since the session's start.
        """
        try:
            answer = get(self._url, TIMEOUT_S)
            if answer.status != 200:
                raise FetchError(f"{shown(self._url)}: HTTP {answer.status}")
        except FetchError as error:
            return self._gone(t, f"DCGM exporter: {error}")
        readings = read_gpus(answer.body.decode("utf-8", errors="replace"))
        if not readings:
            return self._gone(t, f"DCGM exporter: {shown(self._url)} names no GPU (DCGM_FI_DEV_...)")
        seen = {gpu.index for gpu in readings}
        missing = tuple(_absent(gpu) for gpu in self._last if gpu.index not in seen)
        gpus = tuple(sorted(readings + missing, key=lambda gpu: gpu.index))
        self._last = gpus
        devices = [Device(index=gpu.index, uuid=gpu.uuid, name=gpu.name, mig=gpu.mig) for gpu in gpus]
        hint = ServerHint(
            gpus=self._hint.gpus,
            visible_devices=self._hint.visible_devices,
            device_order=self._hint.device_order,
        )
        owner = ownership.resolve(devices, hint)
        return GpuSample(
            t=t,
            source=self.name,
            gpus=gpus,
            ours=owner.ours,
            ours_from=owner.how,
            ours_warning=owner.warning,
        )

    def close(self) -> None:
        """Holds nothing open."""

    def _gone(self, t: float, problem: str) -> GpuSample:
        return GpuSample(t=t, source=self.name, gpus=tuple(map(_absent, self._last)), problem=problem)


def read_gpus(text: str) -> tuple[GpuReading, ...]:
    """Reads an exporter's body into one reading a GPU, in order of index."""
    found = exposition.parse(text, _WANTED)
    labels: dict[int, Mapping[str, str]] = {}
    sliced: set[int] = set()
    for series in found.values():
        for one in series:
            if (index := _index(one)) is not None:
                if one.labels.get("GPU_I_ID"):
                    sliced.add(index)
                labels.setdefault(index, one.labels)
    return tuple(_reading(found, index, labels[index], mig=index in sliced) for index in sorted(labels))


def _reading(found: Exposition, index: int, labels: Mapping[str, str], *, mig: bool) -> GpuReading:
    def value(*names: str) -> float | None:
        return _value(found, index, names)

    used, free, reserved = (_bytes(value(f"DCGM_FI_DEV_FB_{what}")) for what in ("USED", "FREE", "RESERVED"))
    total = _bytes(value("DCGM_FI_DEV_FB_TOTAL"))
    if total is None and used is not None and free is not None:
        total = used + free + (reserved or 0)
    utilisation = value("DCGM_FI_DEV_GPU_UTIL")
    mask = value("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
    energy_mj = value("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    xid = value("DCGM_FI_DEV_XID_ERRORS")
    ecc = value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
    return GpuReading(
        index=index,
        uuid=labels.get("UUID"),
        name=labels.get("modelName"),
        pci_bus_id=labels.get("pci_bus_id"),
        memory_used_bytes=used,
        memory_reserved_bytes=reserved,
        memory_total_bytes=total,
        memory_kind="v2" if used is not None else None,
        utilisation=utilisation / 100.0 if utilisation is not None else None,
        power_w=value("DCGM_FI_DEV_POWER_USAGE"),
        power_limit_w=value("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_POWER_MGMT_LIMIT") or None,
        temperature_c=value("DCGM_FI_DEV_GPU_TEMP"),
        sm_clock_mhz=value("DCGM_FI_DEV_SM_CLOCK"),
        memory_clock_mhz=value("DCGM_FI_DEV_MEM_CLOCK"),
        throttle=throttle_names(int(mask)) if mask is not None else None,
        energy_j=energy_mj / 1000.0 if energy_mj is not None else None,
        ecc_uncorrected=int(ecc) if ecc is not None else None,
        xid=int(xid) if xid else None,
        mig=mig,
        note="MIG is on: only figures of the whole GPU are shown" if mig else None,
    )


def _value(found: Exposition, index: int, names: tuple[str, ...]) -> float | None:
    """Returns the first name's figure of the whole GPU; a MIG slice's figure is never taken for it."""
    for name in names:
        for one in found.get(name, ()):
            if _index(one) != index or one.labels.get("GPU_I_ID"):
                continue
            if math.isfinite(one.value) and one.value >= 0 and not _is_blank(one.value):
                return one.value
    return None


def _is_blank(value: float) -> bool:
    return any(blank <= value <= blank + _BLANK_KINDS for blank in _BLANKS)


def _index(series: Series) -> int | None:
    gpu = series.labels.get("gpu", "")
    return int(gpu) if gpu.isdecimal() else None


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else round(mebibytes * MIB)


def _absent(gpu: GpuReading) -> GpuReading:
    return GpuReading(index=gpu.index, uuid=gpu.uuid, name=gpu.name, pci_bus_id=gpu.pci_bus_id, state="absent")
