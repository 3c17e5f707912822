"""What is asked of one device, field by field, in the product's units; an absent field is `None`."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from telemetry import nvml
from telemetry.nvml import Handle
from telemetry.nvml import binding as pynvml


class SlowFacts(msgspec.Struct):
    """What changes rarely: power limit, ECC errors, MIG; read at session time `at` and kept in between."""

    power_limit_w: float | None = None
    ecc_uncorrected: int | None = None
    mig: bool = False
    at: float = -math.inf


def memory(handle: Handle) -> dict[str, Any]:
    """Returns the memory fields: version 2 tells the driver's reserve apart, version 1 counts it as used."""
    found = handle.read("memory_v2", pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
    if found is not None and found.total > 0:
        return {
            "memory_used_bytes": found.used,
            "memory_reserved_bytes": found.reserved,
            "memory_total_bytes": found.total,
            "memory_kind": "v2",
        }
    found = handle.read("memory_v1", pynvml.nvmlDeviceGetMemoryInfo)
    if found is not None and found.total > 0:
        return {"memory_used_bytes": found.used, "memory_total_bytes": found.total, "memory_kind": "v1"}
    return {}


def throttle_mask(handle: Handle) -> int | None:
    """Returns the bits of NVML's clock event reasons, under the driver's new name or its old one."""
    mask = handle.read("clock_events", pynvml.nvmlDeviceGetCurrentClocksEventReasons)
    if mask is None:
        mask = handle.read("throttle", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return mask if isinstance(mask, int) else None


def pcie_counters(handle: Handle) -> tuple[int | None, int | None]:
    """Returns bytes sent and received since the driver was loaded: counters that cost nothing to read."""
    values = handle.read(
        "pcie_counters",
        pynvml.nvmlDeviceGetFieldValues,
        [pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES],
    )
    if values is None:
        return None, None
    sent, received = (_field_value(value) for value in values)
    return sent, received


def _field_value(value: Any) -> int | None:
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    wide = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG)
    if value.valueType in wide:
        return int(value.value.ullVal)
    return int(value.value.uiVal) if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT else None


def pcie_rates(handle: Handle) -> tuple[float | None, float | None]:
    """Returns bytes a second sent and received; each call blocks about 20 ms in the driver."""
    sent = handle.read("pcie_tx_rate", pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    received = handle.read("pcie_rx_rate", pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    return (
        sent * 1024.0 if sent is not None else None,
        received * 1024.0 if received is not None else None,
    )


def slow_facts(handle: Handle, t: float) -> SlowFacts:
    """Reads what changes rarely; a power limit of 0 is none."""
    limit_mw = handle.read("power_limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
    mode = handle.read("mig", pynvml.nvmlDeviceGetMigMode)
    return SlowFacts(
        power_limit_w=limit_mw / 1000.0 if limit_mw else None,
        ecc_uncorrected=handle.read(
            "ecc",
            pynvml.nvmlDeviceGetTotalEccErrors,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        mig=bool(mode) and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        at=t,
    )


def compute_pids(handle: Handle) -> tuple[int, ...]:
    """Returns the processes that compute on the device, as far as the driver shows them here; a slow call."""
    processes = handle.read("processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
    return tuple(int(process.pid) for process in processes or ())


def mig_uuids(handle: Handle) -> tuple[str, ...]:
    """Returns the UUIDs of the device's MIG slices."""
    mode = handle.read("mig", pynvml.nvmlDeviceGetMigMode)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    found: list[str] = []
    for index in range(handle.read("mig_count", pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle.device, index)
            if uuid := nvml.text(pynvml.nvmlDeviceGetUUID(part)):
                found.append(uuid)
        except nvml.NvmlError:
            continue
    return tuple(found)
