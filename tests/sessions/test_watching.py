"""What the engine sees of the server's log: batches without a graph, floods, progress bars."""

from __future__ import annotations

from pathlib import Path

from reconfig.loglines import LogLine
from sessions.engine.watching import LOG_LINES_MOST, Watch
from sessions.log import SessionLog
from sessions.recorder import Recorder
from telemetry.server import ServerGauges

DECODE = (
    "[2026-11-29 23:18:03] Decode batch, #running-req: {}, #token: 2345, token usage: 0.02, accept len: 4.31, "
    "accept rate: 0.47, cuda graph: {}, gen throughput (token/s): 211.40, #queue-req: 0"
)


async def watch_in(folder: Path) -> tuple[Watch, SessionLog, ServerGauges]:
    log = SessionLog(folder)
    gauges = ServerGauges("http://127.0.0.1:9")
    return Watch(Recorder(log), None, gauges, 1.0), log, gauges


async def test_a_batch_without_a_graph_is_told_where_graphs_are_used_elsewhere(tmp_path: Path):
    watch, log, gauges = await watch_in(tmp_path)
    start = log.now()
    for _ in range(3):
        watch.logged(LogLine(DECODE.format(64, False)))
    assert watch.graph_missed(start, log.now()) is None, "a server without any graphs has missed none"
    watch.logged(LogLine(DECODE.format(8, True)))
    assert watch.graph_missed(start, log.now()) == 64
    later = log.now()
    watch.logged(LogLine(DECODE.format(8, True)))
    assert watch.graph_missed(later, log.now()) is None
    log.close()
    await gauges.close()


async def test_a_flood_is_thinned_and_counted_and_a_progress_bar_stays_one_line(tmp_path: Path):
    watch, log, gauges = await watch_in(tmp_path)
    for number in range(LOG_LINES_MOST + 60):
        watch.logged(LogLine(f"line {number}"))
    assert len(watch._log_lines) == LOG_LINES_MOST and watch._log_left_out == 60
    assert watch._log_lines[-1] == f"line {LOG_LINES_MOST + 59}"
    watch.logged(LogLine("12%", replaces=True))
    watch.logged(LogLine("58%", replaces=True))
    assert watch._log_lines[-1] == "58%" and len(watch._log_lines) == LOG_LINES_MOST
    log.close()
    await gauges.close()
