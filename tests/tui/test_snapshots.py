"""Pictures of the screens. Each test says what its picture must show; `--snapshot-update` makes them anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sessions.events import AnyEvent
from tests.tui import scripted as s
from tests.tui.piloting import make_app, until
from tui.glyphs import ASCII, UTF8, Glyphs

Snap = Callable[..., bool]
SIZES = {"small": (80, 24), "medium": (120, 40), "large": (160, 45)}


@pytest.fixture
def shot(snap_compare: Snap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., bool]:
    """Compares a picture of the application over some events, after some keys."""
    monkeypatch.setenv("SPECTOP_SESSIONS_DIR", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)

    def compare(
        events: list[AnyEvent],
        size: tuple[int, int] = (80, 24),
        *keys: str,
        glyphs: Glyphs = UTF8,
        lost: str = "",
        live: bool = True,
        theme: str = "",
    ) -> bool:
        source = s.Scripted.of(events, live=live, lost=lost)
        app = make_app(source, glyphs=glyphs)
        if theme:
            app.theme = theme

        async def before(pilot: Pilot[Any]) -> None:
            await until(pilot, lambda: bool(app.facts.state.session) and (not lost or bool(app.facts.view.lost)))
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            await settled(pilot)

        return snap_compare(app, terminal_size=size, run_before=before)

    return compare


async def settled(pilot: Pilot[Any]) -> None:
    """Waits until nothing is being drawn any more."""
    for _ in range(3):
        await pilot.pause()
        await asyncio.sleep(0.02)
    workers = [w for w in pilot.app.workers if w.group not in ("source", "frames")]
    waiting: list[Awaitable[Any]] = [w.wait() for w in workers]
    await asyncio.gather(*waiting)
    await pilot.pause()


class TestLive:
    """The home screen."""

    @pytest.mark.parametrize("size", SIZES)
    def test_measuring(self, shot: Callable[..., bool], size: str) -> None:
        """Safety line, state line with progress, the matrix with a running cell, eight GPUs, words, keys."""
        assert shot(s.mid_sweep(), SIZES[size])

    @pytest.mark.parametrize("size", SIZES)
    def test_switching(self, shot: Callable[..., bool], size: str) -> None:
        """The steps of the proof with their times, the weights' progress, the log's last line."""
        assert shot(s.switching(), SIZES[size])

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_not_in_effect(self, shot: Callable[..., bool], size: str) -> None:
        """The failed step, what was asked and what was found, what happens next; no figure in any cell."""
        assert shot(s.not_in_effect(), SIZES[size])

    @pytest.mark.parametrize("size", ["small", "medium"])
    def test_finished(self, shot: Callable[..., bool], size: str) -> None:
        """A full matrix, the end in words, no time that still runs."""
        assert shot(s.finished(), SIZES[size])

    def test_repetitions(self, shot: Callable[..., bool]) -> None:
        """One figure over three repetitions in each cell; the state line names the repetition."""
        assert shot(s.mid_sweep(repeats=3), SIZES["medium"])

    def test_engine_lost(self, shot: Callable[..., bool]) -> None:
        """ENGINE LOST on the first line, the next step on the second, all figures still there."""
        assert shot(s.mid_sweep(), SIZES["small"], lost="the engine (process 4711) is gone")

    def test_gpu_lost(self, shot: Callable[..., bool]) -> None:
        """GPU 3 is lost, with the reason; the others go on."""
        events = [*s.mid_sweep(), s.gpus(1900.0, lost=3)]
        assert shot(events, SIZES["small"])

    def test_server_down(self, shot: Callable[..., bool]) -> None:
        """The server does not answer: said beside the rates and in the events."""
        down = s.ServerSample(t=1900.0, source="sglang", problem="connection refused")
        said = s.ev.Said(
            t=1901.0, at=s.at(1901), level="error", words="the server does not answer; trying again in 5 s"
        )
        assert shot([*s.mid_sweep(), s.ev.ServerSampled(t=1900.0, sample=down), said], SIZES["small"])

    def test_disk_full(self, shot: Callable[..., bool]) -> None:
        """Paused because the disk is full, and what to do about it."""
        paused = s.ev.PhaseChanged(
            t=1900.0,
            at=s.at(1900),
            phase="paused",
            preset="b8t4-w2048",
            words="the disk is full: free some space, then press p",
        )
        assert shot([*s.mid_sweep(), paused], SIZES["small"])

    def test_saved(self, shot: Callable[..., bool]) -> None:
        """SAVED on the first line."""
        assert shot(s.finished(), SIZES["small"], live=False)

    def test_ascii(self, shot: Callable[..., bool]) -> None:
        """The same screen with nothing but ASCII."""
        assert shot(s.mid_sweep(), SIZES["small"], glyphs=ASCII)

    def test_no_color(self, shot: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
        """No colour at all; running, marked and skipped are told by signs and words."""
        monkeypatch.setenv("NO_COLOR", "1")
        assert shot(s.mid_sweep(), SIZES["small"])

    @pytest.mark.parametrize("theme", ["spectop-light", "spectop-contrast", "ansi-dark"])
    def test_themes(self, shot: Callable[..., bool], theme: str) -> None:
        """The same screen in the other palettes."""
        assert shot(s.mid_sweep(), SIZES["small"], theme=theme)

    def test_acceptance(self, shot: Callable[..., bool]) -> None:
        """Another figure in the matrix: acceptance length."""
        assert shot(s.mid_sweep(), SIZES["small"], "m", "m", "m", "m")

    def test_against_the_reference(self, shot: Callable[..., bool]) -> None:
        """Percent against the reference, with the sign of the difference."""
        assert shot(s.mid_sweep(), SIZES["small"], "M")

    def test_gpus_maximised(self, shot: Callable[..., bool]) -> None:
        """The GPUs alone between head and keys."""
        assert shot(s.mid_sweep(), SIZES["small"], "z", "g")

    def test_question(self, shot: Callable[..., bool]) -> None:
        """The question before a switch, with what it costs."""
        assert shot(s.mid_sweep(), SIZES["small"], "4")

    def test_too_small(self, shot: Callable[..., bool]) -> None:
        """That the terminal is too small and the sweep goes on."""
        assert shot(s.mid_sweep(), (40, 8))


class TestOtherScreens:
    """The screens behind the keys."""

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_cell(self, shot: Callable[..., bool], size: str) -> None:
        """Figures with intervals, marks with their reasons, accepted drafts."""
        assert shot(s.mid_sweep(), SIZES[size], "up", "right", "enter")

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_presets(self, shot: Callable[..., bool], size: str) -> None:
        """A line a preset; the proof of the chosen one."""
        assert shot(s.finished(), SIZES[size], "P", "down")

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_evals(self, shot: Callable[..., bool], size: str) -> None:
        """Problems x presets; the failed answer with its evidence."""
        assert shot(s.finished(), SIZES[size], "E", "left", "end")

    def test_lossless(self, shot: Callable[..., bool]) -> None:
        """Two texts side by side, the differing line signed."""
        assert shot(s.finished(), SIZES["medium"], "E", "left", "L")

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_recommend(self, shot: Callable[..., bool], size: str) -> None:
        """The policy as a matrix of names, standings, reasons."""
        assert shot(s.finished(), SIZES[size], "R")

    @pytest.mark.parametrize("size", ["small", "large"])
    def test_help(self, shot: Callable[..., bool], size: str) -> None:
        """Keys, signs, letters, figures."""
        assert shot(s.mid_sweep(), SIZES[size], "question_mark")

    def test_add_preset(self, shot: Callable[..., bool]) -> None:
        """The form, a field a line."""
        assert shot(s.mid_sweep(), SIZES["small"], "P", "a")
