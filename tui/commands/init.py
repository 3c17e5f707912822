"""`spectop init`: a commented sweep file from a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def init(
    *,
    base_url: Annotated[str, Parameter(help="The running server.")] = "http://127.0.0.1:30000",
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The file to write.")] = Path("sweep.toml"),
    api_key_env: Annotated[str | None, Parameter(help="Environment variable that holds the key.")] = None,
    force: Annotated[bool, Parameter(negative="", help="Write over an existing file.")] = False,
) -> int:
    """Write a commented sweep file from a running server; its present settings are the first preset."""
    import asyncio
    import os
    import sys

    from loadgen.spec import Target
    from reconfig.interrogate import interrogate
    from sessions.errors import SpectopError
    from sessions.folder import write_atomically
    from sessions.sweep import parse_sweep
    from tui.sweep_text import sweep_text

    if not base_url.startswith(("http://", "https://")):
        raise SpectopError(f"--base-url {base_url!r} is no address of a server; it begins with http:// or https://")
    if out.exists() and not force:
        raise SpectopError(f"{out} is there already; name another with -o, or say --force")
    key = os.environ.get(api_key_env) if api_key_env else None
    found = asyncio.run(interrogate(Target(base_url=base_url.rstrip("/"), model="", api_key=key)))
    if found.problem is not None:
        raise SpectopError(found.problem)
    text = sweep_text(found, api_key_env)
    parse_sweep(text, str(out))
    write_atomically(out, text.encode())
    sys.stdout.write(f"wrote {out}; next: spectop check {out}\n")
    return 0
