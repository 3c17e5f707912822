"""The example sweep files about managers, and the words of the manual, hold what they promise."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconfig.flags import FlagsTable, arguments
from reconfig.managers import ManagerConfig, manager_from
from reconfig.presets import PresetEntry, expand
from reconfig.vocabularies import VOCABULARIES, vocabulary_from

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("manager-*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_manager_with_presets_that_its_server_can_be_told(path: Path, tmp_path: Path) -> None:
    sweep: dict[str, Any] = tomllib.loads(path.read_text())
    config: Any = msgspec.convert(sweep["server"]["manager"], ManagerConfig)
    manager = manager_from(config, state_dir=tmp_path)
    presets = expand(msgspec.convert(sweep["presets"], list[PresetEntry]))
    vocabulary = vocabulary_from(msgspec.convert(sweep["flags"], FlagsTable))
    assert all(arguments(preset, vocabulary) for preset in presets)
    words = manager.instructions(["--some-flag", "1"], {"A": "b"})
    assert "--some-flag 1" in words
    assert "A=b" in words


def test_the_systemd_table_in_the_ssh_example_is_one(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "manager-ssh.toml").read_text()
    table = text.split("# [server.manager]\n")[1].split("\n\n")[0]
    config: Any = msgspec.convert(tomllib.loads(table.replace("\n# ", "\n").removeprefix("# ")), ManagerConfig)
    assert manager_from(config, state_dir=tmp_path).kind == "systemd"


def test_the_manual_names_every_vocabulary_and_the_keys_of_every_manager() -> None:
    manual = (ROOT / "docs" / "reconfig.md").read_text()
    for name in VOCABULARIES:
        assert f"`{name}`" in manual
    for key in ("ready_timeout", "stop_timeout", "probe_timeout", "memory_timeout", "kill_orphans", "exec_start"):
        assert key in manual
