"""What the report says of the GPUs: thinned time lines from the samples, and each preset's peaks."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sessions.export import gpus_flat
from sessions.points import ENERGY, points_of
from sessions.report.blocks import Picture
from sessions.state import SessionState
from sessions.tables import open_table

POINTS = 300
"""Moments a GPU's line has at most: a night of samples is averaged down to them."""
_GIB = 1 << 30


def gpu_pictures(folder: Path) -> list[Picture | None]:
    """Returns the GPUs' power and temperature over the session.

    Raises:
        SessionError: there are samples and nothing of them can be read.
    """
    from sessions.report.charts import gpus_over_time

    table = open_table(folder, "gpus", of_gpus=("index", "power_w", "temperature_c")).frame
    last = table.select(pl.col("t").max()).collect(engine="streaming").item()
    if last is None:
        return []
    step = max(1.0, last / POINTS)
    thinned = (
        gpus_flat(table)
        .group_by((pl.col("t") // step).alias("bin"), "index")
        .agg(pl.col("power_w").mean(), pl.col("temperature_c").mean())
        .with_columns(((pl.col("bin") + 0.5) * step / 60).round(3).alias("minutes"), pl.col("index").alias("gpu"))
        .sort("minutes", "gpu")
        .collect(engine="streaming")
    )
    rows = thinned.with_columns(pl.col("power_w", "temperature_c").round(1)).to_dicts()
    return [gpus_over_time(rows, "power_w", "power W"), gpus_over_time(rows, "temperature_c", "temperature °C")]


def memory_peaks(state: SessionState) -> list[tuple[str, str, str, str]]:
    """Returns (preset, memory peak of each GPU in GiB, mean power in W, joules a token) for presets with figures."""
    rows = []
    points = points_of(state)
    for name in state.presets:
        own = [p for (preset, _), p in points.items() if preset == name]
        figures = [f for p in own for f in p.figures]
        peaks = [f.gpu_memory_peak_bytes for f in figures if f.gpu_memory_peak_bytes]
        power = [f.gpu_power_mean_w for f in figures if f.gpu_power_mean_w is not None]
        joules = [e.value for p in own if (e := p.estimate(ENERGY)) is not None]
        if not peaks and not power and not joules:
            continue
        by_gpu = [[b for b in gpu if b is not None] for gpu in zip(*peaks, strict=False)]
        rows.append(
            (
                name,
                "  ".join(f"{max(gpu) / _GIB:.1f}" if gpu else "-" for gpu in by_gpu) or "-",
                f"{sum(power) / len(power):.0f}" if power else "-",
                f"{min(joules):.2f} to {max(joules):.2f}" if joules else "-",
            )
        )
    return rows
