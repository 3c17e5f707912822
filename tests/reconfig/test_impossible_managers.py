"""Impossible `[server.manager]` tables are refused with the sweep file, in words, and kill no engine later."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconfig.managers import manager_from
from sessions.errors import SweepFileError
from sessions.sweep import parse_sweep

HEAD = """\
[server]
base_url = "http://127.0.0.1:30000"

[server.manager]
"""
TAIL = """
[[presets]]
algorithm = "NONE"
"""
SYSTEMD = 'kind = "systemd"\nunit = "sglang"\n'
PROCESS = 'kind = "process"\n'
COMMAND = 'kind = "command"\nstop = ["docker", "stop", "x"]\n'
START = 'start = ["docker", "run", "x", "{arguments}"]\n'
ARGUMENTS = 'arguments = "ARGS"\n'


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (SYSTEMD, "one of two"),
        (SYSTEMD + ARGUMENTS + 'exec_start = ["/bin/server"]', "one of two"),
        (SYSTEMD + "exec_start = []", "exec_start = []"),
        (SYSTEMD + 'exec_start = ["/bin/server {arguments}"]', "one of its own"),
        (SYSTEMD + 'arguments = "$ARGS"', "without $"),
        (SYSTEMD + ARGUMENTS + "systemctl = []", "systemctl = []"),
        (SYSTEMD + ARGUMENTS + "journalctl = []", "journalctl = []"),
        (SYSTEMD + ARGUMENTS + 'write = [""]', "write"),
        (SYSTEMD + ARGUMENTS + 'systemctl = ["ssh", "gpu1", "systemctl"]', "journalctl does not"),
        (SYSTEMD + ARGUMENTS + 'dropin_dir = "~/.config"', "dropin_dir"),
        (SYSTEMD + ARGUMENTS + 'dropin_name = "50-spectop"', "dropin_name"),
        ('kind = "systemd"\nunit = ""\n' + ARGUMENTS, "unit"),
        ('kind = "systemd"\nunit = "a/b"\n' + ARGUMENTS, "unit"),
        (PROCESS + "command = []", "command = []"),
        (PROCESS + 'command = [" "]', "command"),
        (PROCESS + 'command = ["a\\u0000b"]', "null character"),
        (PROCESS + 'command = ["server", "x {arguments}"]', "one of its own"),
        (PROCESS + 'command = ["server"]\nenv = { HF_TOKEN = "hf-x" }', "HF_TOKEN: a session keeps"),
        (PROCESS + 'command = ["server"]\nenv = { "A=B" = "1" }', "can't be an environment variable"),
        (COMMAND + "start = []", "start = []"),
        (COMMAND + 'start = ["docker", "run", "x"]', "no place for a preset's flags"),
        (COMMAND + 'start = ["run", "{env}x", "{arguments}"]', "{env} must be an element"),
        (COMMAND.replace('["docker", "stop", "x"]', "[]") + START, "stop = []"),
        (COMMAND + START + "status = []", "status = []"),
        (COMMAND + START + "log = []", "log = []"),
        (COMMAND + START + 'start_timeout = "soon"', 'start_timeout: "soon" is not a duration'),
        ('kind = "manual"\nready_timeout = "an hour"', "ready_timeout"),
        ('kind = "manual"\nready_timeout = -5', "ready_timeout"),
        ('kind = "manual"\nready_timeout = nan', "ready_timeout"),
        ('kind = "manual"\nprobe_timeout = "0s"', "probe_timeout = 0s"),
        ('kind = "manual"\ncommand = [""]', "command"),
    ],
)
def test_it_is_refused_with_its_line_and_the_words(table: str, words: str) -> None:
    with pytest.raises(SweepFileError) as caught:
        parse_sweep(HEAD + table + TAIL, "bad.toml")
    [fault] = caught.value.faults
    assert fault.startswith("line 4: server.manager: ")
    assert words in fault


def test_every_fault_of_a_table_is_told_at_once() -> None:
    table = 'kind = "command"\nstart = []\nstop = []\nprobe_timeout = "soon"'
    with pytest.raises(SweepFileError) as caught:
        parse_sweep(HEAD + table + TAIL, "bad.toml")
    assert all(words in str(caught.value) for words in ("start = []", "stop = []", "probe_timeout"))


@pytest.mark.parametrize(
    "table",
    [
        SYSTEMD + ARGUMENTS,
        SYSTEMD + 'exec_start = ["/bin/server", "{arguments}", "--last"]',
        SYSTEMD + ARGUMENTS + "stop_timeout = 0",
        SYSTEMD + ARGUMENTS + 'systemctl = ["ssh", "g", "systemctl"]\n'
        'journalctl = ["ssh", "g", "journalctl"]\nwrite = ["ssh", "g"]',
        SYSTEMD + ARGUMENTS + 'systemctl = ["sudo", "-n", "systemctl"]\nwrite = ["sudo", "-n"]',
        PROCESS + 'command = ["bash", "-c", "exec server ${arguments} ${env}"]',
        COMMAND + START,
        COMMAND + 'start = ["ssh", "g", "start {quoted_arguments}"]',
        'kind = "manual"',
    ],
)
def test_a_table_that_can_be_meant_becomes_a_manager(table: str, tmp_path: Path) -> None:
    sweep = parse_sweep(HEAD + table + TAIL, "good.toml")
    assert manager_from(sweep.server.manager, state_dir=tmp_path).kind == sweep.server.manager.__struct_config__.tag
