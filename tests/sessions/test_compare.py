from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from loadgen.figures import Mark, MarkKind
from sessions.compare import Side, compare, newcombe, open_side, share_of, worst_loss
from sessions.errors import SessionError, SessionNotFound
from sessions.events import CellKey
from sessions.review import open_session
from sessions.verdict_tables import print_comparison
from tests.sessions.made import PRESETS, make_session, truth

WIDE = {"contexts": (60, 1024, 4096, 8192), "concurrencies": (1, 8, 32, 64), "requests": 0, "progress": 0}


def side(folder: Path, preset: str | None = None) -> Side:
    return Side(open_session(folder), preset)


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_same_preset_twice_is_the_same(tmp_path: Path, repeats: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(2):
        a, b = (make_session(tmp_path, x, seed=10 * seed + i, repeats=repeats, **WIDE) for i, x in enumerate("ab"))  # type: ignore[arg-type]
        for says, n in compare(side(a), side(b)).counts.items():
            counts[says] = counts.get(says, 0) + n
    assert sum(counts.values()) == 96
    assert counts["same"] >= 0.95 * 96


def test_a_slower_server_is_worse(tmp_path: Path) -> None:
    a = make_session(tmp_path, "a", seed=1, **WIDE)  # type: ignore[arg-type]
    b = make_session(tmp_path, "b", seed=2, speed=lambda p, x, c: truth(p, x, c) * 0.95, **WIDE)  # type: ignore[arg-type]
    found = compare(side(a), side(b))
    assert found.counts.get("better", 0) == 0
    assert found.counts["worse"] >= 0.8 * 48
    (whole,) = [s for s in found.summary if s.metric == "throughput_tok_s"]
    assert whole.verdict == "worse"
    assert whole.interval is not None
    assert whole.interval.lo < 0.95 < whole.interval.hi
    assert 0.05 < worst_loss(found) < 0.12


def test_conditions_that_differ_are_said_first(tmp_path: Path) -> None:
    a = make_session(tmp_path, "a", repeats=1)
    b = make_session(
        tmp_path, "b", repeats=1, model="kimi-k2.7", driver="600", sweep=b'{"label": "b", "load": {"seed": 3}}'
    )
    found = compare(side(a), side(b))
    assert {d.what: (d.a, d.b) for d in found.conditions} == {
        "model": ("kimi-k2.6", "kimi-k2.7"),
        "driver": ("595.10", "600"),
        "load.seed": ("not set", "3"),
    }
    out = StringIO()
    print_comparison(found, out)
    text = out.getvalue()
    assert text.index("not measured alike") < text.index("cell by cell")
    assert "kimi-k2.7" in text
    assert "SIMULATED" in text


def test_two_presets_of_one_session(tmp_path: Path) -> None:
    make_session(tmp_path, "one")
    a, b = open_side(tmp_path, "one:none"), open_side(tmp_path, "one:b8t4-w2048")
    found = compare(a, b)
    assert found.counts == {"better": 4}
    assert {d.what for d in found.conditions} == {
        f"none / b8t4-w2048: {key}" for key in ("algorithm", "budget", "topk", "window")
    }
    cell = found.cells[0]
    acceptance = next(m for m in cell.metrics if m.metric == "acceptance_length")
    assert (acceptance.a, acceptance.ratio, acceptance.verdict) == (None, None, "unknown")


def test_what_cannot_be_paired_is_refused_or_listed(tmp_path: Path) -> None:
    a = make_session(tmp_path, "a", repeats=1, presets=PRESETS[:2])
    b = make_session(tmp_path, "b", repeats=1, presets=PRESETS[1:])
    found = compare(side(a), side(b))
    assert {c.preset_a for c in found.cells} == {"b8t4-w2048"}
    assert set(found.left_out) == {"preset none: only in A", "preset b16t4-w2048: only in B"}
    with pytest.raises(SessionError, match="share no preset"):
        compare(side(a, "none"), side(make_session(tmp_path, "c", presets=PRESETS[1:], repeats=1)))
    with pytest.raises(SessionNotFound, match="it has none, b8t4-w2048"):
        open_side(tmp_path, "a:nonsense")
    with pytest.raises(SessionNotFound):
        open_side(tmp_path, "nonsense")


def test_voided_cells_count_for_nothing(tmp_path: Path) -> None:
    def marks(key: CellKey) -> tuple[Mark, ...]:
        return (Mark(MarkKind.CLIENT_BOUND, "loop lag 9 ms"),) if key.concurrency == 8 else ()

    a = make_session(tmp_path, "a", seed=1)
    b = make_session(
        tmp_path, "b", seed=2, marks=marks, speed=lambda p, x, c: truth(p, x, c) * (0.5 if c == 8 else 1.0)
    )
    found = compare(side(a), side(b))
    assert sum(found.counts.values()) == 6
    assert [c.doubt for c in found.cells if c.point.concurrency == 8] == ["in B: client-bound: loop lag 9 ms"] * 6
    assert worst_loss(found) < 0.05


def test_pass_rates_have_newcombes_interval(tmp_path: Path) -> None:
    difference, interval = newcombe(48, 80, 56, 70)  # a worked example of the paper: 56/70 against 48/80
    assert difference == pytest.approx(0.2)
    assert (interval.lo, interval.hi) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    folder = make_session(tmp_path)
    rates = compare(side(folder, "none"), side(folder, "b16t4-w2048")).evals
    assert [(r.a, r.b, r.verdict) for r in rates] == [(1.0, 0.8, "same")]


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), (" 12.5 % ", 0.125), ("0.05", 0.05), ("0", 0.0)])
def test_shares(text: str, value: float) -> None:
    assert share_of(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "five", "nan", "-1%", "100%", "5"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(SessionError, match=r"write 5% or 0\.05"):
        share_of(text)
