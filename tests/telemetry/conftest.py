"""The compiled stub of the driver's library, once for a test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.stub_nvml.stub import Probe, StubState, library_or_skip


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled stub."""
    return library_or_skip(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_state(tmp_path: Path) -> StubState:
    """A state of eight workstation GPUs; not yet written."""
    return StubState(tmp_path / "nvml.state")


@pytest.fixture
def probe(nvml_library: Path, nvml_state: StubState) -> Iterator[Callable[..., Probe]]:
    """Starts a process that reads the stub's GPUs in the state as it is now."""
    with ExitStack() as stack:

        def start(**source: Any) -> Probe:
            nvml_state.write()
            return stack.enter_context(Probe(nvml_library, nvml_state, **source))

        yield start
