"""Prints what each level of the sandbox stops on this machine: `python -m tests.evals.attack_table`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import msgspec

from evals import confinement
from evals.confinement import Way, unsafe_way
from evals.program import Program
from evals.running import run
from evals.sandbox import MEMORY_BYTES, probe_level
from tests.evals.attacks import ATTACKS, CALLS, SECRET, VARIABLE, Attack, Outside, succeeded


def attempt(way: Way, attack: Attack, outside: Outside) -> bool:
    """Runs one attack; returns whether it succeeded. Raises AssertionError when the attack itself is broken."""
    assert way.level != "none" or os.geteuid() != 0 or way.drop_to, "never as root without a sandbox"
    places = "".join(f"{name} = {value!r}\n" for name, value in outside.places().items())
    code = f"{places}BUFFER = bytes(64)\n{CALLS if attack.needs_calls else ''}{attack.code}"
    program = Program(code=code, tests=attack.tests())
    with _without_audit() if attack.needs_calls else contextlib.nullcontext():
        result = run(way, program, timeout_s=attack.timeout_s, memory_bytes=MEMORY_BYTES)
    assert result.status in {"passed", "timeout", "exited"} or "the attack succeeded" in result.message, result
    return succeeded(result, outside)


@contextlib.contextmanager
def _without_audit() -> Iterator[None]:
    """Leaves the interpreter's audit hook out, which refuses ctypes: what the kernel itself stops is to be seen."""
    hook = "sys.addaudithook(_refuse)"

    def launch(*arguments: object) -> confinement.Launch:
        start = real(*arguments)
        assert any(hook in argument for argument in start.arguments)
        return msgspec.structs.replace(start, arguments=tuple(a.replace(hook, "pass") for a in start.arguments))

    real: Callable[..., confinement.Launch] = confinement.launch
    with mock.patch.object(confinement, "launch", launch):
        yield


def main() -> None:
    """Prints a Markdown table."""
    os.environ[VARIABLE] = SECRET
    ways = {"plain process": unsafe_way()}
    for name in ("landlock", "bwrap"):
        level = probe_level("landlock" if name == "landlock" else "bwrap")
        if level.name == name and level.way is not None:
            ways[name] = level.way
    sys.stdout.write("| attack | " + " | ".join(ways) + " |\n" + "|---" * (len(ways) + 1) + "|\n")
    for attack in ATTACKS:
        row = []
        for way in ways.values():
            with tempfile.TemporaryDirectory(dir="/tmp") as folder:
                outside = Outside(Path(folder), 65534 if os.geteuid() == 0 else None)
                try:
                    row.append("–" if attempt(way, attack, outside) else "stops")
                finally:
                    outside.close()
        sys.stdout.write(f"| {attack.name} | {' | '.join(row)} |\n")


if __name__ == "__main__":
    main()
