"""Reads the GPUs as told on standard input, one JSON command a line; answers a line each."""

from __future__ import annotations

import json
import sys

import msgspec

from telemetry.gpus import NvmlSource
from telemetry.ownership import ServerHint


def main() -> None:
    source = NvmlSource(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        command = json.loads(line)
        answer: object = None
        if "watch" in command:
            source.watch(msgspec.convert(command["watch"], ServerHint))
        else:
            answer = source.read(command["read"])
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()
    source.close()


if __name__ == "__main__":
    main()
