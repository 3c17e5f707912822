"""The stub of the driver's library: compiled with the system's compiler, its state written while programs run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

import msgspec
import pynvml
import pytest

from telemetry.samples import GpuSample
from tests.needs import missing

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
GIB = 1024**3
COUNT = 8


def compile_library(folder: Path, *flags: str) -> Path:
    """Compiles `libnvidia-ml.so.1` into the folder and returns the folder, for LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-pthread", *flags]
    name = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run([*command, name, "-o", str(library), str(HERE / "nvml_stub.c")], check=True)
    return folder


def library_or_skip(folder: Path) -> Path:
    """Compiles the library; without a compiler the test is skipped, or fails where skipping is forbidden."""
    if why := missing("cc"):
        give_up = pytest.fail if os.environ.get("SPECTOP_NO_SKIP") == "1" else pytest.skip
        give_up(f"cc: {why}")
    return compile_library(folder)


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-9b1c-4f0e-8a55-{0x7D00 + index:012x}"


def workstation(index: int) -> dict[str, Any]:
    """Returns an RTX PRO 6000 Blackwell that serves a model."""
    return {
        "uuid": uuid(index),
        "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "pci": f"00000000:{1 + 32 * index:02X}:00.0",
        "mem_total": 97887 * 1024 * 1024,
        "mem_used": 88 * GIB + index,
        "mem_reserved": 634 * 1024 * 1024,
        "util": 97,
        "mem_util": 61,
        "power": 412_000 + index,
        "limit": 600_000,
        "temp": 71,
        "sm_clock": 2617,
        "mem_clock": 14001,
        "reasons": 0x0,
        "energy": 5_000_000_000 + index,
        "pcie_tx": 7 * 10**12,
        "pcie_rx": 9 * 10**12,
        "pcie_tx_kb_s": 1_000_000,
        "pcie_rx_kb_s": 2_000_000,
        "ecc": 0,
        "mig": 0,
    }


class StubState:
    """The state file: what devices there are, and how calls behave.

    Attributes:
        devices: values by key of each device; a key left out is not supported.
        rules: lines about calls; `processes`: (device, pid, bytes); `slices`: MIG UUIDs by device.
        xids: (device, code) of events so far; `log`: where every call is noted.
    """

    def __init__(self, path: Path, devices: Iterable[Mapping[str, Any]] | None = None) -> None:
        self.path = path
        self.driver = "580.95.05"
        self.devices = [dict(one) for one in (map(workstation, range(COUNT)) if devices is None else devices)]
        self.rules: list[str] = []
        self.processes: list[tuple[int, int, int]] = []
        self.slices: dict[int, list[str]] = {}
        self.xids: list[tuple[int, int]] = []
        self.log: Path | None = None

    def fail(self, call: str, error: str, device: int | None = None) -> None:
        """Makes a call (or `*`, all) fail with NVML's error of that name, e.g. "GPU_IS_LOST"."""
        self._rule(f"{call} fail {getattr(pynvml, f'NVML_ERROR_{error}')}", device)

    def spin(self, call: str, microseconds: float, device: int | None = None) -> None:
        """Makes a call burn CPU for that long."""
        self._rule(f"{call} spin {microseconds:g}", device)

    def block(self, call: str, file: Path, device: int | None = None) -> None:
        """Makes a call hang for as long as the file exists."""
        self._rule(f"{call} block {file}", device)

    def calls(self) -> list[str]:
        """Returns the calls made since `log` was set, as "NAME DEVICE"."""
        return self.log.read_text().splitlines() if self.log is not None and self.log.exists() else []

    def write(self) -> None:
        """Puts the state in force, at once and whole."""
        lines = [f"driver {self.driver}", f"devices {len(self.devices)}", *self.rules]
        for index, device in enumerate(self.devices):
            lines.extend(f"dev {index} set {key} {value}" for key, value in device.items())
            lines.extend(f"dev {index} migdev {one}" for one in self.slices.get(index, ()))
        lines.extend(f"dev {index} process {pid} {size}" for index, pid, size in self.processes)
        if self.log is not None:
            lines.append(f"log {self.log}")
        lines.extend(f"xid {n + 1} {index} {code}" for n, (index, code) in enumerate(self.xids))
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
        fresh.replace(self.path)

    def _rule(self, text: str, device: int | None) -> None:
        self.rules.append(f"call {text}" if device is None else f"dev {device} call {text}")


class Probe:
    """A process that reads GPUs with the product's own code and the real binding, on the stub library.

    `library` is the folder of the compiled stub, or an empty one: then there is no library at all.
    """

    def __init__(self, library: Path, state: StubState, **source: Any) -> None:
        self.state = state
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "STUB_NVML_STATE": str(state.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.telemetry.stub_nvml.probe", json.dumps(source)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, t: float) -> GpuSample:
        """Reads once, as if at session time `t`."""
        return msgspec.convert(self._ask({"read": t}), GpuSample)

    def watch(self, **hint: Any) -> None:
        """Tells the source where the server is."""
        self._ask({"watch": hint})

    def close(self) -> int:
        """Closes the source; returns the exit status of the process."""
        _stream(self._process.stdin).close()
        status = self._process.wait(20)
        _stream(self._process.stdout).close()
        return status

    def _ask(self, command: dict[str, Any]) -> Any:
        asked, answered = _stream(self._process.stdin), _stream(self._process.stdout)
        asked.write(json.dumps(command) + "\n")
        asked.flush()
        line = answered.readline()
        assert line, f"the probe died with status {self._process.wait(5)}"
        return json.loads(line)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.close()


def _stream(stream: Any) -> TextIO:
    assert stream is not None
    return stream
