"""The program that runs inside the sandbox: limits itself, loads an answer, runs its tests, tells the parent.

The parent never imports this module: it reads its text and hands it to the sandboxed interpreter, so it may use
nothing but the standard library, and imports little, because every run pays for it.

Conversation: this side writes records (fields parted by NUL, ended by a newline) to a pipe of its own: `ready`,
`loaded`, `done`, `token`, or `failed`. The parent answers over standard input with length-prefixed texts: preamble and
answer after `ready`, the tests after `loaded`, a random token after `done`, which is echoed. So neither tests nor token
are in this process while the answer loads, and an answer that prints words, exits, or searches its process finds none.
"""

import contextlib
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_MESSAGE = 2_000
REFUSED_EVENTS = frozenset(
    {
        "sys.settrace",
        "sys.setprofile",
        "sys._current_frames",
        "sys._current_exceptions",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "cpython.PyInterpreterState_New",
    }
)


def _read_exactly(channel: int, size: int, read: "Callable[[int, int], bytes]") -> bytes:
    parts = []
    while size > 0:
        part = read(channel, min(size, 65536))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _receive(channel: int, read: "Callable[[int, int], bytes]" = os.read) -> str:
    header = b""
    while not header.endswith(b"\n"):
        byte = read(channel, 1)
        if not byte:
            raise EOFError
        header += byte
    return _read_exactly(channel, int(header), read).decode("utf-8", "surrogatepass")


def _describe(error: BaseException, filename: str) -> tuple[str, str, str]:
    """Returns (type, line in `filename` or "", message) of an exception; its own methods are not to be trusted."""
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        message = str(error)[:LONGEST_MESSAGE]
    except BaseException:  # an answer's own exception may do anything when asked for its text
        message = ""
    return type(error).__name__, "" if line is None else str(line), message


def _limit(limits: dict[str, int]) -> None:
    for name, wanted in limits.items():
        number = getattr(resource, "RLIMIT_" + name)
        _, hard = resource.getrlimit(number)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def _refuse(event: str, _: object, refused: frozenset[str] = REFUSED_EVENTS) -> None:
    """Audit hook: keeps an answer from stepping the tests past their assertions and from searching this process."""
    if event in refused or event.startswith("ctypes."):
        raise PermissionError(event + " is refused in the sandbox")


def _fair(value: object, depth: int = 3) -> object:
    """Returns `value`, unless it compares with anything at all: such an answer would pass every test."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        for element in value.values() if depth else ():
            _fair(element, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset) and kind in (list, tuple, set, frozenset):
        for element in value if depth else ():
            _fair(element, depth - 1)
    elif kind not in (int, str, float, bool, bytes, complex, type(None)) and kind.__module__ != "unittest.mock":
        nothing_like_it = object()
        for name in ("__eq__", "__lt__", "__gt__", "__le__", "__ge__"):
            answer = None
            with contextlib.suppress(Exception):  # an honest comparison may refuse in any way it likes
                answer = getattr(kind, name)(value, nothing_like_it)
            if answer is not NotImplemented and answer:
                raise AssertionError("a " + kind.__name__ + " that compares with anything")
    return value


def run(reports: int, limits: dict[str, int], confine: "Callable[[], None] | None" = None) -> None:
    """Runs one conversation with the parent to its end and leaves the process.

    Args:
        reports: file descriptor on which records are written.
        limits: names of resource limits (without RLIMIT_) to their values.
        confine: further confinement of this very process, called once before anything untrusted is read.
    """
    write, leave, execute, build, namespace = os.write, os._exit, exec, compile, dict
    receive, describe, fair, module_type = _receive, _describe, _fair, type(sys)
    flush = sys.stdout.flush

    def send(*fields: str) -> None:
        text = "\0".join(field.replace("\0", " ").replace("\n", "\\n") for field in fields)
        record = text.encode("utf-8", "backslashreplace") + b"\n"
        while record:
            record = record[write(reports, record) :]

    channel = os.dup(0)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _limit(limits)
    if confine is not None:
        confine()
    sys.addaudithook(_refuse)
    sys.argv = ["answer.py"]
    module = module_type("answer")
    sys.modules["answer"] = module
    sys.modules["__main__"] = module_type("__main__")
    send("ready", f"{sys.version_info[0]}.{sys.version_info[1]}")
    preamble, code, entry_point = receive(channel), receive(channel), receive(channel)
    try:
        execute(build(preamble, "preamble.py", "exec", dont_inherit=True), module.__dict__)
        execute(build(code, "answer.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # the rim: whatever the answer raises is its verdict
        send("failed", "load", *describe(error, "answer.py"))
        leave(1)
    if entry_point and entry_point not in module.__dict__:
        send("failed", "load", "NameError", "", "the code does not define " + entry_point)
        leave(1)
    send("loaded")
    tests = receive(channel)
    names = namespace(module.__dict__)
    names["__name__"] = "tests"
    names["__fair__"] = fair
    try:
        execute(build(tests, "tests.py", "exec", dont_inherit=True), names)
    except BaseException as error:  # the rim: whatever the answer raises is its verdict
        send("failed", "tests", *describe(error, "tests.py"))
        leave(1)
    with contextlib.suppress(OSError, ValueError):
        flush()  # the answer may have closed its output, which is no verdict
    send("done")
    send("token", receive(channel))
    leave(0)
