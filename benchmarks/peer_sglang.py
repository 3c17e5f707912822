"""SGLang's own load generator, run where its server could not run: what only GPUs need is stood in for.

Its client imports the whole server and uses nothing of that. Run by the Python of the peer's own environment, which has
nothing of this project's.
"""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

ABSENT = ("torchvision", "sgl_kernel")


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> MagicMock:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _StandIns(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


if __name__ == "__main__":
    from transformers.utils import import_utils  # type: ignore[import-not-found]

    import_utils.is_torchvision_available()  # remembered before the stand-ins come: it is not there
    sys.meta_path.append(_StandIns())
    runpy.run_module("sglang.benchmark.serving", run_name="__main__", alter_sys=True)
