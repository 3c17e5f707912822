"""The screens of one session beside the live one, with scripted sources and real session folders."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadgen.records import Outcome
from reconfig.presets import Preset, ProofStep
from sessions.commands import Command, Reply
from sessions.events import AnyEvent
from sessions.log import SavedText
from tests.tui import scripted as s
from tests.tui.piloting import panel_text, running, screen_text, until
from tests.tui.recorded import record, write_session
from tui.screens.add_preset import AddPreset
from tui.screens.ask import Ask
from tui.screens.cell import Cell
from tui.screens.presets import Presets


async def test_a_cell_shows_its_figures_marks_and_requests(tmp_path: Path) -> None:
    cell = s.key("b8t4-w2048", 60, 1)
    records = [record(cell, i) for i in range(8)] + [record(cell, 9, Outcome.HTTP_5XX)]
    folder = write_session(tmp_path / "a", s.mid_sweep(), records)
    async with running(s.Scripted.of(s.mid_sweep()), (120, 100), folder=folder) as (app, pilot):
        app.look(point=(60, 1))
        await pilot.press("enter")
        await until(pilot, lambda: "9 requests" in screen_text(app), "the requests")
        shown = screen_text(app)
        assert "60 tokens × 1 user" in shown
        assert "167.6 ±1.8 tok/s" in shown
        assert "few-samples: 16 requests: p99 is the maximum" in shown
        assert "time to first token, ms · 8 values" in shown
        assert "accepted drafts a step" in shown
        assert "(fewer than 100 values: no p99)" in shown
        assert "http_5xx: HTTP 500: [/bin/x] broke" in shown
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "b16t4-w2048 · 60 tokens" in screen_text(app))
        await pilot.press("left_square_bracket", "greater_than_sign")
        await until(pilot, lambda: "b8t4-w2048 · 60 tokens × 8 users" in screen_text(app))


async def test_no_figure_of_a_cell_is_cut_in_a_narrow_terminal() -> None:
    async with running(s.Scripted.of(s.mid_sweep()), (80, 60)) as (app, pilot):
        app.look(point=(1024, 64))
        await pilot.press("enter")
        await until(pilot, lambda: "accepted drafts a step" in screen_text(app))
        shown = panel_text(app, "page")
        assert "95 %: 1928.1 to 1971.0" in shown
        assert "95 %: 4.20 to 4.28  from per-request" in shown
        assert "…" not in shown


async def test_a_cell_that_failed_says_why_with_the_first_message() -> None:
    events = s.mid_sweep()
    failed = s.key("b8t4-w2048", 4096, 64)
    events.append(
        s.ev.CellEnded(
            t=2000.0,
            cell=failed,
            run=failed.text,
            outcome="failed",
            reason="every request failed",
            failures=(("http_5xx", "HTTP 500: out of memory"), ("connect", "connection refused")),
        )
    )
    async with running(s.Scripted.of(events)) as (app, pilot):
        app.look(point=(4096, 64))
        assert "failed" in panel_text(app, "matrix")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Cell))
        await pilot.pause()
        shown = screen_text(app)
        assert "every request failed" in shown
        assert "HTTP 500: out of memory" in shown
        assert "connection refused" in shown


async def test_presets_are_a_line_each_with_proof_and_best_figures() -> None:
    async with running(s.Scripted.of(s.finished()), (120, 40)) as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: "best tok/s" in screen_text(app))
        rows = panel_text(app, "list").splitlines()
        assert any("none ref" in r and "1061" in r and "5/5" in r and "reference" in r for r in rows)
        assert not any("none ref" in r and "/16" in r for r in rows)
        assert "lossless  the reference: its 16 greedy texts" in panel_text(app, "page")
        assert any("b4t4-w2048" in r and "9/16▲" in r and "4/5" in r for r in rows)
        await pilot.press("down")
        await pilot.pause()
        assert "asks for  DDTREE budget 4 topk 4 window 2048" in panel_text(app, "page")
        assert "asked 2048, found 2048" in panel_text(app, "page")


async def test_a_measured_preset_keeps_its_proof_when_a_later_switch_to_it_fails_or_is_broken_off() -> None:
    events = [e for e in s.finished() if not isinstance(e, s.ev.SessionEnded)]
    events += s.proof("none", 5000.0, ok=False)
    events += [
        s.ev.PhaseChanged(t=5100.0, at=s.at(5100), phase="reconfiguring", preset="b4t4-w2048"),
        s.ev.ProofStepChanged(
            t=5101.0,
            at=s.at(5101),
            preset="b4t4-w2048",
            step=ProofStep(name="start", words="restart asked", state="running", started_t=5100.0),
        ),
        s.ev.SessionEnded(t=5105.0, at=s.at(5105), status="stopped", words="asked by the operator"),
        s.ev.SessionResumed(t=5200.0, at=s.at(5200), engine_pid=1),
    ]
    async with running(s.Scripted.of(events), (120, 40)) as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: "best tok/s" in screen_text(app))
        assert panel_text(app, "list").count("✓ was in effect") == 3
        shown = panel_text(app, "page")
        assert "✓ was in effect for 16 cells" in shown
        assert "1 of 1 settings as asked" in shown
        await pilot.press("down")
        await until(pilot, lambda: "last switch broken off at 13:23" in panel_text(app, "page"))
        shown = panel_text(app, "page")
        assert "asked 2048, found 2048" in shown
        assert "✗ restart asked" in shown
        assert "▶" not in panel_text(app, "list") + shown


async def test_keys_among_a_preset_s_flags_are_not_shown() -> None:
    events = s.finished()
    begun = events[0]
    assert isinstance(begun, s.ev.SessionStarted)
    keyed = tuple(msgspec.structs.replace(p, flags=("--api-key", "sk-live-1")) for p in begun.presets)
    events[0] = msgspec.structs.replace(begun, presets=keyed)
    async with running(s.Scripted.of(events), (160, 45)) as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: "best tok/s" in screen_text(app))
        await until(pilot, lambda: "--api-key ***" in panel_text(app, "page"))
        assert "sk-live" not in screen_text(app)


async def test_a_preset_is_applied_skipped_and_moved_from_the_list() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, Presets) and bool(app.screen.listing.chosen))
        await pilot.press("down", "down", "down", "J")
        await until(pilot, lambda: len(source.commands) == 1)
        names = source.commands[0].argument.split(",")
        assert names.index("b16t4-w2048") == 4
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("y")
        await until(pilot, lambda: len(source.commands) == 2)
        assert source.commands[1] == Command(name="skip-preset", argument="b16t4-w2048")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "Switch the server to b16t4-w2048?" in screen_text(app)


async def test_a_preset_is_added_by_a_form_that_refuses_nonsense() -> None:
    source = s.Scripted.of(s.mid_sweep())
    async with running(source) as (app, pilot):
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, Presets))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, AddPreset))
        assert "on the last field adds · esc cancels" in screen_text(app)
        clear = ("backspace",) * 8
        await pilot.press(*"foo", "enter", *"ten", "enter", *"4", "enter", "enter", "enter", "enter")
        await until(pilot, lambda: "algorithm: DDTREE, DFLASH, NGRAM or NONE, not foo" in screen_text(app))
        await pilot.press(*clear, *"ddtree", *("enter",) * 6)
        await until(pilot, lambda: "budget: 'ten' is not a whole number" in screen_text(app))
        await pilot.press(*clear, *"-3", *("enter",) * 5)
        await until(pilot, lambda: "budget: 1 or more, not -3" in screen_text(app))
        source.replies.append(Reply(False, "DDTREE has no words here"))
        await pilot.press(*clear, *"10", "enter", "enter", *"1024", "enter", "enter", "enter")
        await until(pilot, lambda: "DDTREE has no words here" in screen_text(app))
        assert isinstance(app.screen, AddPreset)
        assert "1024" in screen_text(app)
        await pilot.press(*("enter",) * 6)
        await until(pilot, lambda: isinstance(app.screen, Presets))
        assert [c.preset for c in source.commands] == [
            Preset(name="b10t4-w1024", algorithm="DDTREE", budget=10, topk=4, window=1024)
        ] * 2


async def test_evals_show_verdicts_the_code_that_was_taken_and_the_output(tmp_path: Path) -> None:
    folder = write_session(tmp_path / "a", s.finished())
    (folder / "texts").mkdir()
    answer = SavedText(
        t=1.0,
        rid="x",
        purpose="eval",
        preset="b4t4-w2048",
        problem_set="core-5",
        task_id="gcd",
        content="Sure:\n```python\ndef gcd(n):\n    return n == n\n```\n",
    )
    (folder / "texts" / "texts.jsonl").write_bytes(msgspec.json.encode(answer) + b"\n")
    async with running(s.Scripted.of(s.finished()), (120, 40), folder=folder) as (app, pilot):
        await pilot.press("E")
        await until(pilot, lambda: "is_palindrome" in screen_text(app))
        assert panel_text(app, "list").count("✓ pass") == 14
        assert panel_text(app, "list").count("✗ fail") == 1
        await pilot.press("left", "end")
        await until(pilot, lambda: "Sure:" in screen_text(app), "the answer's text")
        shown = panel_text(app, "page")
        assert "AssertionError: gcd(12, 18) == 6, got 12" in shown
        assert "the last code block after the reasoning ended" in shown
        assert "output of the run" in shown
        await pilot.press("L")
        await until(pilot, lambda: "DIVERGED" in screen_text(app))
        assert "return a + b" in screen_text(app)
        assert "return a - b" in screen_text(app)
        await pilot.press("left")
        await until(pilot, lambda: "none is the reference" in screen_text(app))


async def test_a_lossless_check_that_was_not_made_is_said_once_and_why() -> None:
    events = [e for e in s.finished() if not isinstance(e, s.ev.LosslessEnded)]
    async with running(s.Scripted.of(events), (120, 40)) as (app, pilot):
        await pilot.press("E", "L")
        await until(pilot, lambda: "no lossless check under this preset" in screen_text(app))
        assert "lossless_prompts = 0 in the sweep" in screen_text(app)
        assert "no differences" not in screen_text(app)


async def test_help_lists_the_keys_of_the_screen_it_was_asked_from() -> None:
    async with running(s.Scripted.of(s.mid_sweep()), (120, 70)) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, lambda: "reasons to doubt" in screen_text(app))
        shown = screen_text(app)
        for words in ("1-9", "Maximise a panel", "Detach", "client-bound", "Focus"):
            assert (words in shown) is (words != "Focus")
        await pilot.press("escape", "P")
        await until(pilot, lambda: isinstance(app.screen, Presets))
        await pilot.press("question_mark")
        await until(pilot, lambda: "Add a preset" in screen_text(app))


async def test_y_copies_the_table_to_the_clipboard_and_a_named_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTOP_CAPTURES_DIR", str(tmp_path / "out"))
    async with running(s.Scripted.of(s.mid_sweep()), (120, 40)) as (app, pilot):
        await pilot.press("y")
        await until(pilot, lambda: "copied:" in screen_text(app))
        (path,) = (tmp_path / "out").iterdir()
        assert "167.6 ±1.8" in path.read_text(encoding="utf-8")
        assert "167.6 ±1.8" in app.clipboard
        first = app.clipboard.splitlines()[0]
        assert first == "kimi-k26-rtx6000 2026-03-01 11:58 · b8t4-w2048 · tok/s · SIMULATED"
        await pilot.press("i")
        await until(pilot, lambda: "picture saved" in screen_text(app))
        assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".svg", ".txt"}


ASKED = (
    "now algorithm is DDTREE; leave out --speculative-algorithm, --speculative-num-draft-tokens; restart the server "
    "with: python3 -m sglang.launch_server --model-path /models/kimi-k2.6 --tp 8 --port 30000 --attention-backend fa3 "
    "--mem-fraction-static 0.85 --context-length 65536 --trust-remote-code"
)


def asking() -> list[AnyEvent]:
    """A session whose server is restarted by the operator, who is being asked to."""
    out: list[AnyEvent] = [s.started(restarts=False)]
    out.append(s.ev.PhaseChanged(t=5.0, at=s.at(5), phase="reconfiguring", preset="none"))
    step = ProofStep(name="start", words="waiting for you", state="running", detail=ASKED, started_t=5.0)
    out.append(s.ev.ProofStepChanged(t=6.0, at=s.at(6), preset="none", step=step))
    return out


@pytest.mark.parametrize("keys", [(), ("P",)])
async def test_what_the_operator_is_asked_stands_whole_and_is_copied_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SPECTOP_CAPTURES_DIR", str(tmp_path))
    async with running(s.Scripted.of(asking())) as (app, pilot):
        for key in keys:
            await pilot.press(key)
        await until(pilot, lambda: "--trust-remote-code" in screen_text(app), "the end of the command")
        shown = " ".join(screen_text(app).split())
        assert ASKED.partition("; restart")[0] in shown
        assert "restart the server with: python3 -m sglang.launch_server" in shown
        assert "of about" not in shown
        await pilot.press("y")
        await until(pilot, lambda: ASKED in app.clipboard)


async def test_a_copy_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECTOP_CAPTURES_DIR", str(tmp_path / "file" / "out"))
    async with running(s.Scripted.of(s.mid_sweep())) as (app, pilot):
        await pilot.press("y")
        await until(pilot, lambda: "written" in screen_text(app))
