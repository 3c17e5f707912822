"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import pytest


@pytest.fixture
def fail_for_missing_part() -> None:
    """Turns a test whose system part is missing into a failure, where skipping is forbidden."""
    pytest.fail("a system part that this test needs is missing, and SPECTOP_NO_SKIP=1 forbids skipping")
