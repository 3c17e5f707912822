"""Field cases of kind E: GPUs that can't tell everything, vanish, or are not the ones one thinks.

Each case's script is put on the stub of the driver's library, and read by the product through the real binding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from telemetry.changes import gpu_changes
from telemetry.samples import GpuSample
from telemetry.windows import gpu_window
from tests.telemetry.stub_nvml.stub import GIB, Probe, StubState, library_or_skip

DATA = Path(__file__).parent / "data"

KEYS = {
    "nvmlDeviceGetUUID": ("uuid",),
    "nvmlDeviceGetName": ("name",),
    "nvmlDeviceGetTemperature": ("temp",),
    "nvmlDeviceGetPowerUsage": ("power",),
    "nvmlDeviceGetEnforcedPowerLimit": ("limit",),
    "nvmlDeviceGetClockInfo": ("sm_clock", "mem_clock"),
}
FUNCTIONS = {
    "nvmlInit": ("nvmlInitWithFlags",),
    "nvmlDeviceGetMemoryInfo": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"),
    "nvmlDeviceGetComputeRunningProcesses": ("nvmlDeviceGetComputeRunningProcesses_v3",),
}


def case(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text())


class Script:
    """A case's `nvml.json`: what each call gives, by time; put in force on the stub for one moment at a time."""

    def __init__(self, script: dict[str, Any], state: StubState) -> None:
        self._script = script
        self._state = state

    def at(self, t: float) -> None:
        state = self._state
        state.rules, state.processes, state.devices = [], [], []
        self._answer("nvmlInit", self._script.get("nvmlInit"), t, None)
        for index, calls in enumerate(self._script["devices"]):
            state.devices.append({})
            for call, value in calls.items():
                self._answer(call, value, t, index)
        state.write()

    def _answer(self, call: str, value: Any, t: float, index: int | None) -> None:
        if isinstance(value, dict) and "steps" in value:
            value = [given for since, given in value["steps"] if since <= t][-1]
        if isinstance(value, dict) and "error" in value:
            error = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value["error"]).upper()
            for function in FUNCTIONS.get(call, (call,)):
                self._state.fail(function, error, index)
            return
        if index is None:
            return
        device = self._state.devices[index]
        if isinstance(value, dict) and "bytes" in value:
            value = value["bytes"]  # the library always hands out bytes; here is what they spell
        if call == "nvmlDeviceGetMemoryInfo":
            device |= {"mem_total": value["total"], "mem_used": value["used"]}
        elif call == "nvmlDeviceGetUtilizationRates":
            device |= {"util": value["gpu"], "mem_util": value["memory"]}
        elif call == "nvmlDeviceGetMigMode":
            device["mig"] = value[0]
        elif call == "nvmlDeviceGetComputeRunningProcesses":
            self._state.processes.extend((index, one["pid"], one["usedGpuMemory"]) for one in value)
        else:
            device |= dict.fromkeys(KEYS[call], value)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_or_skip(tmp_path_factory.mktemp("nvml"))


class Monitor:
    """The product's reading of one case."""

    def __init__(self, library: Path, folder: Path, script: dict[str, Any]) -> None:
        self.state = StubState(folder / "nvml.state", ())
        self.script = Script(script, self.state)
        self.script.at(0)
        self.probe = Probe(library, self.state)

    def read(self, *times: float) -> list[GpuSample]:
        samples = []
        for t in times:
            self.script.at(t)
            samples.append(self.probe.read(t))
        return samples


@pytest.fixture
def monitor(library: Path, tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Monitor]]:
    with ExitStack() as stack:

        def start(script: dict[str, Any]) -> Monitor:
            made = Monitor(library, tmp_path, script)
            stack.enter_context(made.probe)
            return made

        yield start


def news(samples: list[GpuSample]) -> list[str]:
    return [line for a, b in zip([None, *samples], samples, strict=False) for line in gpu_changes(a, b)]


Start = Callable[[dict[str, Any]], Monitor]


def test_f80_memory_not_supported(monitor: Start):
    wanted = case("F80", "expected.json")["gpu0"]
    first, again = monitor(case("F80", "nvml.json")).read(0, 1)
    assert first.problem is None
    for sample in (first, again):
        gpu = sample.gpus[0]
        assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_kind) == (None, None, None)
        assert gpu.utilisation == wanted["util"] / 100
        assert (gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (wanted["power_w"], None, wanted["temp_c"])
        assert "memory not reported" in (gpu.note or "")
    facts = gpu_window([first, again], 0, 1)
    assert facts.memory_peak_bytes == (None,)
    assert facts.utilisation_mean == 0.4


def test_f81_lost_in_the_middle(monitor: Start):
    wanted = case("F81", "expected.json")
    samples = monitor(case("F81", "nvml.json")).read(*wanted["poll_times"])
    for index in (0, 1):
        given = [sample.gpus[index].utilisation for sample in samples]
        assert given == [None if value is None else value / 100 for value in wanted[f"gpu{index}_util"]]
    assert [sample.gpus[1].state for sample in samples] == ["ok"] * 3 + [wanted["gpu1_state_after_30"]] * 3
    assert [line for line in news(samples) if "lost" in line] == [
        "GPU 1 is lost: GPU is lost: it has fallen off the bus"
    ]
    facts = gpu_window(samples, 0, 50)
    assert facts.lost_gpus == (1,)
    assert facts.energy_j is None
    assert facts.utilisation_mean == pytest.approx(0.73)  # of good readings only, gaps are not zeros
    assert (facts.samples_good, facts.samples_seen) == (3, 6)


def test_f82_driver_and_library_do_not_match(monitor: Start, tmp_path: Path):
    wanted = case("F82", "expected.json")
    started = monitor(case("F82", "nvml.json"))
    started.state.log = tmp_path / "calls"
    samples = started.read(*range(60))
    assert all(wanted["reason_contains"] in (sample.problem or "") and not sample.gpus for sample in samples)
    assert len(news(samples)) == 1
    assert len([call for call in started.state.calls() if call.startswith("nvmlInit")]) == 4  # no storm of retries
    facts = gpu_window(samples, 0, 59)
    assert (facts.energy_j, facts.power_mean_w, facts.memory_peak_bytes) == (None, None, ())


def test_f83_devices_vanish_from_the_container(monitor: Start):
    wanted = case("F83", "expected.json")
    times = range(0, 600, wanted["poll_every_s"])
    samples = monitor(case("F83", "nvml.json")).read(*times)
    facts = gpu_window(samples, 0, 600)
    assert (facts.samples_good, facts.samples_seen) == (wanted["good_samples"], wanted["of"])
    assert facts.utilisation_mean == pytest.approx(wanted["mean_util"] / 100)
    lines = news(samples)
    assert len(lines) == wanted["events"]
    assert lines[0].startswith("GPU monitoring lost: Unknown Error")
    assert samples[-1].gpus[0].state == "absent"


def test_f84_mig(monitor: Start):
    wanted = case("F84", "expected.json")
    started = monitor(case("F84", "nvml.json"))
    started.probe.watch(visible_devices=case("F84", "env.json")["CUDA_VISIBLE_DEVICES"])
    (sample,) = started.read(0)
    gpu = sample.gpus[0]
    assert gpu.utilisation is wanted["util"]
    assert gpu.mig is wanted["mig"]
    assert wanted["mem_label"] in (gpu.note or "")
    assert gpu.memory_used_bytes == 15 * GIB
    assert sample.ours == (0,)  # the only GPU with slices
    assert gpu_window([sample], 0, 0).utilisation_mean is None


def test_f85_no_library(library: Path, tmp_path: Path):
    state = StubState(tmp_path / "nvml.state", ())
    state.write()
    with Probe(tmp_path, state) as probe:
        missing = probe.read(0)
    assert missing.gpus == ()
    assert "no NVIDIA library" in (missing.problem or "")
    facts = gpu_window([missing], 0, 10)
    assert (facts.utilisation_mean, facts.power_mean_w, facts.energy_j) == (None, None, None)


@pytest.mark.parametrize(
    ("file", "words"), [("nvml.json", "no NVIDIA library"), ("nvml_b.json", "the NVIDIA driver sees no GPU here")]
)
def test_f85_library_says_so_or_counts_none(monitor: Start, file: str, words: str):
    samples = monitor(case("F85", file)).read(0, 1)
    assert all(sample.gpus == () and words in (sample.problem or "") for sample in samples)
    assert gpu_window(samples, 0, 1).utilisation_mean is None


@pytest.mark.parametrize("which", ["a", "b", "c", "d", "e"])
def test_f86_which_gpu(monitor: Start, which: str):
    wanted = case("F86", "expected.json")[which]
    visible = case("F86", "envs.json")[which]["CUDA_VISIBLE_DEVICES"]
    started = monitor(case("F86", "nvml.json"))
    started.probe.watch(visible_devices=visible)
    (sample,) = started.read(0)
    if which == "e":
        assert sample.ours == ()
        return
    ambiguous = wanted == "ambiguous" or which == "a"
    assert sample.ours == (None if ambiguous else (wanted,))
    assert bool(sample.ours_warning) is ambiguous
    if ambiguous:
        assert gpu_window([sample], 0, 0).memory_peak_bytes == ()  # no figure from a GPU that may not be the server's
        assert visible in (sample.ours_warning or "")
        started.probe.watch(visible_devices=visible, pids=[4188])
        (sample,) = started.read(1)
        assert (sample.ours, sample.ours_warning) == ((1,), None)


def test_f88_power_and_names(monitor: Start):
    wanted = case("F88", "expected.json")
    samples = monitor(case("F88", "nvml.json")).read(0, 1)
    gpus = samples[0].gpus
    assert [gpu.power_w for gpu in gpus] == wanted["power_w"]
    shares = [100 * gpu.power_w / gpu.power_limit_w if gpu.power_w and gpu.power_limit_w else None for gpu in gpus]
    assert shares == [None if value is None else pytest.approx(value, abs=1e-3) for value in wanted["power_pct"]]
    assert gpus[3].name == wanted["name3"]
    facts = gpu_window(samples, 0, 1)
    assert facts.power_mean_w is None  # of four GPUs one is unknown: the sum is, too
    assert facts.energy_j is None
