"""Which preset to run: for each cell the best one and those not distinguishable from it, one overall, and the policy.

Only cells vote that have figures and no mark that voids them. Overall is the geometric mean of ratios to the
reference, weighted as the operator says, over the matrix points at which every candidate votes, so that nobody wins by
what others were not measured at. Candidates are the presets that vote at three quarters or more of the points that the
reference votes at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from loadgen.figures import Interval
from sessions.errors import SessionError
from sessions.points import (
    PER_USER,
    THROUGHPUT,
    Estimate,
    Metric,
    Point,
    PointCells,
    Ratio,
    geometric_mean,
    points_of,
    ratio,
    verdict,
)
from sessions.state import SessionState

CANDIDATE_SHARE = 0.75
"""Share of the reference's points at which a preset must vote to be recommended overall."""

BY: dict[str, Metric] = {"throughput": THROUGHPUT, "per-user": PER_USER}
"""What a preset can be recommended for."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The best preset at one matrix point.

    Attributes:
        preset: the best; `None` where nothing votes.
        value, interval: its figure.
        equal: presets that are not distinguishable from it, best first.
        gain: ratio to the reference, with its interval, where the reference votes.
        without_vote: (preset, reason) of those that do not vote.
        votes: presets that vote; with one, being the best says nothing.
    """

    point: Point
    preset: str | None
    value: float | None = None
    interval: Interval | None = None
    equal: tuple[str, ...] = ()
    gain: float | None = None
    gain_interval: Interval | None = None
    without_vote: tuple[tuple[str, str], ...] = ()
    votes: int = 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One preset over the whole matrix.

    Attributes:
        ratio: geometric mean of its ratios to the reference, over the shared points for a candidate, over its own
            for others; `interval` its 95 % interval.
        points: matrix points where it votes beside the reference; `of`: all there are.
        best_at: of the points its ratio is over, those where it is the best or equal to the best.
        candidate: it may be recommended overall.
    """

    preset: str
    ratio: float | None
    interval: Interval | None
    points: int
    of: int
    best_at: int
    candidate: bool


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        by: "throughput" or "per-user".
        overall: the preset to run where only one can be had; `equal` those not distinguishable from it.
        why: in a sentence.
        warnings: reasons to look twice before following it.
    """

    by: str
    reference: str | None
    overall: str | None
    equal: tuple[str, ...]
    why: str
    choices: tuple[Choice, ...]
    standings: tuple[Standing, ...]
    warnings: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def headline(self) -> str:
        """The recommendation in a sentence, as careful as the figures are."""
        if self.overall is None:
            return f"no recommendation: {self.why}"
        others = f", or as well {' or '.join(self.equal)}, not distinguishable from it" if self.equal else ""
        return f"run {self.overall}{others}: {self.why}"

    @property
    def policy(self) -> dict[Point, str]:
        """The policy: matrix point -> preset, where one can be named."""
        return {c.point: c.preset for c in self.choices if c.preset is not None}


def recommend(
    state: SessionState, *, by: str = "throughput", weights: Mapping[tuple[int, int], float] | None = None
) -> Recommendation:
    """Recommends presets of a session.

    Args:
        state: the session.
        by: "throughput" (all users together) or "per-user" (speed of one stream).
        weights: how much a (context, concurrency) counts; 1 for those not named.

    Raises:
        SessionError: an unknown `by`, or a weight for a point that is not in the matrix.
    """
    if by not in BY:
        raise SessionError(f"{by!r} is nothing to recommend by; allowed: {', '.join(BY)}")
    metric = BY[by]
    found = points_of(state)
    points = sorted({p for _, p in found})
    if weights and (strange := set(weights) - {(p.context, p.concurrency) for p in points}):
        named = ", ".join(f"{x}x{c}" for x, c in sorted(strange))
        raise SessionError(f"weights for {named}: the session has no such cell")
    reference = state.reference or next(iter(state.presets), None)
    choices = tuple(_choice(state, point, found, metric, reference) for point in points)
    ratios = {name: _ratios(name, reference, points, found, metric) for name in state.presets}
    most = max((len(r) for r in ratios.values()), default=0)
    candidates = [name for name, r in ratios.items() if r and len(r) >= most * CANDIDATE_SHARE]
    shared = [p for p in points if all(p in ratios[name] for name in candidates)] if candidates else []
    if not shared:  # nothing that all have: only those that have everything the reference has
        candidates = [name for name in candidates if len(ratios[name]) == most]
        shared = [p for p in points if all(p in ratios[name] for name in candidates)] if candidates else []
    standings = []
    for name in state.presets:
        own = ratios[name]
        counted = {p: own[p] for p in shared} if name in candidates else own
        mean = Ratio(1.0, Interval(1.0, 1.0), 0.0) if name == reference and own else _weighted(counted, weights or {})
        standings.append(
            Standing(
                preset=name,
                ratio=None if mean is None else mean.value,
                interval=None if mean is None else mean.interval,
                points=len(own),
                of=len(points),
                best_at=sum(1 for c in choices if c.point in counted and name in (c.preset, *c.equal)),
                candidate=name in candidates,
            )
        )
    standings.sort(key=lambda s: (not s.candidate, -(s.ratio or 0.0)))
    overall, equal, why = _overall(standings, shared, found, metric, reference, weights or {})
    return Recommendation(
        by=by,
        reference=reference,
        overall=overall,
        equal=equal,
        why=why,
        choices=choices,
        standings=tuple(standings),
        warnings=tuple(_warnings(state, choices, overall)),
        simulated=state.simulated,
    )


def _votes(name: str, point: Point, found: Mapping[tuple[str, Point], PointCells], metric: Metric) -> Estimate | None:
    cells = found.get((name, point))
    return None if cells is None or cells.void else cells.estimate(metric)


def _choice(
    state: SessionState,
    point: Point,
    found: Mapping[tuple[str, Point], PointCells],
    metric: Metric,
    reference: str | None,
) -> Choice:
    votes = {n: e for n in state.presets if (e := _votes(n, point, found, metric)) is not None}
    without = tuple((n, c.void) for n in state.presets if (c := found.get((n, point))) is not None and c.void)
    if not votes:
        return Choice(point=point, preset=None, without_vote=without)
    ranked = sorted(votes, key=lambda n: -votes[n].value)
    best = ranked[0]
    equal = tuple(n for n in ranked[1:] if _not_worse(votes[n], votes[best]))
    gain = ratio(votes[best], votes[reference]) if reference in votes and reference != best else None
    return Choice(
        point=point,
        preset=best,
        value=votes[best].value,
        interval=votes[best].interval,
        equal=equal,
        gain=(gain and gain.value) or None,
        gain_interval=gain.interval if gain else None,
        without_vote=without,
        votes=len(votes),
    )


def _not_worse(other: Estimate, best: Estimate) -> bool:
    """Whether a preset cannot be told apart from the best (also when nothing is known of the scatter)."""
    return verdict(ratio(other, best), higher_is_better=True) in ("same", "unknown")


def _ratios(
    name: str,
    against: str | None,
    points: list[Point],
    found: Mapping[tuple[str, Point], PointCells],
    metric: Metric,
) -> dict[Point, Ratio]:
    ratios = {}
    for point in points:
        own = _votes(name, point, found, metric)
        base = None if against is None else _votes(against, point, found, metric)
        if own is not None and base is not None and (r := ratio(own, base)) is not None:
            ratios[point] = r
    return ratios


def _weighted(ratios: Mapping[Point, Ratio], weights: Mapping[tuple[int, int], float]) -> Ratio | None:
    return geometric_mean([(r, weights.get((p.context, p.concurrency), 1.0)) for p, r in ratios.items()])


def _overall(
    standings: Sequence[Standing],
    shared: list[Point],
    found: Mapping[tuple[str, Point], PointCells],
    metric: Metric,
    reference: str | None,
    weights: Mapping[tuple[int, int], float],
) -> tuple[str | None, tuple[str, ...], str]:
    """Chooses the best candidate; returns it, those equal to it over the shared points, and why."""
    candidates = [s for s in standings if s.candidate and s.ratio is not None]
    if not candidates:
        return None, (), f"nothing can be held against the reference {reference!r}: no cell of both has a vote"
    best = candidates[0]
    equal = []
    for other in candidates[1:]:
        mean = _weighted(_ratios(other.preset, best.preset, shared, found, metric), weights)
        if verdict(mean, higher_is_better=True) in ("same", "unknown"):
            equal.append(other.preset)
    gain = f"{((best.ratio or 1.0) - 1) * 100:+.1f} %"
    interval = ""
    if best.interval is not None and best.preset != reference:
        interval = f" ({(best.interval.lo - 1) * 100:+.1f} to {(best.interval.hi - 1) * 100:+.1f} %)"
    over = f"over {len(shared)} of {best.of} cells"
    return best.preset, tuple(equal), f"{gain}{interval} against {reference} {over}, best or equal in {best.best_at}"


def _best_share(state: SessionState, problem_set: str) -> float:
    evals = [e for p in state.presets.values() for e in p.evals if e.problem_set == problem_set]
    return max((e.pass_at_1 or 0.0 for e in evals), default=0.0)


def _warnings(state: SessionState, choices: tuple[Choice, ...], overall: str | None) -> list[str]:
    words = []
    silent = [c.point.text for c in choices if c.preset is None]
    if silent:
        words.append(f"no preset has a vote in {', '.join(silent)}")
    if overall is not None:
        preset = state.presets[overall]
        lacking = [f"{c.point.text} ({reason})" for c in choices for name, reason in c.without_vote if name == overall]
        if lacking:
            words.append(f"{overall} has no vote in {'; '.join(lacking)}")
        words += [
            f"{overall}, {e.problem_set}: {e.words}, a smaller share than under another preset"
            for e in preset.evals
            if (e.pass_at_1 or 0.0) < _best_share(state, e.problem_set)
        ]
        if preset.lossless is not None and preset.lossless.diverged:
            words.append(f"the text of {overall} differs from that of {preset.lossless.reference}")
        words += [f"{overall}: suspect the {s.suspect}: {s.words}" for s in state.suspicions if s.preset == overall]
    return words


def weights_of(texts: Sequence[str]) -> dict[tuple[int, int], float]:
    """Reads weights as the command line gives them: `CONTEXTxCONCURRENCY=WEIGHT`.

    Raises:
        SessionError: one is not written so, or is negative.
    """
    weights = {}
    for text in texts:
        found = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*=\s*(\d+(?:\.\d+)?)\s*", text)
        if found is None:
            raise SessionError(f"--weight {text!r}: write CONTEXTxCONCURRENCY=WEIGHT, as 4096x32=3")
        weights[int(found[1]), int(found[2])] = float(found[3])
    return weights
