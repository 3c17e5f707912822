"""The application: screens over a source, and what the operator's keys do.

Whatever changes the server asks first and says what will happen; quitting never ends a sweep unless that is asked for.
Screens other than the first are imported when they are opened: nobody waits for them before anything is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sessions.commands import Command, Source
from sessions.errors import SpectopError
from sessions.folder import control_of, sessions_dir
from tui.clipboard import write_capture
from tui.copying import asked_command
from tui.draw import text_of
from tui.metrics import METRICS, Metric
from tui.palette import commands_for
from tui.replaying import change_speed, go_to, how_it_plays, jump, replay_of, toggle
from tui.screens.ask import Ask, AskLine
from tui.screens.base import SpectopScreen
from tui.screens.live import Live
from tui.theme import THEMES
from tui.watching import WatchingApp
from tui.words import about, plain_text


class SpectopApp(WatchingApp):
    """The screens of one session.

    Args:
        source: where states come from and commands go to.
        title: name of the terminal's window.
        options: see `WatchingApp`.
    """

    TITLE = "spectop"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "Pause or go on"),
        Binding("s", "skip", "Skip the running cell"),
        Binding("r", "repeat", "Measure the focused cell again"),
        Binding("x", "stop", "Stop the sweep"),
        Binding("d", "detach", "Detach; the sweep goes on"),
        Binding("q", "leave", "Quit"),
        Binding("ctrl+c", "leave", "Quit", show=False, priority=True),
        Binding("ctrl+q", "leave", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
        Binding("P", "presets", "All presets"),
        Binding("E", "evals", "Evals"),
        Binding("S", "sessions", "All sessions"),
        Binding("C", "compare", "Compare two presets"),
        Binding("R", "recommend", "Recommend a preset"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("y", "copy", "Copy the table"),
        Binding("i", "picture", "Picture of the screen, as SVG"),
        Binding("n", "note", "Write a note into the log"),
    ]

    def __init__(self, source: Source, *, title: str = "spectop", **options: object) -> None:
        super().__init__(source, **options)  # type: ignore[arg-type]
        self.title = title

    def on_mount(self) -> None:
        """Opens the home screen; Textual calls the base class's own `on_mount` after it."""
        self.push_screen(Live())

    @property
    def commandable(self) -> bool:
        """Whether there is an engine that takes commands."""
        return (
            self.source.live
            and not self.read_only
            and not self.facts.view.lost
            and self.facts.state.status == "running"
        )

    def may_command(self) -> bool:
        """Whether there is an engine that takes commands; says why not."""
        if self.commandable:
            return True
        if not self.source.live:
            words = "this is a saved session: there is nothing to command"
        elif self.read_only:
            words = "these screens are read-only"
        elif self.facts.view.lost:
            words = "the engine is gone: nothing can be commanded"
        else:
            words = "nothing to command: this sweep is not running"
        self.tell(words, "warning")
        return False

    def action_pause(self) -> None:
        """Pauses after the running cell, takes that back, or goes on."""
        state = self.facts.state
        if self.may_command():
            self.send(Command(name="resume" if state.paused or state.pending == "pause" else "pause"))

    def action_skip(self) -> None:
        """Skips the running cell, if the operator is sure."""
        if not self.may_command():
            return
        running = self.facts.running
        if running is None:
            self.tell("no cell is running", "warning")
            return
        words = [f"{running.key.text} ends without figures; the next cell begins."]
        self.ask_command("Skip the running cell?", words, Command(name="skip", argument=running.key.text))

    def action_repeat(self) -> None:
        """Measures the focused cell again."""
        point = self.facts.point
        cells = self.facts.repetitions(self.facts.preset_name, *point) if point else []
        if not cells:
            self.tell("no cell is focused", "warning")
            return
        key = cells[-1].key.text
        words = [f"{key} is measured again; its present figures are given up for the new ones."]
        self.ask_command("Measure this cell again?", words, Command(name="repeat", argument=key))

    def action_apply_number(self, number: int) -> None:
        """Switches to a preset by its number, if the operator is sure."""
        names = list(self.facts.state.presets)
        if number <= len(names):
            self.apply(names[number - 1])
        else:
            self.tell(f"there is no preset {number}", "warning")

    def apply(self, name: str) -> None:
        """Asks whether a preset is to be put in effect now, saying what that costs."""
        state = self.facts.state
        if not self.may_command():
            return
        words = []
        if state.restarts:
            words.append(f"Restarts the server, {about(state.load_s_expected)}.")
        running = self.facts.running
        if running is not None:
            cell = f"{running.key.context} {self.facts.glyphs.times} {running.key.concurrency}"
            words.append(f"The running cell, {cell}, is dropped and measured again later.")
        words.append("Nothing is measured until the preset is proved to be in effect.")
        self.ask_command(
            f"Switch the server to {plain_text(name, self.facts.glyphs)}?", words, Command(name="apply", argument=name)
        )

    def action_stop(self) -> None:
        """Asks how the sweep is to be stopped."""
        if not self.may_command():
            return

        def chosen(answer: str | None) -> None:
            if answer == "a":
                self.send(Command(name="stop-after-cell"))
            elif answer == "y":
                self.send(Command(name="stop"))

        words = ["What was measured is kept; the session can be resumed."]
        choices = [("a", "stop after the running cell"), ("y", "stop now; the running cell is lost"), ("n", "go on")]
        self.push_screen(Ask("Stop the sweep?", words, choices, self.facts.glyphs), chosen)

    def action_detach(self) -> None:
        """Leaves; the sweep goes on."""
        if self.commandable:
            self.exit(
                "detached", message=f"detached; the sweep goes on. Come back: spectop attach {self.facts.state.session}"
            )
        else:
            self.exit("left")

    def action_leave(self) -> None:
        """Leaves; asks what is to become of a running sweep."""
        if isinstance(self.screen, Ask):
            self.screen.action_back_out()
            return
        if not self.commandable:
            self.exit("left")
            return

        def chosen(answer: str | None) -> None:
            if answer == "d":
                self.action_detach()
            elif answer == "s":
                self.send(Command(name="stop"))

        words = ["The sweep runs in a process of its own."]
        choices = [("d", "detach: leave, the sweep goes on"), ("s", "stop the sweep, then look at it"), ("n", "stay")]
        self.push_screen(Ask("Leave?", words, choices, self.facts.glyphs), chosen)

    def action_note(self) -> None:
        """Asks for a note, where there is an engine that takes it."""
        if not self.may_command():
            return

        def entered(text: str | None) -> None:
            if text:
                self.send(Command(name="note", argument=text))

        self.push_screen(AskLine("A note into the log", "changed the fan curve", self.facts.glyphs), entered)

    def ask_search(self) -> None:
        """Asks what events and log are searched for; nothing ends the search."""

        def entered(text: str | None) -> None:
            if text is not None:
                self.look(search=text)

        old = self.facts.view.search
        self.push_screen(AskLine("Search events and log", "part of a line", self.facts.glyphs, value=old), entered)

    def ask_zoom(self) -> None:
        """Asks which panel is to have the whole screen."""
        names = {"m": "matrix", "n": "now", "a": "strip", "h": "histogram", "g": "gpus", "e": "events", "l": "log"}

        def chosen(answer: str | None) -> None:
            if answer:
                self.look(zoomed=names[answer])

        words = {
            "strip": "this cell, all presets",
            "now": "rates over time",
            "histogram": "accepted drafts",
            "gpus": "GPUs",
        }
        choices = [(key, words.get(name, name)) for key, name in names.items()]
        self.push_screen(
            Ask(
                "Maximise which panel?",
                ["z or Escape gives the others back."],
                [*choices, ("q", "none")],
                self.facts.glyphs,
            ),
            chosen,
        )

    def open_cell(self) -> None:
        """Opens everything about the focused cell."""
        from tui.screens.cell import Cell

        if self.facts.point is not None:
            self._open(Cell())

    def action_presets(self) -> None:
        """Opens all presets."""
        from tui.screens.presets import Presets

        self._open(Presets())

    def action_evals(self) -> None:
        """Opens the evals."""
        from tui.screens.evals import Evals

        self._open(Evals())

    def action_recommend(self) -> None:
        """Opens the recommendation."""
        from tui.screens.recommend import Recommend

        self._open(Recommend())

    def action_sessions(self) -> None:
        """Opens the list of sessions."""
        from tui.screens.sessions import Sessions

        self._open(Sessions(self.sessions_folder))

    def action_compare(self) -> None:
        """Asks which two presets are to be compared."""
        from tui.screens.compare import Compare

        names = list(self.facts.state.presets)
        if self.folder is None or len(names) < 2:
            self.tell("a comparison needs a session with two presets", "warning")
            return
        shown = self.facts.preset_name
        others = [n for n in names if n != shown][:9]
        keys = [str(i) for i in range(1, len(others) + 1)]

        def chosen(answer: str | None) -> None:
            if answer and self.folder is not None:
                name = others[keys.index(answer)]
                here = self.folder
                self._open(Compare(here.parent, f"{here.name}:{name}", f"{here.name}:{shown}"))

        g = self.facts.glyphs
        choices = [(k, plain_text(n, g)) for k, n in zip(keys, others, strict=True)]
        words = ["S opens the list of sessions, to compare two of them."]
        question = f"Compare {plain_text(shown, g)} with which preset?"
        self.push_screen(Ask(question, words, [*choices, ("n", "none")], g), chosen)

    def action_help(self) -> None:
        """Opens the help for this screen."""
        from tui.screens.help import Help, bindings_of

        if not isinstance(self.screen, (Help, Ask, AskLine)):
            self._open(Help(bindings_of(self.screen)))

    def _open(self, screen: SpectopScreen) -> None:
        if isinstance(self.screen, (Ask, AskLine)) or type(self.screen) is type(screen):
            return
        self.push_screen(screen)

    @work(exit_on_error=False, group="opening")
    async def open_session(self, folder: Path) -> None:
        """Leaves this session's screens (not the session) and shows another one."""
        from sessions.client import EngineClient
        from sessions.review import open_session as open_saved

        control = control_of(folder)
        try:
            found = await asyncio.to_thread(open_saved, folder)
        except (SpectopError, OSError) as error:
            self.tell(str(error), "error")
            return
        source: Source
        if found.live and control is not None:
            source = EngineClient(control, folder=folder)
        else:
            from sessions.replay import ReplaySource

            source = await asyncio.to_thread(ReplaySource, folder, start="end")
        if found.skipped:
            self.tell(f"not all could be read: {'; '.join(found.skipped)}", "warning")
        while len(self.screen_stack) > 2:
            self.pop_screen()
        await self.change_source(source, folder)

    def action_copy(self) -> None:
        """Copies the screen's table to the terminal's clipboard and to a file."""
        screen = self.screen
        if isinstance(screen, SpectopScreen):
            parts = [screen.copied_heading(), text_of(screen.copied_lines()), asked_command(self.facts)]
            self._capture("\n".join(part for part in parts if part) + "\n", "txt", "copied")

    def action_picture(self) -> None:
        """Saves a picture of the screen."""
        self._capture(self.export_screenshot(title=self.title), "svg", "picture saved")

    def _capture(self, text: str, suffix: str, words: str) -> None:
        if suffix == "txt":
            self.copy_to_clipboard(text)
        try:
            path = write_capture(text, suffix, now=datetime.now(UTC))
        except SpectopError as error:
            self.tell(str(error), "error")
            return
        self.tell(f"{words}: {path}")

    def action_replay(self, what: str, by: int = 0) -> None:
        """Moves through a saved session."""
        replay = replay_of(self.source)
        if replay is None:
            self.tell("this is no saved session: it cannot be moved through", "warning")
            return
        match what:
            case "toggle":
                words = toggle(replay)
            case "speed":
                words = change_speed(replay, by)
            case "cell":
                words = jump(replay, by)
            case place:
                words = go_to(replay, place)
        self.look(replay=how_it_plays(replay))
        self.tell(words)

    def set_theme(self, name: str) -> None:
        """Changes the colours."""
        self.theme = name

    @property
    def offered_themes(self) -> list[str]:
        """Our three themes and the terminal's own palette."""
        return [*(t.name for t in THEMES), "ansi-dark", "ansi-light"]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The figures a matrix can show."""
        return METRICS

    @property
    def sessions_folder(self) -> Path:
        """Where sessions are."""
        return self.folder.parent if self.folder is not None else sessions_dir()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Returns what the palette offers."""
        return commands_for(self, screen)

    def ask_command(self, question: str, words: list[str], command: Command) -> None:
        """Sends a command if the operator is sure, having read what it does."""
        if not self.may_command():
            return

        def chosen(answer: str | None) -> None:
            if answer == "y":
                self.send(command)

        self.push_screen(Ask(question, words, [("y", "yes"), ("n", "no")], self.facts.glyphs), chosen)
