"""System parts that some tests need: skipped with a visible reason where absent, a failure on CI.

`@needs("tmux")` marks a test; with `SPECTOP_NO_SKIP=1` an absent part makes the test fail instead of being skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _is_root() -> str | None:
    return None if os.geteuid() == 0 else "run by an ordinary user"


def _may_mount() -> str | None:
    asked = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    try:
        done = subprocess.run(asked, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "util-linux is not installed"
    return None if done.returncode == 0 else f"no mount in a user namespace: {done.stderr.strip()}"


def _has_systemd() -> str | None:
    if why := _is_root():
        return why
    if not Path("/lib/systemd/systemd").exists():
        return "Debian's package systemd is not installed"
    return None if shutil.which("unshare") and shutil.which("nsenter") else "util-linux is not installed"


def _has_command(*names: str) -> Callable[[], str | None]:
    def check() -> str | None:
        if any(shutil.which(name) or Path("/usr/sbin", name).exists() for name in names):
            return None
        return f"none of {', '.join(names)} is installed (make system-packages)"

    return check


PARTS: dict[str, Callable[[], str | None]] = {
    "tmux": _has_command("tmux"),
    "sshd": _has_command("sshd"),
    "bwrap": _has_command("bwrap"),
    "chromium": _has_command("chromium", "chromium-browser"),
    "cc": _has_command("cc", "gcc"),
    "systemd": _has_systemd,
    "mount": _may_mount,
    "root": _is_root,
}


def missing(part: str) -> str | None:
    """Returns why a part is missing, or `None` when it is there."""
    return PARTS[part]()


def needs(*parts: str) -> Callable[[Any], Any]:
    """Marks a test as needing parts of the system; see the module's docstring."""
    reasons = [f"{part}: {why}" for part in parts if (why := missing(part))]

    def mark(test: Any) -> Any:
        if not reasons:
            return test
        if os.environ.get("SPECTOP_NO_SKIP") == "1":
            return pytest.mark.usefixtures("fail_for_missing_part")(test)
        return pytest.mark.skip(reason="; ".join(reasons))(test)

    return mark
