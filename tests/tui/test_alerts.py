"""Which news wake an operator."""

from __future__ import annotations

from msgspec.structs import replace

from reconfig.presets import Preset
from sessions.state import PresetState, SessionState
from tui.alerts import alert_between

RUNNING = SessionState(
    session="s", label="kimi", presets={"b8": PresetState(preset=Preset(name="b8", algorithm="DDTREE"))}
)


def test_the_end_of_a_sweep_wakes_once():
    ended = replace(RUNNING, status="finished", end_words="4 of 4 cells measured")
    assert alert_between(RUNNING, ended) == "spectop: kimi finished, 4 of 4 cells measured"
    assert alert_between(ended, ended) is None


def test_a_preset_that_is_not_in_effect_wakes_once():
    lost = replace(RUNNING, presets={"b8": replace(RUNNING.presets["b8"], status="not-in-effect")})
    assert alert_between(RUNNING, lost) == "spectop: b8 is not in effect"
    assert alert_between(lost, lost) is None


def test_opening_a_session_wakes_nobody():
    ended = replace(RUNNING, status="failed")
    assert alert_between(SessionState(), ended) is None
    assert alert_between(replace(RUNNING, session="other"), ended) is None
