"""Every sweep file that is shipped or shown can be read as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sessions.sweep import load_sweep, parse_sweep

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/*.toml")), ids=lambda p: p.name)
def test_an_example_is_a_good_sweep(path: Path):
    sweep, text = load_sweep(path)
    assert sweep.expanded() and text.startswith("#")


def test_the_campaign_has_its_ten_presets():
    sweep, _ = load_sweep(ROOT / "examples" / "kimi-k26-rtx6000.toml")
    names = [p.name for p in sweep.expanded()]
    assert names[0] == "none" and len(names) == 10
    assert {"b8t4-w2048", "b16t4-wnone", "b12t6-w2048", "dflash-k8-w2048"} <= set(names)


def test_the_readme_shows_a_good_sweep():
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(parse_sweep(shown, "README.md").expanded()) == 9
