"""Where sessions live: finding, making and describing a session's folder, and the name of its control socket.

The one place that knows the layout of the sessions directory and what `session.json` holds. Lines inside the folder
are written by `sessions/log.py` and read by `sessions/logread.py`.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import socket
import stat
import tempfile
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sessions.errors import NewerSchema, SessionError, SessionNotFound
from sessions.events import SCHEMA_VERSION

INFO_FILE = "session.json"
CONTROL_FILE = "control"
EVENTS_FILE = "events.jsonl"
SLUG_KEPT = 60
SOCKET_PATH_LIMIT = 100
"""Bytes; the kernel takes 107 for a unix socket's path."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`session.json`: what was true when the session began; written once.

    Attributes:
        schema: version of the folder's files (`sessions.events.SCHEMA_VERSION`).
        version: of the package that made the session; `created`: UTC, ISO 8601.
        sweep: the sweep file as resolved, a plain JSON tree; `sweep_text`: the file as it was written.
        gpus: the GPUs' names, one each; `driver`: the GPU driver's version.
    """

    schema: int = SCHEMA_VERSION
    label: str
    version: str
    created: str
    host: str = ""
    user: str = ""
    sweep: msgspec.Raw = msgspec.Raw(b"null")
    sweep_path: str | None = None
    sweep_text: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    kernel: str = ""
    python: str = ""


def utc_now() -> str:
    """Returns the present moment in UTC, ISO 8601 with milliseconds; for people, never for arithmetic."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def package_version() -> str:
    """Returns the installed package's version, or "unknown" when it runs from a bare source tree."""
    import importlib.metadata  # late: it brings `email` and `zipfile` with it

    try:
        return importlib.metadata.version("spectop")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def describe_host(
    label: str,
    *,
    sweep: bytes = b"null",
    sweep_path: str | None = None,
    sweep_text: str | None = None,
    gpus: tuple[str, ...] = (),
    driver: str | None = None,
) -> SessionInfo:
    """Returns what `session.json` says of a session that begins now on this machine.

    Args:
        label: the operator's name for it.
        sweep: the resolved sweep file as JSON.
        sweep_path: where the sweep file was read; `sweep_text`: its text.
        sweep_text: see `sweep_path`.
        gpus: names of the GPUs, one each.
        driver: the GPU driver's version.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return SessionInfo(
        label=label,
        version=package_version(),
        created=utc_now(),
        host=socket.gethostname(),
        user=user,
        sweep=msgspec.Raw(sweep),
        sweep_path=sweep_path,
        sweep_text=sweep_text,
        gpus=gpus,
        driver=driver,
        kernel=platform.release(),
        python=platform.python_version(),
    )


def sessions_dir(override: str | Path | None = None) -> Path:
    """Returns the directory that holds all sessions; not made here.

    Args:
        override: the command line's `--sessions-dir`; then `SPECTOP_SESSIONS_DIR`, then the user's data directory.
    """
    if override:
        return Path(override).expanduser()
    if named := os.environ.get("SPECTOP_SESSIONS_DIR"):
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    base = Path(data) if data and Path(data).is_absolute() else Path("~/.local/share").expanduser()
    return base / "spectop" / "sessions"


def slug(label: str) -> str:
    """Returns a label as a safe part of a file name: ASCII letters, digits, `.`, `_`, `-`, at most 60 characters.

    Labels that differ stay different: where characters were replaced or cut, a short hash of the label follows.
    """
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode()
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:SLUG_KEPT].rstrip("-._")
    if safe == label:
        return safe
    mark = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{safe}-{mark}" if safe else f"session-{mark}"


def create(sessions_dir: Path, label: str, info: SessionInfo) -> Path:
    """Makes a new session's folder, mode 0700, with its `session.json`.

    Args:
        sessions_dir: made when it is not there.
        label: part of the folder's name, made safe.
        info: what `session.json` will say.

    Raises:
        SessionError: the folder cannot be made there.
    """
    base = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"[:-3] + f"Z-{slug(label)}"
    try:
        sessions_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        count = 1
        while True:
            folder = sessions_dir / (base if count == 1 else f"{base}-{count}")
            try:
                folder.mkdir(mode=0o700)
                break
            except FileExistsError:
                count += 1
        write_atomically(folder / INFO_FILE, msgspec.json.format(msgspec.json.encode(info), indent=1))
    except OSError as error:
        raise SessionError(
            f"cannot make a session in {sessions_dir}: {error.strerror or error}; "
            "name another place with --sessions-dir"
        ) from error
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that its name always stands for a whole file: temporary name, fsync, rename."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def read_info(folder: Path) -> SessionInfo:
    """Reads `session.json`.

    Raises:
        NewerSchema: a newer version of the product wrote the session; nothing of it is touched.
        SessionError: the file is absent or is not what it should be.
    """
    path = folder / INFO_FILE
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError:
        raise SessionError(f"{printable(str(path))}: not there, so {printable(folder.name)} is no session") from None
    except OSError as error:
        raise SessionError(f"{printable(str(path))}: cannot be read: {error.strerror}") from error
    try:
        tree = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SessionError(f"{printable(str(path))}: not JSON ({error}); was it edited or cut off?") from error
    check_schema(tree, path)
    try:
        return msgspec.json.decode(content, type=SessionInfo)
    except msgspec.ValidationError as error:
        raise SessionError(f"{printable(str(path))}: {error}") from error


def check_schema(tree: object, path: Path) -> None:
    """Refuses a file whose schema version this version of the product does not know.

    Args:
        tree: the decoded JSON; without a `schema` it counts as the first version.
        path: named in the error.

    Raises:
        NewerSchema: its version is higher than `SCHEMA_VERSION`, or no version that could be known.
        SessionError: it is no object.
    """
    if not isinstance(tree, dict):
        raise SessionError(f"{printable(str(path))}: an object was expected, found {type(tree).__name__}")
    schema = tree.get("schema", 1)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise NewerSchema(f"{printable(str(path))}: schema must be a whole number from 1, found {schema!r}")
    if schema > SCHEMA_VERSION:
        raise NewerSchema(
            f"{printable(str(path))}: written by schema {schema}; this version reads up to {SCHEMA_VERSION}. "
            f"Open it with a newer spectop (the session was made by {printable(str(tree.get('version', 'unknown')))})"
        )


def is_session(folder: Path) -> bool:
    """Whether a folder holds a session: its `session.json`, or at least its log."""
    try:
        return (folder / INFO_FILE).is_file() or (folder / EVENTS_FILE).is_file()
    except (OSError, ValueError):
        return False


def folders(sessions_dir: Path) -> list[Path]:
    """Returns all session folders of a directory, oldest first (their names begin with the time they were made)."""
    try:
        return sorted((f for f in sessions_dir.iterdir() if is_session(f)), key=lambda f: f.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SessionError(f"{sessions_dir}: cannot be read: {error.strerror}") from error


def find(sessions_dir: Path, name: str) -> Path:
    """Finds a session.

    Args:
        sessions_dir: where names are looked up.
        name: a folder, a name, a unique beginning of a name or of a label, or `last`.

    Raises:
        SessionNotFound: none fits, or more than one; the error lists the candidates.
    """
    given = Path(name).expanduser() if name and "\0" not in name else None
    if given is not None and is_session(given):
        return given.resolve()
    known = folders(sessions_dir)
    if not known:
        raise SessionNotFound(f"no session in {printable(str(sessions_dir))}; --sessions-dir says where to look")
    if name == "last":
        return known[-1]
    exact = [f for f in known if f.name == name]
    fitting = exact or [f for f in known if name and (f.name.startswith(name) or _label_part(f.name).startswith(name))]
    if not exact and (same := [f for f in fitting if _label_part(f.name) == name]) and len(same) == 1:
        fitting = same
    if len(fitting) == 1:
        return fitting[0]
    shown = "\n".join(f"  {printable(f.name)}" for f in (fitting or known)[-10:])
    if fitting:
        raise SessionNotFound(f"{printable(name)!r} fits {len(fitting)} sessions; name one of them:\n{shown}")
    raise SessionNotFound(f"no session {printable(name)!r} in {printable(str(sessions_dir))}; the newest are:\n{shown}")


def _label_part(folder_name: str) -> str:
    return folder_name.partition("Z-")[2]


def shortened(text: str, most: int = 300) -> str:
    """Returns the beginning of a text that came from outside, which may be a whole traceback or page."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def printable(text: str) -> str:
    """Returns text that came from outside as one line without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def socket_path(folder: Path) -> Path:
    """Returns the path for a session's control socket, in a private directory of this user, made if need be.

    Args:
        folder: the session's folder; the name is a short hash of its path, under 100 bytes in all.

    Raises:
        SessionError: the directory belongs to somebody else or is open to others.
    """
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16] + ".sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK | os.X_OK):
        path = Path(runtime) / "spectop" / name
        if len(os.fsencode(path)) < SOCKET_PATH_LIMIT:
            _make_private(path.parent)
            return path
    private = Path("/tmp") / f"spectop-{os.getuid()}"  # noqa: S108 - made private and checked below
    _make_private(private)
    return private / name


def _make_private(directory: Path) -> None:
    """Makes a directory that only this user may enter, or checks that it is one."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise SessionError(f"{directory}: cannot be made: {error.strerror}") from error
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SessionError(
            f"{directory}: must be a directory of user {os.getuid()} with mode 0700, and is not; "
            "remove it or set XDG_RUNTIME_DIR"
        )


def publish_control(folder: Path, path: Path) -> None:
    """Writes a listening control socket's path into the session's folder, so that terminals find it.

    A resumed session's says the same as before; a full disk is then no reason not to take it up.
    """
    if control_of(folder) == path:
        return
    write_atomically(folder / CONTROL_FILE, os.fsencode(path) + b"\n")


def control_of(folder: Path) -> Path | None:
    """Returns the control socket named in a session's folder, or `None`; whether anybody listens is not looked at."""
    try:
        return Path(os.fsdecode((folder / CONTROL_FILE).read_bytes().strip()))
    except FileNotFoundError:
        return None
