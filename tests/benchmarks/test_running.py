"""`make bench` runs every benchmark with one command."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import benchmarks
from benchmarks.__main__ import main


def test_whatever_it_runs_can_be_run_without_arguments() -> None:
    names = [m.name for m in pkgutil.iter_modules([str(Path(benchmarks.__file__).parent)]) if m.name[0] != "_"]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    run = [name for name, module in modules.items() if hasattr(module, "main")]
    assert run == ["client", "live_gap", "peers", "review", "sandbox", "stalled_terminal", "telemetry", "terminal"]
    assert all(not inspect.signature(modules[name].main).parameters for name in run)
    assert all("sys.argv" not in inspect.getsource(modules[name].main) for name in run)


def test_an_unknown_one_is_told(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "nonesuch"])
    assert main() == 2
    assert "no such benchmark: nonesuch; there are: client" in capsys.readouterr().out
