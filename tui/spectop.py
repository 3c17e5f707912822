"""The application: screens over a source, and what the operator's keys do.

Whatever changes the server asks first and says what will happen; quitting never ends a sweep unless that is asked for.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from sessions.commands import Command, Source
from tui.screens.ask import Ask, AskLine
from tui.screens.live import Live
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
        Binding("n", "note", "Write a note into the log"),
    ]

    def __init__(self, source: Source, *, title: str = "spectop", **options: object) -> None:
        super().__init__(source, **options)  # type: ignore[arg-type]
        self.title = title

    def on_mount(self) -> None:
        """Opens the home screen."""
        self.push_screen(Live())
        super().on_mount()

    @property
    def commandable(self) -> bool:
        """Whether there is an engine that takes commands."""
        return (
            self.source.live
            and not self.read_only
            and not self.facts.view.lost
            and self.facts.state.status == "running"
        )

    def action_pause(self) -> None:
        """Pauses after the running cell, or goes on."""
        self.send(Command(name="resume" if self.facts.state.paused else "pause"))

    def action_skip(self) -> None:
        """Skips the running cell, if the operator is sure."""
        running = self.facts.running
        if running is None:
            self.tell("no cell is running", "warning")
            return
        words = [f"{running.key.text} ends without figures; the next cell begins."]
        self._sure("Skip the running cell?", words, Command(name="skip", argument=running.key.text))

    def action_repeat(self) -> None:
        """Measures the focused cell again."""
        point = self.facts.point
        cells = self.facts.repetitions(self.facts.preset_name, *point) if point else []
        if not cells:
            self.tell("no cell is focused", "warning")
            return
        key = cells[-1].key.text
        words = [f"{key} is measured again; its figures are kept until then."]
        self._sure("Measure this cell again?", words, Command(name="repeat", argument=key))

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
        if not self.commandable:
            self.tell("nothing to switch: no engine is running this session", "warning")
            return
        words = []
        if state.restarts:
            words.append(f"Restarts the server, {about(state.load_s_expected)}.")
        running = self.facts.running
        if running is not None:
            words.append(f"{running.key.context} x {running.key.concurrency} is dropped and measured again later.")
        words.append("Nothing is measured until the preset is proved to be in effect.")
        self._sure(
            f"Switch the server to {plain_text(name, self.facts.glyphs)}?", words, Command(name="apply", argument=name)
        )

    def action_stop(self) -> None:
        """Asks how the sweep is to be stopped."""
        if not self.commandable:
            self.tell("no sweep is running", "warning")
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
        """Asks for a note."""

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

    def _sure(self, question: str, words: list[str], command: Command) -> None:
        if not self.commandable:
            self.tell("nothing to command: no engine is running this session", "warning")
            return

        def chosen(answer: str | None) -> None:
            if answer == "y":
                self.send(command)

        self.push_screen(Ask(question, words, [("y", "yes"), ("n", "no")], self.facts.glyphs), chosen)
