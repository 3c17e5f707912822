"""Attacks on the sandbox, and limits of it: one list, run against every level.

Each is a program. Its tests call `attack()`, which returns whether it succeeded as far as the attacker can see; what
can be seen from outside (a connection, a file, a dead process) is checked by `Outside` as well. A program that is
ended, or whose attack raises `OSError` or `MemoryError`, has been stopped. None is ever run as root unprotected.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path

import msgspec

from evals.program import RunResult

SECRET = "the-key-that-must-not-leak"
VARIABLE = "SPECTOP_TEST_SECRET"


class Outside:
    """The world that the attacks aim at: a secret file, servers, a victim process, a folder that anyone may write."""

    def __init__(self, folder: Path, victim_uid: int | None) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.secret = folder / "secret.txt"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o644)
        self.open_folder = folder / "open"
        self.open_folder.mkdir()
        self.open_folder.chmod(0o777)
        self._sockets = [socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        self._sockets += [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self.tcp, self.udp, unix, abstract = self._sockets
        self.tcp.bind(("127.0.0.1", 0))
        self.udp.bind(("127.0.0.1", 0))
        self.unix_path = folder / "s"
        unix.bind(str(self.unix_path))
        self.unix_path.chmod(0o777)
        self.abstract = f"\0spectop-test-{os.getpid()}-{id(self)}"
        abstract.bind(self.abstract)
        for each in (self.tcp, unix, abstract):
            each.listen()
        for each in self._sockets:
            each.setblocking(False)
        self.victim = subprocess.Popen(
            ["/usr/bin/sleep", "600"],
            user=victim_uid,
            extra_groups=None if victim_uid is None else [],
            env={VARIABLE: SECRET},
        )
        self.victim_limits = self._limits()

    def places(self) -> dict[str, object]:
        """Returns what an attacker is told: the worst case is one who knows every address."""
        return {
            "SECRET_FILE": str(self.secret),
            "OPEN_FOLDER": str(self.open_folder),
            "TCP": self.tcp.getsockname()[1],
            "UDP": self.udp.getsockname()[1],
            "UNIX": str(self.unix_path),
            "ABSTRACT": self.abstract,
            "VICTIM": self.victim.pid,
            "PARENT": os.getpid(),
            "SECRET": SECRET,
            "VARIABLE": VARIABLE,
        }

    def reached(self) -> bool:
        """Tells whether anything arrived at one of the servers."""
        for each in self._sockets:
            with contextlib.suppress(BlockingIOError):
                if each is self.udp:
                    each.recv(64)
                else:
                    each.accept()[0].close()
                return True
        return False

    def written(self) -> bool:
        """Tells whether anything was written outside."""
        return any(self.open_folder.iterdir()) or self.secret.read_text() != SECRET

    def hurt(self) -> bool:
        """Tells whether the victim has ended or lost its limits."""
        if self.victim.poll() is not None:
            return True
        return self._limits() != self.victim_limits

    def _limits(self) -> str:
        return Path(f"/proc/{self.victim.pid}/limits").read_text()

    def harmed(self) -> bool:
        """Tells whether anything outside was changed or reached."""
        return self.reached() or self.written() or self.hurt()

    def close(self) -> None:
        """Ends the victim and closes the servers."""
        self.victim.kill()
        self.victim.wait()
        for each in self._sockets:
            each.close()


class Attack(msgspec.Struct, frozen=True):
    """One attack.

    Attributes:
        name: what it tries.
        code: defines `attack() -> bool`; the addresses of `Outside.places` are its globals.
        plain_stops: whether a plain process with rlimits and a clean environment stops it already.
        landlock_stops: whether the level `landlock` stops it. The full level stops every one.
        timeout_s: for attacks that must run into the limit.
    """

    name: str
    code: str
    plain_stops: bool = False
    landlock_stops: bool = True
    timeout_s: float = 10.0

    @property
    def needs_calls(self) -> bool:
        """Whether it makes system calls by name."""
        return "CALL(" in self.code

    def tests(self) -> str:
        """Source of the tests: they fail when the attack succeeds."""
        return (
            "try:\n    succeeded = attack()\n"
            "except (OSError, MemoryError, RuntimeError, ValueError) as error:\n    succeeded = False\n"
            "assert not succeeded, 'the attack succeeded'\n"
        )


def succeeded(result: RunResult, outside: Outside) -> bool:
    """Tells whether an attack succeeded, by its own word or by what it did outside."""
    return (result.status == "failed" and "the attack succeeded" in result.message) or outside.harmed()


def _attack(name: str, body: str, **options: object) -> Attack:
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    code = f"import os, sys, socket, time\ndef attack():\n{lines}\n"
    return msgspec.convert({"name": name, "code": code, **options}, Attack)


ATTACKS: tuple[Attack, ...] = (
    # secrets
    _attack("read the shadow file", "return bool(open('/etc/shadow').read())"),
    _attack("read a file of the operator", "return SECRET in open(SECRET_FILE).read()"),
    _attack("list a home folder", "return bool(os.listdir('/root')) or bool(os.listdir('/home'))"),
    _attack(
        "read the environment",
        "return SECRET in str(dict(os.environ)) or SECRET.encode() in open('/proc/self/environ', 'rb').read()",
        plain_stops=True,
    ),
    _attack(
        "read another process's environment",
        "return any(SECRET.encode() in open(f'/proc/{p}/environ', 'rb').read() for p in (VICTIM, PARENT))",
    ),
    _attack("read another process's memory", "return bool(open(f'/proc/{VICTIM}/mem', 'rb') is not None)"),
    # network, both ways
    _attack("connect to the server under test", "socket.create_connection(('127.0.0.1', TCP), 2)\nreturn True"),
    _attack("listen on a port", "s = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nreturn True"),
    _attack(
        "send a datagram (DNS)",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nreturn s.sendto(b'x', ('127.0.0.1', UDP)) == 1",
    ),
    _attack("connect to a unix socket", "socket.socket(socket.AF_UNIX).connect(UNIX)\nreturn True"),
    _attack("connect to an abstract unix socket", "socket.socket(socket.AF_UNIX).connect(ABSTRACT)\nreturn True"),
    _attack("open a raw netlink socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\nreturn True"),
    # files
    _attack("write outside", "open(OPEN_FOLDER + '/planted', 'w').write('x')\nreturn True"),
    _attack("delete a file of the operator", "os.unlink(SECRET_FILE)\nreturn True"),
    _attack(
        "write to the system",
        """
for place in ('/usr/planted', '/planted', '/dev/planted', '/var/tmp/planted', '/dev/shm/planted', '/proc/planted'):
    try:
        open(place, 'w').close()
        os.unlink(place)
        return True
    except OSError:
        pass
return False""",
    ),
    _attack(
        "fill the disk",
        """
total, files, block = 0, [], b'x' * (1 << 20)
for folder in ('.', '/tmp', '/var/tmp', '/dev/shm', '/dev', '/run', OPEN_FOLDER):
    try:
        for number in range(12):
            name = f'{folder}/fill-{os.getpid()}-{number}'
            with open(name, 'wb') as file:
                files.append(name)
                for _ in range(15):
                    total += file.write(block)
    except OSError:
        pass
for name in files:
    os.unlink(name)
return total > 128 << 20""",
    ),
    _attack(
        "write one huge file",
        """
name = f'/tmp/spectop-huge-{os.getpid()}'
try:
    with open(name, 'wb') as file:
        return file.truncate(1 << 30) > 0
finally:
    if os.path.exists(name):
        os.unlink(name)""",
        plain_stops=True,
    ),
    # processes
    _attack(
        "fork bomb",
        """
children = []
try:
    for _ in range(40):
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(3)
            os._exit(0)
except OSError:
    pass
for child in children:
    os.kill(child, 9)
    os.wait()
return len(children) > 20""",
    ),
    _attack(
        "leave a daemon behind",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.3)
        open(OPEN_FOLDER + '/daemon', 'w').close()
        os._exit(0)
    os._exit(0)
time.sleep(1.0)
return os.path.exists(OPEN_FOLDER + '/daemon')""",
    ),
    _attack("start a program", "import subprocess\nreturn subprocess.run(['/usr/bin/true']).returncode == 0"),
    _attack("kill another process", "os.kill(VICTIM, 9)\nreturn True"),
    _attack("signal the parent", "os.kill(PARENT, 0)\nreturn True"),
    _attack("signal every process", "os.kill(-1, 0)\nreturn True"),
    _attack(
        "change another process's limits",
        "import resource\nresource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (5, 5))\nreturn True",
    ),
    _attack("slow another process down", "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)\nreturn True"),
    _attack("trace another process", "return CALL('ptrace', 16, VICTIM, 0, 0) == 0"),
    _attack(
        "read memory of another process by call",
        "return CALL('process_vm_readv', VICTIM, BUFFER, 1, BUFFER, 1, 0) >= 0",
    ),
    # the kernel
    _attack("new user namespace", "return CALL('unshare', 0x10000000) == 0"),
    _attack("mount a file system", "return CALL('mount', b'none', OPEN_FOLDER.encode(), b'tmpfs', 0, None) == 0"),
    _attack("load a BPF program", "return CALL('syscall', 321, 0, BUFFER, 48) >= 0"),
    _attack("use io_uring", "return CALL('syscall', 425, 1, BUFFER) >= 0"),
    _attack("keep a shared memory segment", "return CALL('shmget', 0, 4096, 0o1600) >= 0"),
    _attack("become root again", "os.setuid(0)\nreturn os.geteuid() == 0"),
    _attack(
        "gain privileges by a setuid program",
        "return 'NoNewPrivs:\\t0' in open('/proc/self/status').read()",
    ),
    _attack(
        "raise its own limits",
        "import resource as r\nr.setrlimit(r.RLIMIT_AS, (-1, -1))\nreturn r.getrlimit(r.RLIMIT_AS)[0] == -1",
    ),
    # resources
    _attack("take 1.5 GiB of memory", "return len(bytearray(3 << 29)) > 0", plain_stops=True),
    _attack(
        "take memory through files that are none",
        "descriptors = [os.memfd_create(str(n)) for n in range(40)]\n"
        "return sum(os.write(d, b'x' * (15 << 20)) for d in descriptors) > 256 << 20",
    ),
    _attack(
        "thread bomb",
        """
import threading
go = threading.Event()
threads = []
try:
    for _ in range(200):
        thread = threading.Thread(target=go.wait, daemon=True)
        thread.start()
        threads.append(thread)
except RuntimeError:
    pass
go.set()
return len(threads) > 150""",
        plain_stops=True,
    ),
    _attack("run for ever", "while True:\n    pass", plain_stops=True, timeout_s=0.4),
    _attack(
        "run for ever, deaf to signals",
        "import signal\nfor n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)",
        plain_stops=True,
        timeout_s=0.4,
    ),
    _attack("flood the output", "while True:\n    os.write(1, b'x' * 65536)", plain_stops=True, timeout_s=0.4),
)

CALLS = '''
def CALL(name, *arguments):
    """Makes a call of libc by name, around every wrapper; raises OSError as a wrapper would."""
    import ctypes
    result = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
'''
"""Given to attacks beside the addresses; `BUFFER` is 64 zero bytes."""

FORGERIES: tuple[tuple[str, str], ...] = (
    ("words and a clean exit", "import os\nprint('PASSED', flush=True)\nos._exit(0)\n"),
    ("leave while loading", "import sys\nsys.exit(0)\n"),
    ("leave in the tests", "import sys\ndef add(a, b):\n    sys.exit(0)\n"),
    ("leave hard in the tests", "import os\ndef add(a, b):\n    print('OK 2 passed', flush=True)\n    os._exit(0)\n"),
    (
        "write records on every descriptor",
        "import os\nfor fd in range(64):\n"
        "    for record in (b'loaded\\n', b'done\\n', b'token\\0' + b'0' * 32 + b'\\n'):\n"
        "        try:\n            os.write(fd, record)\n        except OSError:\n            pass\n"
        "def add(a, b):\n    return 0\n",
    ),
    (
        "read the rest of the input",
        "import sys\ntext = sys.stdin.read()\ndef add(a, b):\n    print(text)\n    return 0\n",
    ),
    (
        "search frames for a token",
        "import os, re, sys\n"
        "def found():\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        yield from re.findall('[0-9a-f]{32}', repr(frame.f_locals) + repr(frame.f_globals))\n"
        "        yield from re.findall('[0-9a-f]{32}', repr(frame.f_code.co_consts))\n"
        "        frame = frame.f_back\n"
        "def add(a, b):\n"
        "    for token in found():\n"
        "        for fd in range(3, 64):\n"
        "            try:\n                os.write(fd, b'done\\ntoken\\0' + token.encode() + b'\\n')\n"
        "            except OSError:\n                pass\n"
        "    return 0\n",
    ),
    (
        "search all objects for a token",
        "import gc, os, re\n"
        "def add(a, b):\n"
        "    for thing in gc.get_objects():\n"
        "        for token in re.findall('[0-9a-f]{32}', repr(thing)[:10000]):\n"
        "            os.write(3, b'token\\0' + token.encode() + b'\\n')\n"
        "    return 0\n",
    ),
    (
        "step over the assertions",
        "import sys\n"
        "def jump(frame, event, argument):\n"
        "    if event == 'line' and frame.f_code.co_filename == 'tests.py':\n"
        "        frame.f_lineno = 2\n"
        "    return jump\n"
        "sys.settrace(jump)\n"
        "def add(a, b):\n    return 0\n",
    ),
    ("forge the exception", "import builtins\nbuiltins.AssertionError = SystemExit\ndef add(a, b):\n    return 0\n"),
    ("report at exit", "import atexit, os\natexit.register(lambda: os._exit(0))\ndef add(a, b):\n    return 0\n"),
    (
        "replace the program's own words",
        "import os, sys\nos.write = lambda fd, data: len(data)\nos._exit = lambda status: None\n"
        "sys.modules['__main__'].run = lambda *a: None\ndef add(a, b):\n    return 0\n",
    ),
    (
        "an answer that equals everything",
        "class Anything:\n    def __eq__(self, other):\n        return True\n"
        "    __hash__ = None\ndef add(a, b):\n    return Anything()\n",
    ),
    (
        "a number that equals everything",
        "class Number(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
        "def add(a, b):\n    return Number(7)\n",
    ),
    ("close the reports", "import os\nos.closerange(3, 64)\ndef add(a, b):\n    return 5\n"),
)
"""Programs that must never pass the tests of `add`, whatever they print or return."""
