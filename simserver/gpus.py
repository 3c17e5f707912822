"""Simulated GPUs that follow the load: power, energy, memory, clocks, temperature.

Energy is the exact integral of the simulated power, so that what a monitor reads can be compared with it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from simserver.faults import Faults
from simserver.profiles import GpuModel

_WINDOW_S = 1.0
_KEPT_S = 2.0
# No two cards draw the same: what the last one draws more than the first, by steps.
_SPREAD = 0.004
_HEAT_S = 20.0
_IDLE_C, _BUSY_C = 31.0, 74.0


class Gpus:
    """The machine's GPUs; all of them do the same work (tensor parallelism)."""

    def __init__(self, model: GpuModel, faults: Faults, kv_bytes: int, seed: int) -> None:
        self.model = model
        self._faults = faults
        self._kv_bytes = kv_bytes
        self._seed = seed
        self._started = time.perf_counter()
        self._busy: deque[tuple[float, float, float]] = deque()
        self._settled_j = 0.0
        self._busy_until = self._started
        self._heat = 0.0
        self._heat_at = self._started
        self._loaded = 0.0
        self._tokens_bytes = 0

    def set_loaded(self, share: float) -> None:
        """Tells which share of the weights is in memory."""
        self._loaded = share

    def work(self, start: float, end: float, prefill: bool) -> None:
        """Records a forward pass.

        Args:
            start: when it began, `time.perf_counter()` seconds.
            end: when it ended; passes do not overlap.
            prefill: whether it computed prompts.
        """
        start = max(start, self._busy_until)
        if end <= start:
            return
        self._busy_until = end
        extra = (self.model.prefill_w if prefill else self.model.decode_w) - self.model.idle_w
        self._busy.append((start, end, extra))
        self._tokens_bytes += int((end - start) * 40e6)
        while self._busy and self._busy[0][1] < start - _KEPT_S:
            begin, stop, watts = self._busy.popleft()
            self._settled_j += (stop - begin) * watts

    def energy_j(self, now: float) -> float:
        """Returns joules of one healthy GPU since the start, up to `now`."""
        total = self._settled_j + (now - self._started) * self.model.idle_w
        for begin, end, watts in self._busy:
            total += max(0.0, min(end, now) - begin) * watts
        return total

    def readings(self) -> dict[str, Any]:
        """Returns all GPUs as they are now, in `/sim/gpus`'s shape."""
        now = time.perf_counter()
        busy, watts = self._recent(now)
        share = busy / _WINDOW_S
        energy = self.energy_j(now)
        decay = min(1.0, (now - self._heat_at) / _HEAT_S)
        self._heat += (share - self._heat) * decay
        self._heat_at = now
        return {
            "simulated": True,
            "source": "simulated",
            "driver": "590.48.01",
            "t_ns": time.perf_counter_ns(),
            "gpus": [self._one(index, energy, share, watts) for index in range(self.model.count)],
        }

    def _recent(self, now: float) -> tuple[float, float]:
        busy = joules = 0.0
        for begin, end, watts in reversed(self._busy):
            if end < now - _WINDOW_S:
                break
            length = max(0.0, min(end, now) - max(begin, now - _WINDOW_S))
            busy += length
            joules += length * watts
        return busy, self.model.idle_w + joules / _WINDOW_S

    def _one(self, index: int, energy: float, share: float, watts: float) -> dict[str, Any]:
        model = self.model
        identity = {
            "index": index,
            "uuid": f"GPU-51a07ed0-0000-4000-8000-{self._seed & 0xFFFFFFFF:08x}{index:04x}",
            "name": model.name,
            "pci_bus_id": f"00000000:{0x01 + 0x20 * index:02X}:00.0",
        }
        if self._faults.number("gpu-lost") == index:
            return {**identity, "state": "lost", "xid": 79}
        unlike = 1.0 + _SPREAD * (index * 3 % 8)
        throttled = self._faults.number("gpu-throttle") == index
        used = int(self._loaded * model.weights_bytes)
        if self._loaded >= 1.0:
            used += model.graphs_bytes + self._kv_bytes
        reasons = ("sw_thermal_slowdown", "hw_thermal_slowdown") if throttled else () if share > 0.02 else ("gpu_idle",)
        clock = model.sm_clock_mhz if share > 0.02 else 180
        return {
            **identity,
            "state": "ok",
            "memory_used_bytes": used + 512 * 2**20,
            "memory_reserved_bytes": 634 * 2**20,
            "memory_total_bytes": model.memory_bytes,
            "memory_kind": "v2",
            "utilisation": round(share, 4),
            "power_w": round(watts * unlike, 3),
            "power_limit_w": model.limit_w,
            "temperature_c": round(_IDLE_C + index % 4 + (_BUSY_C - _IDLE_C) * self._heat + 14.0 * throttled, 1),
            "sm_clock_mhz": int(clock * 0.55) if throttled else clock,
            "memory_clock_mhz": model.memory_clock_mhz if share > 0.02 else 405,
            "throttle": reasons,
            "energy_j": round(energy * unlike, 6),
            "pcie_tx_bytes": self._tokens_bytes,
            "pcie_rx_bytes": self._tokens_bytes * 3 // 2,
            "ecc_uncorrected": 0,
            "xid": None,
        }
