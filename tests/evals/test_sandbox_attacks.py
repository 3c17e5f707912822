"""One list of attacks against every level of the sandbox: what each stops."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.confinement import Way, interpreters, unsafe_way, ways
from evals.fairness import fair
from evals.program import Program
from evals.running import run
from evals.sandbox import MEMORY_BYTES, probe_level, why_not
from tests.evals.attack_table import attempt
from tests.evals.attacks import ATTACKS, FORGERIES, SECRET, VARIABLE, Attack, Outside
from tests.needs import needs

ADD = "assert add(2, 3) == 5\nassert add(-1, 1) == 0\n"


def bwrap_ways() -> list[Way]:
    return [way for way in ways() if way.level == "bwrap"]


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setenv(VARIABLE, SECRET)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # short and open to others, unlike tmp_path
        world = Outside(Path(folder), 65534 if os.geteuid() == 0 else None)
        try:
            yield world
        finally:
            world.close()


@needs("bwrap")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_full_level_stops(attack: Attack, outside: Outside) -> None:
    level = probe_level()
    assert level.name == "bwrap", level
    assert level.way is not None
    assert not attempt(level.way, attack, outside)


@needs("bwrap", "root")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_full_level_stops_with_a_mapped_uid(attack: Attack, outside: Outside) -> None:
    way = next(way for way in bwrap_ways() if way.drop_to is None)
    assert why_not(way) is None
    assert not attempt(way, attack, outside)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_landlock_stops(attack: Attack, outside: Outside) -> None:
    level = probe_level("landlock")
    assert level.name == "landlock", level
    assert level.way is not None
    assert attempt(level.way, attack, outside) is not attack.landlock_stops


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.plain_stops], ids=lambda attack: attack.name)
def test_plain_process_stops_only_these(attack: Attack, outside: Outside) -> None:
    assert not attempt(unsafe_way(), attack, outside)


HARMLESS = ("read a file of the operator", "connect to the server under test", "send a datagram (DNS)", "write outside")
REAL = [attack for attack in ATTACKS if attack.name in (*HARMLESS, "kill another process", "leave a daemon behind")]


@pytest.mark.parametrize("attack", REAL, ids=lambda attack: attack.name)
def test_the_attacks_are_real(attack: Attack, outside: Outside) -> None:
    """Without a sandbox they succeed: a list of attacks that fail anyway would prove nothing."""
    assert attempt(unsafe_way(), attack, outside)


@needs("bwrap")
@pytest.mark.parametrize("level", ["bwrap", "landlock"])
@pytest.mark.parametrize(("name", "code"), FORGERIES, ids=[name for name, _ in FORGERIES])
def test_forged_verdicts(level: str, name: str, code: str) -> None:
    found = probe_level("bwrap" if level == "bwrap" else "landlock")
    assert found.name == level, found
    assert found.way is not None
    program = Program(code=code, tests=fair(ADD), entry_point="add")
    result = run(found.way, program, timeout_s=3.0, memory_bytes=MEMORY_BYTES)
    if name == "close the reports":
        assert result.status == "exited"
    assert result.status in {"failed", "load_failed", "exited"}, result


def test_the_list_is_long_enough() -> None:
    assert len(ATTACKS) >= 20
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert interpreters()
