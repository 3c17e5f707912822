"""A label that claims settings is held against the server: a false one would live in every table for ever."""

from __future__ import annotations

import pytest

from reconfig.presets import Preset
from tui.bench_sweep import _false_label

RUNNING = Preset(name="x", algorithm="DDTREE", budget=8, topk=4, window=2048)


@pytest.mark.parametrize("label", ["budget=8 topk=4 window=2048", "nightly", "budget=8", "b8t4", "mybudget=9x"])
def test_a_true_label_or_one_that_claims_nothing_passes(label: str):
    assert _false_label(label, RUNNING) == ""


def test_a_false_label_is_told_with_what_runs():
    words = _false_label("budget=16 topk=4 window=none", RUNNING)
    assert words == "the label says budget 16, window none; the server runs budget 8, window 2048"
    assert "window 2048" in _false_label("window=2048", Preset(name="x", algorithm="NONE"))
