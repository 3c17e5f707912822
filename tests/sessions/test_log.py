from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions import events as ev
from sessions.errors import DiskFull, SessionError, SessionLocked
from sessions.folder import create, describe_host
from sessions.linefile import LineFile
from sessions.log import SAMPLES_KEPT_WHILE_FULL, SavedText, SessionLog, lock_holder
from sessions.logread import read_events
from tests.needs import needs
from tests.sessions.made import gpu_sample, make_session, request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create(tmp_path, "log", describe_host("log"))


class Disk:
    """A disk with so many bytes of room; a write stores what fits and then says that it is full."""

    def __init__(self, room: int | None = None, number: int = errno.ENOSPC) -> None:
        self.room = room
        self.number = number

    def write(self, fd: int, data: bytes) -> int:
        if self.room is None:
            return os.write(fd, data)
        part = data[: self.room]
        if not part:
            raise OSError(self.number, os.strerror(self.number))
        written = os.write(fd, part)
        self.room -= written
        return written


def note(t: float) -> ev.NoteAdded:
    return ev.NoteAdded(t=t, text=f"note {t:g} " + "x" * 20)


def test_one_writer_only(folder: Path) -> None:
    assert lock_holder(folder) is None
    with SessionLog(folder):
        assert lock_holder(folder) == os.getpid()
        with pytest.raises(SessionLocked, match=f"process {os.getpid()}"):
            SessionLog(folder)
    assert lock_holder(folder) is None
    SessionLog(folder).close()


def test_a_killed_writer_leaves_no_lock(folder: Path) -> None:
    script = textwrap.dedent(f"""
        import os, sys
        from pathlib import Path
        from sessions.events import NoteAdded
        from sessions.log import SessionLog
        log = SessionLog(Path({str(folder)!r}))
        for i in range(1000):
            log.append(NoteAdded(t=float(i), text=str(i)))
        os.kill(os.getpid(), 9)
    """)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert len(read_events(folder).events) == 1000  # every line was with the system when `append` returned
    with SessionLog(folder) as log:
        assert log.resumed
        assert log.repaired == ()
        assert log.now() >= 999


def test_what_goes_where(folder: Path) -> None:
    with SessionLog(folder) as log:
        log.append(note(1))
        log.append(ev.GpusSampled(t=2.0, sample=gpu_sample(2.0)))
        log.request(request(3.0, "cell", "r1"))
        log.text(SavedText(t=4.0, rid="r1", purpose="eval", content="answer"))
    lines = {p.name: p.read_text().count("\n") for p in folder.iterdir() if p.suffix == ".jsonl"}
    assert lines == {"events.jsonl": 1, "gpus.jsonl": 1, "requests.jsonl": 1, "evals.jsonl": 0, "server.jsonl": 0}
    assert (folder / "texts" / "texts.jsonl").read_text().count("answer") == 1


def test_texts_can_be_switched_off(folder: Path) -> None:
    with SessionLog(folder, texts=False) as log:
        log.text(SavedText(t=4.0, rid="r1", purpose="eval", content="secret"))
    assert not (folder / "texts").exists()


def test_offsets_go_on_after_the_last_line(tmp_path: Path) -> None:
    folder = make_session(tmp_path, repeats=1, end=False)
    last = read_events(folder).events[-1].t
    with SessionLog(folder, origin_ns=0) as log:
        assert last <= log.now() < last + 60


def test_going_on_drops_the_outgrown_parquet(tmp_path: Path) -> None:
    from sessions.tables import write_parquet

    folder = make_session(tmp_path, repeats=1)
    write_parquet(folder)
    SessionLog(folder).close()
    assert not list(folder.glob("*.parquet"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_everything_in_order(folder: Path, number: int) -> None:
    disk = Disk(number=number)
    with SessionLog(folder, write=disk.write) as log:
        log.append(note(0))
        disk.room = 100
        log.append(note(1))
        with pytest.raises(DiskFull, match=r"1 line\(s\) wait in memory"):
            log.append(note(2))
        log.append(note(3))
        log.request(request(3.5, "cell", "r1"))
        log.append(ev.GpusSampled(t=3.6, sample=gpu_sample(3.6)))
        with pytest.raises(DiskFull):
            log.retry()
        with pytest.raises(DiskFull):
            log.sync()
        assert [e.t for e in read_events(folder).events] == [0, 1]
        assert not read_events(folder).torn
        disk.room = None
        log.tick()
        assert not log.full
        log.append(note(4))
    assert [e.t for e in read_events(folder).events] == [0, 1, 2, 3, 4]
    assert (folder / "requests.jsonl").read_text().count("r1") == 1
    assert (folder / "gpus.jsonl").read_text().count("\n") == 1


def test_another_failure_keeps_everything_too(folder: Path) -> None:
    disk = Disk(number=errno.EIO)
    with SessionLog(folder, write=disk.write) as log:
        disk.room = 10
        with pytest.raises(SessionError, match="Input/output error"):
            log.append(note(1))
        disk.room = None
        log.retry()
    assert [e.t for e in read_events(folder).events] == [1]


def test_memory_is_bounded_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = Disk()
    file = LineFile(tmp_path / "lines", disk.write)
    disk.room = 0
    with pytest.raises(DiskFull):
        file.add(b"first")
    lost = sum(file.keep(b"%d" % i, 100) for i in range(500))
    assert file.pending == 100
    assert lost == 401
    disk.room = None
    file.flush()
    assert (tmp_path / "lines").read_text().split() == [str(i) for i in range(400, 500)]
    file.close()
    assert SAMPLES_KEPT_WHILE_FULL > 10_000


@settings(max_examples=60, deadline=None)
@given(rooms=st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=1, max_size=30))
def test_lines_are_never_lost_or_doubled(tmp_path_factory: pytest.TempPathFactory, rooms: list[int | None]) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines"
    disk = Disk()
    file = LineFile(path, disk.write)
    lines = [b"%d" % i + b"." * (7 * i % 90) for i in range(len(rooms))]
    for line, room in zip(lines, rooms, strict=True):
        disk.room = room
        try:
            file.add(line)
        except DiskFull:
            assert file.pending
        whole = path.read_bytes()
        assert whole == b"" or whole.endswith(b"\n")
        assert whole.splitlines() == lines[: len(whole.splitlines())]
    disk.room = None
    file.flush()
    assert path.read_bytes().splitlines() == lines
    file.close()


@needs("mount")
def test_a_really_full_disk(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import subprocess, sys
        from pathlib import Path
        root = Path(sys.argv[1])
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "none", str(root)], check=True)
        from sessions.errors import DiskFull
        from sessions.events import NoteAdded
        from sessions.folder import create, describe_host
        from sessions.log import SessionLog
        from sessions.logread import read_events
        from sessions.tables import write_parquet
        from tests.sessions.made import request
        folder = create(root, "full", describe_host("full"))
        ballast = root / "ballast"
        ballast.write_bytes(b"x" * 450_000)
        told = 0
        with SessionLog(folder) as log:
            for i in range(2000):
                try:
                    log.append(NoteAdded(t=float(i), text="x" * 40))
                    if i % 10 == 0:
                        log.request(request(float(i), "cell", str(i)))
                except DiskFull:
                    told += 1
            assert told == 1, told
            before = read_events(folder)
            assert not before.torn and before.lines_skipped == 0
            assert [e.t for e in before.events] == [float(i) for i in range(len(before.events))]
            try:
                write_parquet(folder)
            except DiskFull:
                told += 1
            assert told == 2, told
            assert not list(folder.glob("*.parquet")), list(folder.iterdir())
            assert not list(folder.glob(".*.parquet.*"))
            ballast.unlink()
            log.retry()
        after = read_events(folder)
        assert [e.t for e in after.events] == [float(i) for i in range(2000)]
        assert (folder / "requests.jsonl").read_text().count("\\n") == 200
        print("kept", len(before.events))
    """)
    asked = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*asked, sys.executable, "-c", script, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kept ")
