"""One plain server for the tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simserver.support import Sim, running


@pytest.fixture(scope="module")
def tree_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    flags = (
        "--served-model-name smollm2 --speculative-algorithm DDTREE --speculative-ddtree-budget 8 "
        "--speculative-ddtree-topk 4 --speculative-draft-window-size 2048 --enable-metrics --context-length 2048 "
        "--sim-speed 20"
    )
    with running(tmp_path_factory.mktemp("sim"), *flags.split()) as sim:
        yield sim
