from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from reconfig.loads import LoadMemory
from reconfig.presets import Proof
from sessions import events as ev
from sessions.estimate import plan_estimate
from sessions.logread import read_events
from sessions.notify import MOST_AT_ONCE, Notice, Notifier, notice_of, terminal_notice
from sessions.reduce import reduce, reduce_all
from sessions.remaining import remaining_s
from sessions.state import SessionState
from sessions.sweep import parse_sweep
from tests.sessions.made import make_session

NOTICE = Notice(event="finished", words="done", label="x", session="s", folder="/f", at="")


async def told(command: list[str], timeout_s: float = 10.0, times: int = 1) -> list[str]:
    trouble: list[str] = []
    notifier = Notifier(command, timeout_s, trouble.append)
    for _ in range(times):
        notifier.tell(NOTICE)
    await notifier.close()
    return trouble


async def test_the_program_gets_json_on_its_standard_input(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    assert await told([sys.executable, "-c", script, str(tmp_path / "got")]) == []
    assert msgspec.json.decode((tmp_path / "got").read_bytes(), type=Notice) == NOTICE


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/bin/false"], "ended with status 1"),
        (["/no/such/program"], "cannot be started"),
        (["/bin/sleep", "60"], "did not end within 0.2 s and was ended"),
        (["/bin/sh", "-c", "trap '' TERM; sleep 60 & wait"], "was ended"),
    ],
)
async def test_a_program_that_fails_or_hangs_changes_nothing(command: list[str], words: str) -> None:
    (trouble,) = await told(command, 0.2 if "ended" in words and "status" not in words else 10.0)
    assert words in trouble


async def test_one_that_does_not_read_is_no_trouble() -> None:
    assert await told(["/bin/true"]) == []
    assert await told([]) == []


async def test_not_more_than_some_at_once() -> None:
    trouble = await told(["/bin/sleep", "0.2"], times=MOST_AT_ONCE + 2)
    assert len(trouble) == 2
    assert "too slow" in trouble[0]


def test_what_is_told(tmp_path: Path) -> None:
    state = SessionState()
    notices = []
    for event in read_events(make_session(tmp_path)).events:
        state = reduce(state, event)
        if (notice := notice_of(event, state, "/f")) is not None:
            notices.append(notice)
    assert [(n.event, n.cells_measured, n.cells, n.simulated) for n in notices] == [("finished", 36, 36, True)]
    failed = ev.PresetProved(t=1.0, proof=Proof(preset="b8t4-w2048", in_effect=False, failure="window is None"))
    notice = notice_of(failed, reduce(state, failed), "/f")
    assert notice is not None
    assert (notice.event, notice.preset) == ("preset-failed", "b8t4-w2048")
    assert "window is None" in notice.words


def test_the_terminal_is_told_safely() -> None:
    assert terminal_notice("done\x1b]0;evil\x07\n") == "\a\x1b]9;done]0;evil\x07"


def test_what_remains_is_estimated_from_what_was_seen(tmp_path: Path) -> None:
    events = read_events(make_session(tmp_path, repeats=1, last_cells=5, end=False)).events
    state = reduce_all(events)
    found = remaining_s(state)
    assert found is not None
    # 3 s a cell: the running one (mostly done), 2 more of this preset, 4 of the next, and its restart of 12.5 s
    assert 6 * 3 + 12.5 <= found <= 7 * 3 + 12.5
    assert remaining_s(reduce(state, ev.SessionEnded(t=state.t, status="stopped"))) is None


def test_nothing_is_estimated_of_nothing(tmp_path: Path) -> None:
    events = read_events(make_session(tmp_path, repeats=1)).events
    assert remaining_s(SessionState()) is None
    begun = reduce_all(events[:1])
    assert remaining_s(begun) is None
    assert remaining_s(replace(begun, cell_s_expected=10.0)) == 12 * 10.0 + 3 * 12.0
    assert remaining_s(replace(begun, cell_s_expected=10.0, load_s_expected=None)) is None
    assert remaining_s(replace(begun, cell_s_expected=10.0, restarts=False)) == 12 * 10.0


def test_a_start_that_failed_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    begun = reduce_all(read_events(make_session(tmp_path, repeats=1)).events[:1])
    begun = replace(begun, cell_s_expected=10.0, load_s_expected=300.0)
    names = list(begun.presets)
    failed = reduce(begun, ev.PresetProved(t=1.0, proof=Proof(preset=names[0], in_effect=False, took_s=2.0)))
    cells = sum(1 for c in failed.cells.values() if c.status in ("waiting", "running"))
    assert remaining_s(failed) == cells * 10.0 + len(names) * 300.0
    good = reduce(failed, ev.PresetProved(t=9.0, proof=Proof(preset=names[1], in_effect=True, took_s=200.0)))
    assert remaining_s(good) == cells * 10.0 + (len(names) - 1) * 200.0


def test_evals_take_as_long_as_their_sets_are(tmp_path: Path) -> None:
    def seconds(coding: str, kind: str) -> list[float | None]:
        sweep = parse_sweep(SWEEP.replace("core-5", coding), "sweep.toml")
        memory = LoadMemory(tmp_path / "loads.json")
        return [
            s.seconds for s in plan_estimate(sweep, tmp_path / "none", memory=memory).steps if s.words.startswith(kind)
        ]

    five, forty = seconds("core-5", "coding"), seconds("core-40", "coding")
    assert len(five) == len(forty) == 2
    assert [f / 8 for f in forty if f] == pytest.approx([f for f in five if f])
    assert seconds("no-such-set", "coding") == [None, None]
    # 5 answers of about 600 tokens against 16 texts of at most 256
    (check, _) = seconds("core-5", "lossless")
    assert check == pytest.approx((five[0] or 0) * (16 * 256) / (5 * 600))


SWEEP = """
label = "night"
[server]
base_url = "http://127.0.0.1:1"
model = "kimi-k2.6"
[server.manager]
kind = "systemd"
unit = "sglang.service"
arguments = "SGLANG_EXTRA_ARGS"
[flags]
vocabulary = "ddtree-29907"
[reference]
name = "none"
[[presets]]
algorithm = "DDTREE"
budget = 8
topk = 4
[matrix]
contexts = [1024, 4096]
concurrency = [1, 8]
max_tokens = 512
repeats = 2
[evals]
coding = "core-5"
lossless_prompts = 16
"""


def test_a_plan_says_how_long_it_takes(tmp_path: Path) -> None:
    sweep = parse_sweep(SWEEP, "sweep.toml")
    memory = LoadMemory(tmp_path / "loads.json")
    unseen = plan_estimate(sweep, tmp_path / "none", memory=memory)
    assert unseen.unknown == 2  # two restarts that this machine never saw
    assert unseen.guessed_s == unseen.total_s > 0
    memory.remember("kimi-k2.6", "127.0.0.1", 300.0)  # as the one that restarts the server does: by the URL's host
    make_session(tmp_path / "sessions", noise=0.0)
    found = plan_estimate(sweep, tmp_path / "sessions", memory=memory)
    assert (found.unknown, found.guessed_s) == (0, 0.0)
    words = [s.words for s in found.steps]
    assert len(words) == 2 * (1 + 1 + 1 + 8)
    assert words[0] == "put none in effect"
    assert found.steps[0].seconds == 300.0
    assert found.total_s == pytest.approx(sum(s.seconds or 0 for s in found.steps))
    assert found.total_s > 600
