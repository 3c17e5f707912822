"""The sweep file's reading: every fault at once, each with its line."""

from __future__ import annotations

import pytest

from sessions.errors import SweepFileError
from sessions.sweep import Seconds, Sweep, parse_sweep, sweep_from_json, sweep_to_json
from sessions.toml_lines import key_lines, line_of

GOOD = """\
label = "kimi"

[server]
base_url = "http://127.0.0.1:30000"
api_key_env = "SGLANG_API_KEY"

[server.manager]
kind = "systemd"
unit = "sglang.service"
arguments = "EXTRA"
ready_timeout = "15m"

[flags]
vocabulary = "ddtree"

[reference]
name = "none"

[[presets]]
algorithm = "DDTREE"
budget_topk = [[8, 4], [16, 4]]
window = [2048, "none"]

[matrix]
contexts = [60, 1024]
concurrency = [1, 8]
duration = "1m30s"
"""


def test_a_good_file_gives_its_presets_with_the_reference_first():
    sweep = parse_sweep(GOOD, "good.toml")
    assert [p.name for p in sweep.expanded()] == ["none", "b8t4-w2048", "b8t4-wnone", "b16t4-w2048", "b16t4-wnone"]
    assert sweep.reference_name() == "none"
    assert sweep.matrix.duration == 90.0


def test_a_sweep_survives_the_session_file():
    sweep = parse_sweep(GOOD, "good.toml")
    assert sweep_from_json(sweep_to_json(sweep)) == sweep


def test_all_faults_are_told_at_once_with_their_lines():
    text = GOOD.replace("contexts = [60, 1024]", 'context = [60]\nconcurency = [1]\nmax_tokens = "many"')
    text = text.replace('unit = "sglang.service"\n', "")
    with pytest.raises(SweepFileError) as caught:
        parse_sweep(text, "bad.toml")
    faults = caught.value.faults
    assert any(f.startswith("line 24: matrix.context: unknown key") and '"contexts"' in f for f in faults)
    assert any(f.startswith("line 25: matrix.concurency: unknown key") and '"concurrency"' in f for f in faults)
    assert any(f.startswith("line 26: matrix.max_tokens:") and '"many"' in f for f in faults)
    assert any("server.manager" in f and '"unit" is missing' in f for f in faults)
    assert str(caught.value).count("bad.toml") == len(faults) == 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[60, 1024]", "[60, 60]", "line 25: matrix.contexts: a value stands twice"),
        ("[60, 1024]", "[0]", "line 25: matrix.contexts"),
        ("[60, 1024]", "[]", "line 25: matrix.contexts"),
        ('name = "none"', 'name = "b9"', 'no preset is called "b9"'),
        ('vocabulary = "ddtree"', 'vocabulary = "mainline"', "cannot be expressed"),
        ('vocabulary = "ddtree"', 'vocabulary = "klingon"', "not known"),
        ('kind = "systemd"', 'kind = "sytemd"', 'one of "systemd"'),
        ('"http://127.0.0.1:30000"', '"127.0.0.1:30000"', "line 4: server.base_url"),
        ('"1m30s"', '"soon"', "line 27: matrix.duration"),
        ("budget_topk = [[8, 4], [16, 4]]", "budget_topk = [[8, 4], [8, 4], [0, 4]]", "presets"),
    ],
)
def test_impossible_values_name_key_and_line(old: str, new: str, words: str):
    with pytest.raises(SweepFileError) as caught:
        parse_sweep(GOOD.replace(old, new), "bad.toml")
    assert words in str(caught.value)


def test_a_broken_file_is_told_as_such():
    with pytest.raises(SweepFileError, match=r"bad\.toml: is not TOML: .*line 1"):
        parse_sweep("label = \n", "bad.toml")


def test_durations_are_seconds():
    assert isinstance(parse_sweep(GOOD, "x").load.stall_timeout, Seconds)


def test_lines_are_found_through_multi_line_values():
    text = 'a = [\n  1,\n  2, # b = 3\n]\ns = """\nc = 1\n"""\n[t]\nd.e = 1\n[[t.u]]\nf = 1\n[[t.u]]\nf = 2\n'
    lines = key_lines(text)
    assert lines[("a",)] == 1
    assert ("b",) not in lines and ("c",) not in lines
    assert lines[("t", "d", "e")] == 9
    assert lines[("t", "u", 1, "f")] == 13
    assert line_of(lines, ("t", "u", 1, "g")) == 12


def test_a_sweep_without_presets_is_refused():
    with pytest.raises(SweepFileError, match="no preset is asked for"):
        parse_sweep('[server]\nbase_url = "http://h"\n', "bad.toml")


def test_types_are_what_they_say():
    assert isinstance(parse_sweep(GOOD, "x"), Sweep)
