"""The command line `spectop`: which commands there are, and errors turned into words and exit statuses.

The only place that turns an exception into words. Commands are imported when they are called, so that `--help` stays
quick. Exit status: 0 good, 1 the job ran and something failed, 2 wrong usage or file, 3 the server could not be put in
the asked state, 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import cyclopts

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

COMMANDS = {
    "demo": "Watch a short sweep on the simulated server (SIMULATED: nothing real is measured)",
    "run": "Run a sweep: switch presets, prove each, measure every cell",
    "bench": "Measure one server as it stands; nothing is restarted",
    "attach": "Come back to a running session",
    "ctl": "Command a running session from a script",
    "sessions": "List the sessions",
    "show": "Print a session's tables (or JSON)",
    "view": "Open a saved session in the screens",
    "compare": "Compare two sessions or presets, cell by cell",
    "recommend": "Say which preset is best, per cell and overall",
    "report": "Write a self-contained HTML or Markdown report",
    "export": "Write a session's tables as Parquet, CSV or JSON",
    "judge": "Judge one saved answer: extraction, sandbox, verdict",
    "init": "Write a commented sweep file from a running server",
    "check": "Check every precondition of a sweep before hours are spent",
    "serve": "The same screens, read-only, in a browser on this machine",
}


def build_app() -> cyclopts.App:
    """Returns the command line; its commands are imported only when called."""
    app = cyclopts.App(
        name="spectop",
        help="Live benchmarking monitor for speculative decoding.",
        version=_version,
        help_format="plaintext",
        result_action="return_value",
    )
    for name, says in COMMANDS.items():
        app.command(f"tui.commands.{name}:{name}", name=name, help=says)
    return app


def _version() -> str:
    from sessions.folder import package_version

    return package_version()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves with its exit status.

    Args:
        arguments: without the program's name; `sys.argv` unless given.
    """
    sys.exit(run_command(arguments))


def run_command(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status; expected errors become words on standard error."""
    try:
        status = build_app()(arguments, exit_on_error=False, print_error=True)
    except cyclopts.CycloptsError:
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # the rim: whatever an operator can act on becomes words, the rest is a fault of ours
        return _told(error)
    return status if isinstance(status, int) else 0


def _told(error: Exception) -> int:
    from evals.errors import EvalError
    from loadgen.errors import LoadError
    from reconfig.presets import PresetError
    from sessions.errors import SpectopError

    if isinstance(error, SpectopError):
        sys.stderr.write(f"spectop: {error}\n")
        return error.exit_status
    if isinstance(error, LoadError | EvalError | PresetError | OSError):
        sys.stderr.write(f"spectop: {error}\n")
        return 1
    if os.environ.get("SPECTOP_TRACEBACK") == "1":
        raise error
    sys.stderr.write(
        f"spectop: a fault of spectop itself: {type(error).__name__}: {error}\n"
        "Please report it; SPECTOP_TRACEBACK=1 shows where it happened.\n"
    )
    return 1
