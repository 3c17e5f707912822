"""`python -m simserver`: the simulated load, with its log, and then the server."""

from __future__ import annotations

import sys

from simserver.flags import parse
from simserver.log import ServerLog
from simserver.settings import StartError


def main(argv: list[str]) -> int:
    """Runs the server; returns the exit status."""
    try:
        settings = parse(argv)
    except StartError as error:
        sys.stderr.write(f"ValueError: {error}\n")
        return 1
    log = ServerLog(int(settings.args["tp_size"]))
    for note in settings.notes:
        log.line(note)
    shown = {key: "<redacted>" if key.endswith("api_key") and value else value for key, value in settings.args.items()}
    log.line(f"server_args={shown!r}")
    from simserver.loading import load

    loaded = load(settings, log)
    if loaded is None:
        return 1
    import uvloop

    from simserver.serve import serve

    return uvloop.run(serve(settings, log, *loaded))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
