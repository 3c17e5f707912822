from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from loadgen.figures import Mark, MarkKind
from sessions.errors import SessionError
from sessions.events import CellKey
from sessions.points import Point
from sessions.recommend import recommend, weights_of
from sessions.reduce import reduce_all
from sessions.review import open_session
from sessions.state import SessionState
from sessions.verdict_tables import print_recommendation
from tests.sessions.made import make_session, truth


def state_of(folder: Path) -> SessionState:
    return open_session(folder).state


def test_the_truth_is_found(tmp_path: Path) -> None:
    found = recommend(state_of(make_session(tmp_path, contexts=(60, 4096), concurrencies=(1, 32))))
    assert found.policy == {
        Point(60, 1): "b16t4-w2048",
        Point(60, 32): "b8t4-w2048",
        Point(4096, 1): "b16t4-w2048",
        Point(4096, 32): "b8t4-w2048",
    }
    assert found.overall == "b8t4-w2048"
    best = found.standings[0]
    assert best.interval is not None
    assert best.interval.lo < 170 / 80 < best.interval.hi
    assert (best.points, best.of) == (4, 4)
    assert "against none over 4 of 4 cells" in found.why


def test_what_cannot_be_told_apart_is_said(tmp_path: Path) -> None:
    folder = make_session(tmp_path, speed=lambda p, x, c: 80.0 if p == "none" else 170.0, noise=0.02)
    found = recommend(state_of(folder))
    speculating = {"b8t4-w2048", "b16t4-w2048"}
    assert all({c.preset, *c.equal} == speculating for c in found.choices)
    assert {found.overall, *found.equal} == speculating
    assert found.headline.startswith(
        f"run {found.overall}, or as well {found.equal[0]}, not distinguishable from it: +"
    )


def test_weights_decide(tmp_path: Path) -> None:
    state = state_of(make_session(tmp_path))
    assert recommend(state).overall == "b8t4-w2048"
    assert recommend(state, weights=weights_of(["1024x1=20", "4096x1=20"])).overall == "b16t4-w2048"
    with pytest.raises(SessionError, match="no such cell"):
        recommend(state, weights={(7, 7): 1.0})
    with pytest.raises(SessionError, match="CONTEXTxCONCURRENCY=WEIGHT"):
        weights_of(["4096=3"])
    with pytest.raises(SessionError, match="allowed: throughput, per-user"):
        recommend(state, by="luck")


def test_voided_and_failed_cells_do_not_vote(tmp_path: Path) -> None:
    def marks(key: CellKey) -> tuple[Mark, ...]:
        wrong = (key.preset, key.context, key.concurrency) == ("b16t4-w2048", 1024, 1)
        return (Mark(MarkKind.DIVERGED, "text differs"),) if wrong else ()

    folder = make_session(
        tmp_path, marks=marks, speed=lambda p, x, c: None if (p, x, c) == ("b8t4-w2048", 4096, 8) else truth(p, x, c)
    )
    found = recommend(state_of(folder))
    assert found.policy[Point(1024, 1)] == "b8t4-w2048"
    assert found.policy[Point(4096, 8)] == "b16t4-w2048"
    reasons = {name: why for c in found.choices for name, why in c.without_vote}
    assert reasons == {"b16t4-w2048": "diverged: text differs", "b8t4-w2048": "failed: out of memory"}
    standing = {s.preset: s for s in found.standings}
    assert standing["b8t4-w2048"].points == standing["b16t4-w2048"].points == 3
    assert "over 2 of 4 cells" in found.why  # those that all candidates share
    assert any("has no vote in" in words for words in found.warnings)


def test_nobody_wins_by_what_others_were_not_measured_at(tmp_path: Path) -> None:
    folder = make_session(tmp_path, speed=lambda p, x, c: None if p == "b16t4-w2048" and c != 1 else truth(p, x, c))
    found = recommend(state_of(folder))
    standing = {s.preset: s for s in found.standings}["b16t4-w2048"]
    assert (standing.points, standing.candidate) == (2, False)
    assert standing.ratio is not None
    assert standing.ratio > 2.2  # of its own two cells, where it is the best
    assert found.overall == "b8t4-w2048"
    assert "over 4 of 4 cells" in found.why


def test_of_nothing_nothing_is_recommended(tmp_path: Path) -> None:
    found = recommend(reduce_all([]))
    assert (found.overall, found.choices) == (None, ())
    half = recommend(state_of(make_session(tmp_path, last_cells=2)))
    assert half.overall == "none"
    out = StringIO()
    print_recommendation(found, out)
    assert "no recommendation" in out.getvalue()


def test_the_table_says_it(tmp_path: Path) -> None:
    out = StringIO()
    print_recommendation(recommend(state_of(make_session(tmp_path)), by="per-user"), out)
    text = out.getvalue()
    assert text.startswith("run b8t4-w2048")
    assert "policy by per-user: context x concurrency -> preset" in text
    assert "b16t4-w2048 passed" not in text
