"""What must hold of a session's folder at any moment, however its engine ended: judged from the files alone."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import msgspec

from loadgen.figures import CellFigures
from loadgen.records import RequestRecord
from sessions import events as ev
from sessions.lines import Decoder, Notes, iter_decoded
from sessions.log import REQUESTS_FILE
from sessions.logread import read_events, state_of
from sessions.review import open_session
from sessions.show import print_session, session_json
from sessions.state import CellState, SessionState
from sessions.sweep import sweep_from_json

_RECORDS = Decoder.of(RequestRecord)


class Unsound(AssertionError):
    """Raised with what does not hold."""


def must(holds: bool, words: str) -> None:
    """Raises `Unsound` unless something holds."""
    if not holds:
        raise Unsound(words)


def bare(figures: CellFigures | None) -> bytes:
    """A cell's figures as bytes, without marks: later cells may add marks, and nothing else."""
    assert figures is not None
    return msgspec.json.encode(msgspec.structs.replace(figures, marks=()))


def measured(state: SessionState) -> dict[str, CellState]:
    """The finished cells by their key's text."""
    return {name: cell for name, cell in state.cells.items() if cell.status == "measured"}


def check_folder(folder: Path, before: dict[str, CellState]) -> dict[str, CellState]:
    """Checks a session's folder: it opens, and no finished cell is lost, changed, doubled or unproven.

    Args:
        folder: the session's folder.
        before: the cells that were known to be finished.

    Returns:
        The cells that are finished now.

    Raises:
        Unsound: something does not hold.
    """
    state = state_of(folder)
    session_json(state, folder)
    print_session(open_session(folder), io.StringIO())
    now = measured(state)
    for name, cell in before.items():
        must(name in now, f"{folder.name}: finished cell {name} is lost")
        must(bare(now[name].figures) == bare(cell.figures), f"{folder.name}: figures of {name} changed")
        must(now[name].run == cell.run, f"{folder.name}: {name} was measured again")
    _check_events(folder)
    _check_requests(folder, now)
    return now


def check_end(folder: Path, state: SessionState) -> None:
    """Checks a session that ran to its end: every cell is measured, and the tables are there, and nothing else is."""
    must(state.status == "finished", f"{folder.name} {state.status}: {state.end_words}")
    left = [f"{name} {cell.status}: {cell.reason}" for name, cell in state.cells.items() if cell.status != "measured"]
    must(not left, f"{folder.name}: not measured: {left}")
    must((folder / "requests.parquet").exists(), f"{folder.name}: no Parquet beside the logs")
    litter = [path.name for path in folder.glob(".*")]
    must(not litter, f"{folder.name}: left behind: {litter}")


def _check_events(folder: Path) -> None:
    read = read_events(folder)
    must(read.lines_skipped == 0, f"{folder.name}: {read.skipped}")
    times = [event.t for event in read.events]
    must(times == sorted(times), f"{folder.name}: offsets run backwards")
    ended = Counter(e.cell.text for e in read.events if isinstance(e, ev.CellEnded) and e.outcome == "measured")
    must(not ended or max(ended.values()) == 1, f"{folder.name}: ended more than once: {ended.most_common(3)}")
    runs = Counter(e.run for e in read.events if isinstance(e, ev.CellStarted))
    must(not runs or max(runs.values()) == 1, f"{folder.name}: run names used twice: {runs.most_common(3)}")
    proven, pids = None, set()
    for event in read.events:
        match event:
            case ev.SessionStarted() | ev.SessionResumed() | ev.PhaseChanged(phase="reconfiguring"):
                proven = None
            case ev.PresetProved(proof=proof) if proof.in_effect:
                proven, pid = proof.preset, proof.instance.get("manager pid")
                must(pid is not None and pid not in pids, f"{folder.name}: instance {pid} was proven before")
                pids.add(pid)
            case ev.CellStarted(cell=cell):
                must(cell.preset == proven, f"{folder.name}: {cell.text} began under {proven}, proven last")


def _check_requests(folder: Path, finished: dict[str, CellState]) -> None:
    sweep = sweep_from_json(bytes(msgspec.json.decode((folder / "session.json").read_bytes(), type=_Sweep).sweep))
    notes = Notes(REQUESTS_FILE)
    records: list[RequestRecord] = list(iter_decoded(folder / REQUESTS_FILE, _RECORDS, notes))
    must(notes.lines_skipped == 0, f"{folder.name}: {notes.words()}")
    rids = Counter(r.rid for r in records)
    must(not rids or max(rids.values()) == 1, f"{folder.name}: requests written twice: {rids.most_common(3)}")
    counts = Counter(r.cell for r in records if r.purpose == "cell" and r.valid)
    for name, cell in finished.items():
        wanted = sweep.matrix.requests or sweep.matrix.requests_per_slot * cell.key.concurrency
        must(counts[cell.run] == wanted, f"{folder.name}: {name} has {counts[cell.run]} requests, not {wanted}")


class _Sweep(msgspec.Struct):
    sweep: msgspec.Raw
