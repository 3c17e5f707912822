"""What the cases of saved sessions begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sessions.made import make_session


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A whole session that the product wrote."""
    return make_session(tmp_path / "sessions")
