"""The live screen's layout at every size."""

from __future__ import annotations

import pytest

from tui.layout import ZOOMABLE, Needs, Rect, arrange


def overlaps(places: dict[str, Rect]) -> list[tuple[str, str]]:
    items = list(places.items())
    return [
        (a, b)
        for i, (a, p) in enumerate(items)
        for b, q in items[i + 1 :]
        if p.x < q.x + q.width and q.x < p.x + p.width and p.y < q.y + q.height and q.y < p.y + p.height
    ]


@pytest.mark.parametrize("proving", [False, True])
@pytest.mark.parametrize("gpus", [0, 1, 8, 16])
@pytest.mark.parametrize("contexts", [1, 4, 9])
def test_panels_stay_inside_and_apart_at_every_size(contexts: int, gpus: int, proving: bool) -> None:
    needs = Needs(contexts=contexts, columns=4, presets=9, preset_lines=3, gpus=gpus, proving=proving)
    for width in (1, 20, 49, 50, 64, 79, 80, 99, 100, 120, 139, 140, 160, 400):
        for height in (1, 5, 11, 12, 15, 20, 23, 24, 30, 36, 40, 45, 100):
            places = arrange(width, height, needs)
            assert overlaps(places) == [], (width, height)
            for name, p in places.items():
                assert p.width >= 1, (name, width, height)
                assert p.height >= 1, (name, width, height)
                assert p.x + p.width <= width, (name, width, height)
                assert p.y + p.height <= height, (name, width, height)
            if "small" not in places:
                assert {"head", "matrix", "keys"} <= places.keys()


def test_80x24_is_complete() -> None:
    places = arrange(80, 24, Needs(preset_lines=2))
    assert places.keys() == {"head", "matrix", "now", "presets", "gpus", "events", "keys"}
    assert places["gpus"].height == 9
    assert places["matrix"].height == 6
    assert places["events"].height >= 3


def test_while_a_preset_is_put_in_effect_its_steps_take_the_room_of_the_rates() -> None:
    places = arrange(80, 24, Needs(proving=True, steps=8))
    assert "now" not in places
    assert places["steps"].height >= 7
    assert places["matrix"].height == 6


def test_160x45_has_everything() -> None:
    places = arrange(160, 45, Needs())
    assert places.keys() >= {"matrix", "now", "strip", "histogram", "gpus", "events", "log", "presets"}
    assert places["matrix"].height == 10


def test_a_terminal_too_small_says_so_and_nothing_else() -> None:
    assert arrange(20, 5, Needs()).keys() == {"small"}


@pytest.mark.parametrize("name", ZOOMABLE)
def test_a_maximised_panel_has_all_but_head_and_keys(name: str) -> None:
    places = arrange(80, 24, Needs(zoomed=name))
    assert places.keys() == {"head", "keys", name}
    assert places[name] == Rect(0, 2, 80, 21)
