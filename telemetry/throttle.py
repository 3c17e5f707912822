"""The names of NVML's clock event reasons, and which of them are no reason for doubt."""

from __future__ import annotations

from typing import Final

THROTTLE_REASONS: Final = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""By bit, as the driver and DCGM report them."""
HARMLESS_REASONS: Final = frozenset({"gpu_idle", "applications_clocks_setting"})


def throttle_names(mask: int) -> tuple[str, ...]:
    """Returns the names of the set bits; a bit that is not known here is named by its value."""
    found = [name for bit, name in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return (*found, f"reason_{rest:#x}") if rest else tuple(found)
