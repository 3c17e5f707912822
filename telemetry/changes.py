"""What changed between two samples, in words: one line when it happens, none while it lasts."""

from __future__ import annotations

from telemetry.samples import GpuReading, GpuSample, ServerSample


def gpu_changes(before: GpuSample | None, now: GpuSample) -> tuple[str, ...]:
    """Returns the news for the event log: a GPU lost or back, monitoring lost or back, an XID, who owns what."""
    lines: list[str] = []
    problem_before = before.problem if before else None
    if now.problem and now.problem != problem_before:
        lines.append(now.problem)
    elif problem_before and not now.problem:
        lines.append("GPU telemetry is back")
    known = {gpu.index: gpu for gpu in before.gpus} if before else {}
    told = bool(now.problem or problem_before)  # a problem means that no GPU can be read: one line for all
    for gpu in now.gpus:
        lines.extend(_changes_of(known.get(gpu.index), gpu, told=told))
    if now.ours_warning and now.ours_warning != (before.ours_warning if before else None):
        lines.append(now.ours_warning)
    return tuple(lines)


def server_changes(before: ServerSample | None, now: ServerSample) -> tuple[str, ...]:
    """Returns the news about the server's own gauges: out of reach, back, counters started again."""
    lines: list[str] = []
    problem_before = before.problem if before else None
    if now.problem and now.problem != problem_before:
        lines.append(f"server gauges: {now.problem}")
    elif problem_before and not now.problem:
        lines.append("server gauges are back")
    if now.counters_reset:
        lines.append("server counters started again from zero: it was restarted")
    return tuple(lines)


def _changes_of(before: GpuReading | None, now: GpuReading, *, told: bool) -> list[str]:
    lines: list[str] = []
    state_before = before.state if before else "ok"
    if now.state != state_before and not told:
        what = {"ok": "answers again", "lost": "is lost", "absent": "can't be read"}[now.state]
        lines.append(f"GPU {now.index} {what}" + (f": {now.note}" if now.note and now.state != "ok" else ""))
    if now.xid is not None and now.xid != (before.xid if before else None):
        lines.append(f"GPU {now.index}: XID {now.xid} reported by the driver")
    return lines
