"""Runs every benchmark of this folder, or those named on the command line."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path


def main() -> int:
    """Runs the modules that have a `main()`; returns the exit status."""
    found = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    wanted = sys.argv[1:] or found
    unknown = sorted(set(wanted) - set(found))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(n for n in found if n[0] != '_')}")
        return 2
    for name in wanted:
        module = importlib.import_module(f"benchmarks.{name}")
        if not name.startswith("_") and hasattr(module, "main"):
            print(f"== {name}")
            module.main()
            print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
