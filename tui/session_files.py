"""What the screens do with a session's folder: read a cell's requests or an answer's text, delete it. Blocking.

Called in worker threads only.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from evals.verdicts import Judgement
from loadgen.records import RequestRecord
from sessions.errors import SessionError
from sessions.folder import is_session, printable
from sessions.lines import Decoder, Notes, numbered_lines
from sessions.log import REQUESTS_FILE, TEXTS_FILE, SavedText, lock_holder

MOST_REQUESTS = 20_000
"""Requests of one cell that are looked at; more only make the same picture."""


def requests_of(folder: Path, runs: frozenset[str]) -> list[RequestRecord]:
    """Returns the measured requests of some runs of cells, in the order they ended.

    Args:
        folder: the session's folder.
        runs: the runs' keys, as their `CellStarted` events carry them.

    Raises:
        SessionError: the file cannot be read.
    """
    decoder = Decoder.of(RequestRecord)
    notes = Notes(REQUESTS_FILE)
    needles = [msgspec.json.encode(run) for run in runs]
    found: list[RequestRecord] = []
    for number, line in numbered_lines(folder / REQUESTS_FILE, notes):
        if not any(needle in line for needle in needles):
            continue
        found.extend(r for r in decoder.line(line, number, notes) if r.cell in runs and r.purpose == "cell")
        if len(found) >= MOST_REQUESTS:
            break
    return found


def answer_of(folder: Path, judgement: Judgement) -> SavedText | None:
    """Returns the text that a verdict is about, or `None` where texts were not kept.

    Raises:
        SessionError: the file cannot be read.
    """
    decoder = Decoder.of(SavedText)
    notes = Notes(TEXTS_FILE)
    newest: SavedText | None = None
    task = msgspec.json.encode(judgement.task_id)
    for number, line in numbered_lines(folder / TEXTS_FILE, notes):
        if task not in line:
            continue
        for text in decoder.line(line, number, notes):
            same = (text.preset, text.problem_set, text.task_id, text.sample) == (
                judgement.preset,
                judgement.problem_set,
                judgement.task_id,
                judgement.sample,
            )
            if same and (judgement.rid is None or text.rid == judgement.rid):
                newest = text
    return newest


def delete_session(folder: Path) -> None:
    """Deletes a session's folder with everything in it.

    Raises:
        SessionError: an engine writes to it, it is no session, or it cannot be deleted.
    """
    if lock_holder(folder) is not None:
        raise SessionError(f"{printable(folder.name)} is still being written; stop it first")
    if folder.is_symlink() or not is_session(folder):
        raise SessionError(f"{printable(folder.name)} is no session's folder; nothing was deleted")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise SessionError(f"{printable(folder.name)} could not be deleted: {error.strerror or error}") from error
