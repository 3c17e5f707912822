"""Batch lines of servers' logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.decode_log import BatchLine, read_batch_line


def test_line_of_the_current_release() -> None:
    line = (
        "[2026-11-29 22:14:00 TP0] Decode batch, #running-req: 3, #token: 2345, token usage: 0.02, accept len: 4.31, "
        "accept rate: 0.47, cuda graph: True, gen throughput (token/s): 211.40, #queue-req: 1"
    )
    assert read_batch_line(line) == BatchLine(
        kind="decode",
        running=3,
        queued=1,
        token_usage=0.02,
        accept_length=4.31,
        accept_rate=0.47,
        gen_tok_s=211.4,
        graph=True,
        tp=0,
    )


def test_prefill_line_of_a_cpu_build() -> None:
    line = (
        "[2026-11-29 22:14:00] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 31, token usage: 0.00, "
        "#running-req: 0, #queue-req: 0, #pending-token: 0, cpu graph: False, input throughput (token/s): 4.01"
    )
    found = read_batch_line(line)
    assert found is not None
    assert (found.kind, found.new_tokens, found.cached_tokens, found.graph) == ("prefill", 1, 31, False)
    assert found.gen_tok_s is None


def test_old_line_with_full_stops() -> None:
    line = "[2025-02-01 10:00:00 DP3 TP1] Decode batch. #running-req: 2, #token: 80, gen throughput (token/s): 12.5"
    found = read_batch_line(line)
    assert found is not None
    assert (found.dp, found.tp, found.running, found.gen_tok_s) == (3, 1, 2, 12.5)


@pytest.mark.parametrize("told", ["0.00", "nan", "inf", "", "many"])
def test_what_is_no_acceptance_length(told: str) -> None:
    found = read_batch_line(f"[2026-11-29 22:14:00] Decode batch, #running-req: 1, accept len: {told}, #queue-req: 0")
    assert found is not None
    assert found.accept_length is None
    assert found.running == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Decode batch, accept len: 3.00",
        "[2026-11-29 22:14:00] INFO: GET /Decode batch, accept len: 3.00",
        "[2026-11-29 22:14:00] The server is fired up and ready to roll!",
    ],
)
def test_other_lines(line: str) -> None:
    assert read_batch_line(line) is None


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    read_batch_line(text)
    found = read_batch_line(f"[x] Decode batch, {text}")
    assert found is None or found.accept_length is None or found.accept_length >= 1.0
