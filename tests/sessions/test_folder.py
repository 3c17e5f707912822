from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.errors import SessionError, SessionNotFound
from sessions.folder import (
    control_of,
    create,
    describe_host,
    find,
    folders,
    publish_control,
    read_info,
    sessions_dir,
    slug,
    socket_path,
    write_atomically,
)


def test_where_sessions_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPECTOP_SESSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sessions_dir() == tmp_path / "spectop" / "sessions"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sessions_dir() == tmp_path / ".local/share/spectop/sessions"
    monkeypatch.setenv("SPECTOP_SESSIONS_DIR", "~/elsewhere")
    assert sessions_dir() == tmp_path / "elsewhere"
    assert sessions_dir("/there") == Path("/there")


def test_create_is_private_and_whole(tmp_path: Path) -> None:
    info = describe_host("a label", sweep=b'{"matrix": {"contexts": [60]}}', gpus=("X", "X"), driver="595")
    folder = create(tmp_path / "new", "a label", info)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [p.name for p in folder.iterdir()] == ["session.json"]
    read = read_info(folder)
    assert (read.label, read.gpus, read.driver, read.host) == ("a label", ("X", "X"), "595", info.host)
    assert b"contexts" in bytes(read.sweep)


def test_create_where_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="--sessions-dir"):
        create(tmp_path / "file", "x", describe_host("x"))


def test_two_in_one_moment_are_two(tmp_path: Path) -> None:
    made = {create(tmp_path, "same", describe_host("same")) for _ in range(20)}
    assert len(made) == 20


@pytest.mark.parametrize("label", ["kimi-k26-rtx6000", "a.b_c-9"])
def test_slug_keeps_what_is_safe(label: str) -> None:
    assert slug(label) == label


def test_slug_keeps_different_labels_different() -> None:
    labels = ["a/b", "a b", "a:b", "-a-b", "../a-b", "é", "e", "", "x" * 300, "x" * 301]
    assert len({slug(x) for x in labels}) == len(labels)


def test_find(tmp_path: Path) -> None:
    first = create(tmp_path, "alpha", describe_host("alpha"))
    second = create(tmp_path, "alphabet", describe_host("alphabet"))
    third = create(tmp_path, "beta", describe_host("beta"))
    assert folders(tmp_path) == [first, second, third]
    assert find(tmp_path, "last") == third
    assert find(tmp_path, str(first)) == first
    assert find(tmp_path, second.name) == second
    assert find(tmp_path, "be") == third
    assert find(tmp_path, "alpha") == first
    with pytest.raises(SessionNotFound, match=r"fits 2 sessions(?s:.*)alpha(?s:.*)alphabet"):
        find(tmp_path, "al")
    with pytest.raises(SessionNotFound, match="beta"):
        find(tmp_path, "gamma")
    with pytest.raises(SessionNotFound, match="no session in"):
        find(tmp_path / "empty", "last")


def test_write_atomically_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")
    write_atomically(target, b"after")
    assert target.read_bytes() == b"after"
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "directory", b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["directory", "file"]


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A directory with a short path, as a runtime directory has one."""
    with tempfile.TemporaryDirectory(prefix="run") as name:
        yield Path(name)


def test_socket_path_is_short_private_and_found_again(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create(tmp_path / ("deep" * 40), "x", describe_host("x"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    path = socket_path(folder)
    assert path.parent == runtime / "spectop"
    assert len(os.fsencode(path)) < 100
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert control_of(folder) is None
    publish_control(folder, path)
    assert control_of(folder) == path
    (tmp_path / ("x" * 90)).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 90)))
    assert len(os.fsencode(socket_path(folder))) < 100


def test_socket_path_refuses_a_directory_open_to_others(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    (runtime / "spectop").mkdir(mode=0o755)
    with pytest.raises(SessionError, match="mode 0700"):
        socket_path(tmp_path)
    (runtime / "spectop").rmdir()
    (runtime / "spectop").symlink_to(tmp_path)
    with pytest.raises(SessionError, match="mode 0700"):
        socket_path(tmp_path)
