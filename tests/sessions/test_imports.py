"""The engine and the load workers never import the screens' library: they run where no terminal is."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["sessions.engine.__main__", "loadgen.worker", "simserver.__main__"])
def test_a_process_without_a_terminal_never_imports_textual(module: str):
    code = (
        f"import importlib, sys; importlib.import_module({module!r});"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('textual', 'tui')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_simulated_server_imports_nothing_of_the_product():
    code = (
        "import importlib, sys; importlib.import_module('simserver.__main__');"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'loadgen','reconfig','evals','sessions','telemetry'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
