"""Durations, quoting, remembered loads, and managers from their configuration."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconfig.durations import seconds, words
from reconfig.limits import limits_from
from reconfig.loads import LoadMemory
from reconfig.managers import CommandConfig, ManagerConfig, ProcessConfig, SystemdConfig, manager_from
from reconfig.managers.config import ManualConfig
from reconfig.managers.quoting import systemd_command, systemd_environment, with_arguments
from reconfig.managers.systemd import SystemdManager


@pytest.mark.parametrize(
    ("text", "value"), [("15m", 900), ("1h30m", 5400), ("90s", 90), ("250ms", 0.25), (30, 30), ("2 min", 120), ("7", 7)]
)
def test_durations_are_read_as_people_write_them(text: str | int, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "m", -1, float("nan"), float("inf")])
def test_other_texts_are_refused_in_words(text: str | int) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


def test_durations_are_told_in_two_units_at_most() -> None:
    assert [words(value) for value in (0.8, 42, 320, 360, 5400)] == [
        "0.8 s",
        "42 s",
        "5 min 20 s",
        "6 min",
        "1 h 30 min",
    ]


def test_arguments_stand_where_the_placeholder_is_and_else_at_the_end() -> None:
    assert with_arguments(["server"], ["--a", "1"], {}) == ["server", "--a", "1"]
    assert with_arguments(["run", "{arguments}", "tail"], ["--a"], {}) == ["run", "--a", "tail"]
    assert with_arguments(["ssh", "{quoted_arguments}"], ["--a", "x y"], {}) == ["ssh", "--a 'x y'"]
    docker = ["docker", "run", "{env:-e}", "image", "{arguments}"]
    assert with_arguments(docker, ["--a"], {"K": "v"}) == ["docker", "run", "-e", "K=v", "image", "--a"]
    assert with_arguments(["env", "{env}", "x", "{arguments}"], [], {"K": "v"}) == ["env", "K=v", "x"]


@given(st.lists(st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1), max_size=4))
def test_arguments_for_a_shell_at_the_other_end_come_through_whole(arguments: list[str]) -> None:
    [_, quoted] = with_arguments(["ssh", "{quoted_arguments}"], arguments, {})
    assert shlex.split(quoted) == arguments


def test_unit_files_are_quoted_so_that_nothing_is_expanded() -> None:
    assert systemd_command(["/bin/x", "50%", "$HOME", 'a"b\\c']) == '"/bin/x" "50%%" "$$HOME" "a\\"b\\\\c"'
    assert systemd_environment("A", "100% $x") == 'Environment="A=100%% $x"'


def test_loads_are_remembered_by_model_and_machine_and_a_damaged_file_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "state" / "loads.json"
    memory = LoadMemory(path)
    assert memory.expected_s("kimi", "gpu1") is None
    for value in (300.0, 320.0, 310.0):
        memory.remember("kimi", "gpu1", value)
    assert LoadMemory(path).expected_s("kimi", "gpu1") == 310.0
    assert memory.expected_s("kimi", "gpu2") is None
    path.write_text("{torn")
    assert memory.expected_s("kimi", "gpu1") is None
    memory.remember("kimi", "gpu1", 5.0)
    assert memory.expected_s("kimi", "gpu1") == 5.0


def test_the_memory_of_loads_is_in_the_state_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    LoadMemory().remember("m", "h", 1.0)
    assert (tmp_path / "spectop" / "loads.json").exists()


def decoded(toml: str) -> ManagerConfig:
    return msgspec.toml.decode(toml, type=ManagerConfig)  # type: ignore[arg-type,return-value,unused-ignore]


def test_each_kind_is_read_from_a_sweep_file(tmp_path: Path) -> None:
    for toml, kind in (
        ('kind = "systemd"\nunit = "sglang"\narguments = "ARGS"', "systemd"),
        ('kind = "process"\ncommand = ["python", "-m", "server"]', "process"),
        ('kind = "command"\nstart = ["docker", "run", "{arguments}"]\nstop = ["docker", "rm"]', "command"),
        ('kind = "manual"', "manual"),
    ):
        manager = manager_from(decoded(toml), state_dir=tmp_path)
        assert manager.kind == kind
    with pytest.raises(msgspec.ValidationError, match="unit"):
        decoded('kind = "systemd"')
    with pytest.raises(msgspec.ValidationError, match="unknown field `untis`"):
        decoded('kind = "systemd"\nunit = "x"\nuntis = 1')


def test_contradictions_of_a_configuration_name_the_key() -> None:
    with pytest.raises(ValueError, match="one of two"):
        SystemdConfig(unit="x")
    with pytest.raises(ValueError, match="command"):
        ProcessConfig(command=[])


def test_a_unit_s_name_may_have_dots_of_its_own() -> None:
    manager = SystemdManager(SystemdConfig(unit="kimi-k2.6", arguments="ARGS"))
    assert manager.unit == "kimi-k2.6.service"
    assert "/kimi-k2.6.service.d/" in manager.dropin.path
    assert SystemdManager(SystemdConfig(unit="sglang@1.service", arguments="ARGS")).unit == "sglang@1.service"


@pytest.mark.parametrize(
    ("config", "elsewhere"),
    [
        (SystemdConfig(unit="x", arguments="A"), False),
        (SystemdConfig(unit="x", arguments="A", systemctl=["sudo", "-n", "systemctl"]), False),
        (SystemdConfig(unit="x", arguments="A", systemctl=["systemctl", "--host=root@gpu1"]), True),
        (SystemdConfig(unit="x", arguments="A", systemctl=["ssh", "g", "systemctl"],
                       journalctl=["ssh", "g", "journalctl"], write=["ssh", "g"]), True),
        (CommandConfig(start=["docker", "run", "x", "--host", "0.0.0.0", "{arguments}"], stop=["docker", "stop", "x"]),
         False),
        (CommandConfig(start=["ssh", "g", "{quoted_arguments}"], stop=["/usr/bin/ssh", "g", "stop"]), True),
        (ProcessConfig(command=["server"]), False),
        (ManualConfig(), False),
    ],
)  # fmt: skip
def test_a_manager_whose_commands_go_to_another_machine_says_so(
    config: ManagerConfig, elsewhere: bool, tmp_path: Path
) -> None:
    assert manager_from(config, state_dir=tmp_path).elsewhere is elsewhere


def test_limits_follow_the_configuration() -> None:
    limits = limits_from(ManualConfig(ready_timeout="20m", probe_timeout=10))
    assert (limits.ready_s, limits.probe_s, limits.generate_s) == (1200, 10, 30)


def test_the_package_imports_neither_the_screens_nor_the_simulated_server() -> None:
    code = (
        "import sys, pkgutil, importlib, reconfig, reconfig.managers\n"
        "for p in (reconfig, reconfig.managers):\n"
        "    for m in pkgutil.iter_modules(p.__path__, p.__name__ + '.'): importlib.import_module(m.name)\n"
        "print([m for m in ('textual', 'simserver', 'telemetry', 'polars') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
