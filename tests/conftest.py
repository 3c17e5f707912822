"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# No test talks to anybody outside; and each of some hundred processes would read the system's certificates as soon as
# it imports aiohttp, which takes a tenth of a second. This one is nobody's: its key was thrown away.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))


LONGEST = (
    "sessions/test_resilience.py",
    "sessions/test_engine.py",
    "tui/test_tmux.py",
    "tui/test_cli.py",
    "loadgen/test_pool.py",
    "sessions/test_engine_trouble.py",
    "reconfig/test_putting_systemd.py",
    "reconfig/test_putting_command.py",
    "sessions/test_landscape.py",
)
"""Files that take the better part of a minute and more, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets the longest files begin first: files go to processes whole, and the last would end alone."""
    order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(LONGEST)))


@pytest.fixture
def fail_for_missing_part() -> None:
    """Turns a test whose system part is missing into a failure, where skipping is forbidden."""
    pytest.fail("a system part that this test needs is missing, and SPECTOP_NO_SKIP=1 forbids skipping")
