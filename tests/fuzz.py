"""Random inputs through the stream decoder and the reading of its events: `python -m tests.fuzz [N]`.

Whatever comes, nothing may be raised but the documented `EventTooLong`, and what is kept of an event that is not
complete stays below the limit. Inputs are noise, good streams, and good streams damaged in a few places, cut anywhere.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from loadgen.reading import StreamReading
from loadgen.sse import EventDecoder, EventTooLong

LIMIT = 2048
PARTS = [
    b"data: ",
    b"data:",
    b"data",
    b"event: x",
    b"id: 1",
    b"retry: 5",
    b":",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"[DONE]",
    b"null",
    b"[]",
    b"{",
    b"}",
    b"[" * 300,
    b'{"choices":[{"delta":{"content":"a"}}]}',
    b'{"choices":[{"delta":{"content":5,"reasoning":"r"},"finish_reason":7}],"usage":{"completion_tokens":"x"}}',
    b'{"choices":[{"text":"t","finish_reason":"stop"}],"usage":{"completion_tokens":3,"prompt_tokens":-1}}',
    b'{"text":"ab","output_ids":[1,2],"meta_info":{"completion_tokens":2,"finish_reason":{"type":"stop"}}}',
    b'{"text":null,"output_ids":null,"meta_info":{"completion_tokens":-2,"finish_reason":"abort"}}',
    b'{"error":{"message":{"a":[1]},"code":null}}',
    b'{"object":"error","message":"m","code":503}',
    b'{"sglext":{"spec_tokens_details":[{"spec_verify_ct":3,"spec_correct_drafts_histogram":[0,"x",2]}]}}',
    b'{"choices":[null,3],"metrics":{"speculative_decoding":[]},"timings":{"draft_n":1.5}}',
    b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
    b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}},null]}}],"x":NaN}',
]


@dataclass
class FuzzResult:
    """What a run came to.

    Attributes:
        inputs: inputs tried.
        refused: inputs that ended in `EventTooLong`.
        kept_most: most bytes kept of an unfinished event.
    """

    inputs: int = 0
    refused: int = 0
    kept_most: int = 0


def random_input(rng: random.Random) -> bytes:
    """Makes one input: noise, or parts of streams with a few bytes damaged."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(b"".join(rng.choices(PARTS, k=rng.randrange(1, 16))))
    if rng.random() < 0.03:
        data[rng.randrange(len(data)) : 0] = rng.choice([b"x", b"\n", b"data\n"]) * rng.randrange(2 * LIMIT)
    for _ in range(rng.choice((0, 0, 1, 3))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def random_reads(data: bytes, rng: random.Random) -> list[bytes]:
    """Cuts an input anywhere."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 1, 3, 10))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def fuzz(inputs: int, seed: int) -> FuzzResult:
    """Runs inputs through decoder and reading.

    Args:
        inputs: how many.
        seed: makes the run repeatable.

    Raises:
        AssertionError: more was kept than allowed, or two ways of cutting gave different events.
    """
    rng = random.Random(seed)
    result = FuzzResult()
    for _ in range(inputs):
        data = random_input(rng)
        result.inputs += 1
        decoder, reading = EventDecoder(LIMIT), StreamReading(keep_text=True, incremental=rng.random() < 0.3)
        events, too_long = [], False
        for read in random_reads(data, rng):
            reading.feed(read, 1)
            if too_long:
                continue
            try:
                events += decoder.feed(read)
            except EventTooLong:
                too_long = True
                result.refused += 1
            else:
                assert decoder.buffered_bytes <= LIMIT, f"{decoder.buffered_bytes} bytes kept of {data[:200]!r}"
                result.kept_most = max(result.kept_most, decoder.buffered_bytes)
        reading.end()
        reading.failure()
        reading.chunks(0)
        if not too_long:
            whole = EventDecoder(1 << 20)
            assert whole.feed(data) + whole.end() == events + decoder.end(), f"cuts change the events of {data[:200]!r}"
    return result


def main() -> int:
    """Runs as many inputs as the command line says, a million by default."""
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    began, done, step = time.monotonic(), FuzzResult(), 10_000
    for first in range(0, inputs, step):
        part = fuzz(min(step, inputs - first), seed=first)
        done.inputs += part.inputs
        done.refused += part.refused
        done.kept_most = max(done.kept_most, part.kept_most)
    took = time.monotonic() - began
    sys.stdout.write(
        f"{done.inputs:,} inputs in {took:.0f} s: nothing raised but {done.refused:,} events refused as too long; "
        f"at most {done.kept_most:,} bytes kept of one (limit {LIMIT:,})\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
