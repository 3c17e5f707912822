"""The scenarios: what the server does, what is asked of it, and which marks must and must not follow."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadgen.figures import MarkKind
from loadgen.spec import Arrival, ClosedLoop, Poisson, Workload

TREE = (
    "--speculative-algorithm",
    "DDTREE",
    "--speculative-ddtree-budget",
    "8",
    "--speculative-ddtree-topk",
    "4",
    "--speculative-draft-window-size",
    "2048",
    "--speculative-draft-model-path",
    "models/drafter",
)


@dataclass(frozen=True)
class Scenario:
    """One cell and its surroundings.

    Attributes:
        name: its name in the table.
        flags: of the server.
        faults: set after the warm-up of the server, before the cell.
        rounds: how often the same cell is asked; the last one is measured.
        restart: kill the server in mid-cell and start it again.
        marks: those that must be there.
        may: those that may be there, because they depend on chance.
        unmeasured: no token count comes, so that there must be no headline.
        shrinks: whether a short version asks for fewer requests.
        duration_s: how long requests are started, instead of a number of them.
    """

    name: str
    flags: tuple[str, ...] = TREE
    faults: tuple[str, ...] = ()
    context: int = 120
    concurrency: int = 4
    requests: int = 32
    duration_s: float | None = None
    start_rate_limit: float | None = None
    max_tokens: int = 96
    temperature: float = 0.0
    workload: Workload = field(default_factory=Workload)
    arrival: Arrival = field(default_factory=ClosedLoop)
    speed: float = 4.0
    rounds: int = 1
    restart: bool = False
    speculative: bool = True
    marks: frozenset[MarkKind] = frozenset()
    may: frozenset[MarkKind] = frozenset()
    unmeasured: bool = False
    shrinks: bool = True

    def asked(self, share: float) -> int:
        """How many requests a version of this share asks: five a slot at least, unless few are the point."""
        return max(5 * self.concurrency, round(share * self.requests)) if self.shrinks else self.requests


SCENARIOS = (
    Scenario(name="plain, no speculation", flags=(), speculative=False, max_tokens=64),
    Scenario(name="several tokens a chunk"),
    Scenario(name="reasoning", flags=(*TREE, "--reasoning-parser", "kimi_k2"), max_tokens=128),
    Scenario(
        name="error event in half of the streams",
        faults=("stream-error=0.5",),
        requests=48,
        marks=frozenset({MarkKind.ERRORS}),
    ),
    Scenario(
        name="a fifth cut off, cleanly", faults=("truncate=0.2",), requests=48, marks=frozenset({MarkKind.ERRORS})
    ),
    Scenario(name="no usage", faults=("no-usage",), marks=frozenset({MarkKind.UNMEASURED}), unmeasured=True),
    Scenario(
        name="queue: 8 asked, 4 served",
        flags=(*TREE, "--max-running-requests", "4"),
        concurrency=8,
        requests=48,
        marks=frozenset({MarkKind.QUEUED}),
    ),
    Scenario(name="prefix cache on, same prompts again", context=512, rounds=2, marks=frozenset({MarkKind.CACHE_HITS})),
    Scenario(
        name="prefix cache off, same prompts again", flags=(*TREE, "--disable-radix-cache"), context=512, rounds=2
    ),
    Scenario(
        name="mostly ramp: long prompts, short answers",
        context=4096,
        concurrency=8,
        requests=16,
        max_tokens=24,
        shrinks=False,
        marks=frozenset({MarkKind.SHORT_STEADY}),
        may=frozenset({MarkKind.QUEUED}),
    ),
    Scenario(
        name="answers end early",
        max_tokens=4096,
        speed=16.0,
        requests=24,
        marks=frozenset({MarkKind.SHORT_OUTPUT}),
    ),
    Scenario(
        name="server killed and restarted in mid-cell",
        duration_s=6.0,
        start_rate_limit=40.0,
        restart=True,
        marks=frozenset({MarkKind.ERRORS}),
        may=frozenset({MarkKind.SHORT_STEADY, MarkKind.COLD, MarkKind.SHORT_OUTPUT, MarkKind.UNDER_RUN}),
    ),
    Scenario(name="sampled, temperature 0.8", temperature=0.8),
    Scenario(name="open loop, Poisson, 8 a second", arrival=Poisson(rate=8.0), concurrency=32, duration_s=5.0),
    Scenario(name="conversations of three turns", workload=Workload(turns=3)),
)
