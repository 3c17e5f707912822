"""The ways in which a program can be shut in on this machine: command lines, identities, interpreters.

A `Way` is one complete way; `ways()` lists those that could work, best first, and `sandbox.py` tries them.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

import msgspec

from evals import syscall_filter
from evals.errors import SandboxRefusedError

LevelName = Literal["bwrap", "landlock", "none"]

NOBODY = 65534
SCRATCH_BYTES = 64 << 20
DEBIAN_PYTHON = Path("/usr/bin/python3")
_SYSTEM_FOLDERS = ("bin", "lib", "lib32", "lib64", "sbin")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_CLEAN_ENVIRONMENT = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way of shutting a program in.

    Attributes:
        level: rung of the ladder; `words`: what it is made of, for a screen.
        interpreter: absolute path of the Python that runs the program.
        prefix: folder that the interpreter needs beside `/usr`, or "" when it lives under `/usr`.
        drop_to: uid and gid that the process takes before anything else, `None` to keep the caller's.
    """

    level: LevelName
    words: str
    interpreter: str
    prefix: str = ""
    drop_to: int | None = None


def interpreters() -> list[tuple[str, str]]:
    """Returns (path, prefix) of the Pythons that could run inside, the system's first."""
    found = [(str(DEBIAN_PYTHON), "")] if DEBIAN_PYTHON.exists() else []
    own = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if not own.is_relative_to("/usr"):
        found.append((str(own), str(Path(sys.base_prefix).resolve())))
    elif not found:
        found.append((str(own), ""))
    return found


def ways() -> list[Way]:
    """Returns every way that could work for the calling user on this machine, best first; none is tried here."""
    if not sys.platform.startswith("linux"):
        return []
    root = os.geteuid() == 0
    found = []
    if shutil.which("bwrap"):
        for drop_to in (NOBODY, None) if root else (None,):
            for interpreter, prefix in interpreters():
                words = f"bubblewrap + seccomp + rlimits, uid {NOBODY}{'' if drop_to or not root else ' (mapped)'}"
                way = Way(level="bwrap", words=words, interpreter=interpreter, prefix=prefix, drop_to=drop_to)
                found.append(way)
    for interpreter, prefix in interpreters():
        drop = NOBODY if root else None
        words = f"landlock + seccomp + rlimits, uid {drop if drop is not None else os.geteuid()}"
        found.append(Way(level="landlock", words=words, interpreter=interpreter, prefix=prefix, drop_to=drop))
    return found


def unsafe_way() -> Way:
    """Returns the way without a sandbox: a plain process with a clean environment and rlimits; never as root.

    Raises:
        SandboxRefusedError: the caller is root and no interpreter can be read by another user.
    """
    root = os.geteuid() == 0
    for interpreter, prefix in interpreters():
        if not root or readable_by_others(Path(interpreter)):
            drop_to = NOBODY if root else None
            words = "NO SANDBOX (unsafe-exec)"
            return Way(level="none", words=words, interpreter=interpreter, prefix=prefix, drop_to=drop_to)
    raise SandboxRefusedError(
        "model-written code is not run as root, and no Python interpreter here can be read by another user: "
        "install the system's python3, or start spectop as an ordinary user"
    )


def readable_by_others(path: Path) -> bool:
    """Tells whether any user can reach and execute a file."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: arguments, environment, and the file descriptors that the child keeps."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    pass_fds: tuple[int, ...]
    drop_to: int | None
    folder: str = "/"


def launch(way: Way, reports: int, limits: dict[str, int], filter_fd: int | None) -> Launch:
    """Puts together the command line of one run.

    Args:
        way: how to shut the program in.
        reports: descriptor on which the program reports; kept open in the child.
        limits: resource limits that the program sets on itself before it reads anything.
        filter_fd: descriptor from which bubblewrap reads the seccomp filter; for the level `bwrap` only.
    """
    program = _source("inside.py")
    call = f"run({reports}, {limits!r})"
    if way.level == "landlock":
        program = f"{_source('landlock.py')}\n{program}"
        folders = tuple(f"/{name}" for name in ("usr", *_SYSTEM_FOLDERS)) + ((way.prefix,) if way.prefix else ())
        bpf = syscall_filter.compiled(may_execute=False)
        call = f"run({reports}, {limits!r}, lambda: confine({folders!r}, {_DEVICES!r}, {bpf!r}))"
    # isolated like -I, but for PYTHONHASHSEED of the clean environment: a verdict must come out the same again
    python = (way.interpreter, "-s", "-P", "-S", "-c", f"{program}\n{call}\n")
    if way.level != "bwrap":
        return Launch(arguments=python, environment=_CLEAN_ENVIRONMENT, pass_fds=(reports,), drop_to=way.drop_to)
    if filter_fd is None:
        raise ValueError("bubblewrap needs the descriptor of a seccomp filter")
    return Launch(
        arguments=(*_bubblewrap(way, filter_fd), *python),
        environment={"PATH": os.defpath},
        pass_fds=(reports, filter_fd),
        drop_to=way.drop_to,
    )


@functools.cache
def _source(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _bubblewrap(way: Way, filter_fd: int) -> list[str]:
    arguments = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    arguments += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL"]
    arguments += ["--die-with-parent", "--as-pid-1", "--new-session", "--clearenv"]
    for name, value in _CLEAN_ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    if way.prefix:
        arguments += ["--ro-bind", way.prefix, way.prefix]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - inside
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108 - inside
    return [*arguments, "--seccomp", str(filter_fd)]
