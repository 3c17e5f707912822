"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# No test talks to anybody outside; and each of some hundred processes would read the system's certificates as soon as
# it imports aiohttp, which takes a tenth of a second. This one is nobody's: its key was thrown away.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))


@pytest.fixture
def fail_for_missing_part() -> None:
    """Turns a test whose system part is missing into a failure, where skipping is forbidden."""
    pytest.fail("a system part that this test needs is missing, and SPECTOP_NO_SKIP=1 forbids skipping")
