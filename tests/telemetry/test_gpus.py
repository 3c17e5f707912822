"""The real binding on the stub of the driver's library: values, absent fields, lost devices, owners."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from telemetry.changes import gpu_changes
from tests.needs import needs
from tests.telemetry.stub_nvml.stub import COUNT, GIB, ROOT, Probe, StubState, compile_library, uuid, workstation

Start = Callable[..., Probe]


def test_eight_gpus_with_every_field(probe: Start):
    sample = probe().read(1.0)
    assert (sample.source, sample.problem, sample.driver, len(sample.gpus)) == ("nvml", None, "580.95.05", COUNT)
    for index, gpu in enumerate(sample.gpus):
        assert (gpu.index, gpu.uuid, gpu.state, gpu.note) == (index, uuid(index), "ok", None)
        assert gpu.name == "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
        assert gpu.pci_bus_id == f"00000000:{1 + 32 * index:02X}:00.0"
        assert (gpu.memory_kind, gpu.memory_used_bytes) == ("v2", 88 * GIB + index)
        assert (gpu.memory_reserved_bytes, gpu.memory_total_bytes) == (634 * 1024**2, 97887 * 1024**2)
        assert (gpu.utilisation, gpu.temperature_c, gpu.throttle) == (0.97, 71.0, ())
        assert (gpu.power_w, gpu.power_limit_w) == ((412_000 + index) / 1000, 600.0)
        assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (2617.0, 14001.0)
        assert gpu.energy_j == (5_000_000_000 + index) / 1000
        assert (gpu.pcie_tx_bytes, gpu.pcie_rx_bytes) == (7 * 10**12, 9 * 10**12)
        assert (gpu.ecc_uncorrected, gpu.xid, gpu.mig) == (0, None, False)
        assert gpu.pcie_tx_bytes_s is None
    assert sample.ours == tuple(range(COUNT))
    assert sample.ours_from == "all GPUs of this machine"


def test_slow_pcie_rate_only_when_asked(probe: Start, nvml_state: StubState, tmp_path: Path):
    nvml_state.log = tmp_path / "calls"
    probe().read(1.0)
    assert not [call for call in nvml_state.calls() if "PcieThroughput" in call]
    gpu = probe(pcie_rate=True).read(1.0).gpus[0]
    assert (gpu.pcie_tx_bytes_s, gpu.pcie_rx_bytes_s) == (1_000_000 * 1024.0, 2_000_000 * 1024.0)


def test_memory_falls_back_to_version_1_and_says_so(probe: Start, nvml_state: StubState):
    nvml_state.fail("nvmlDeviceGetMemoryInfo_v2", "FUNCTION_NOT_FOUND")
    gpu = probe().read(1.0).gpus[0]
    assert (gpu.memory_kind, gpu.memory_reserved_bytes) == ("v1", None)
    assert gpu.memory_used_bytes == 88 * GIB + 634 * 1024**2  # the driver's reserve counts as used there


def test_memory_total_of_zero_is_no_figure(probe: Start, nvml_state: StubState):
    nvml_state.devices[0]["mem_total"] = 0
    gpu = probe().read(1.0).gpus[0]
    assert (gpu.memory_kind, gpu.memory_used_bytes, gpu.memory_total_bytes) == (None, None, None)
    assert gpu.note == "memory not reported (unified memory?)"


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("util", "utilisation"),
        ("power", "power_w"),
        ("limit", "power_limit_w"),
        ("temp", "temperature_c"),
        ("sm_clock", "sm_clock_mhz"),
        ("mem_clock", "memory_clock_mhz"),
        ("reasons", "throttle"),
        ("energy", "energy_j"),
        ("pcie_tx", "pcie_tx_bytes"),
        ("ecc", "ecc_uncorrected"),
        ("mem_total", "memory_used_bytes"),
        ("uuid", "uuid"),
        ("name", "name"),
        ("pci", "pci_bus_id"),
    ],
)
def test_each_field_is_absent_on_its_own(probe: Start, nvml_state: StubState, key: str, field: str):
    del nvml_state.devices[3][key]
    gpus = probe().read(1.0).gpus
    assert getattr(gpus[3], field) is None
    assert gpus[3].state == "ok"
    names = [name for name in gpus[2].__struct_fields__ if getattr(gpus[2], name) is not None]
    assert field in names
    memory = {"memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes", "memory_kind"}
    gone = {name for name in names if getattr(gpus[3], name) is None}
    assert gone == (memory if field == "memory_used_bytes" else {field})


def test_throttle_reasons_by_name(probe: Start, nvml_state: StubState):
    nvml_state.devices[2]["reasons"] = 0x1 | 0x4 | 0x40 | 0x8000
    gpu = probe().read(1.0).gpus[2]
    assert gpu.throttle == ("gpu_idle", "sw_power_cap", "hw_thermal_slowdown", "reason_0x8000")


@needs("cc")
def test_an_old_driver_without_the_new_names(tmp_path: Path, nvml_state: StubState):
    nvml_state.devices[0]["reasons"] = 0x8
    nvml_state.write()
    with Probe(compile_library(tmp_path / "old", "-DOLD_DRIVER"), nvml_state) as old:
        assert old.read(1.0).gpus[0].throttle == ("hw_slowdown",)


def test_a_name_that_is_not_text_costs_only_the_name(probe: Start, nvml_state: StubState):
    nvml_state.devices[1]["name"] = "RTX \udcff"
    gpu = probe().read(1.0).gpus[1]
    assert (gpu.name, gpu.state, gpu.utilisation) == (None, "ok", 0.97)


def test_unsupported_fields_are_asked_again_rarely(probe: Start, nvml_state: StubState, tmp_path: Path):
    nvml_state.log = tmp_path / "calls"
    del nvml_state.devices[0]["util"]
    process = probe()
    for t in range(60):
        process.read(float(t))
    asked = [call for call in nvml_state.calls() if call == "nvmlDeviceGetUtilizationRates 0"]
    assert len(asked) == 1
    nvml_state.devices[0]["util"] = 55
    nvml_state.write()
    assert process.read(60.0).gpus[0].utilisation == 0.55


def test_a_lost_gpu_is_a_state_and_is_asked_rarely(probe: Start, nvml_state: StubState, tmp_path: Path):
    process = probe()
    good = process.read(0.0)
    nvml_state.fail("*", "GPU_IS_LOST", 5)
    nvml_state.log = tmp_path / "calls"
    nvml_state.write()
    samples = [process.read(float(t)) for t in range(1, 50)]
    assert [sample.gpus[5].state for sample in samples] == ["lost"] * 49
    assert all(sample.gpus[4].utilisation == 0.97 and sample.problem is None for sample in samples)
    assert samples[0].gpus[5].utilisation is None
    assert samples[0].gpus[5].uuid == uuid(5)
    assert [call for call in nvml_state.calls() if call.endswith(" 5")] == ["nvmlDeviceGetTotalEnergyConsumption 5"]
    news = [gpu_changes(a, b) for a, b in zip([good, *samples], samples, strict=False)]
    assert [line for lines in news for line in lines] == ["GPU 5 is lost: GPU is lost: it has fallen off the bus"]
    nvml_state.rules.clear()
    nvml_state.write()
    back = process.read(62.0)
    assert back.gpus[5].state == "ok"
    assert gpu_changes(samples[-1], back) == ("GPU 5 answers again",)


def test_all_gpus_lost_is_one_line_and_the_library_is_started_again(
    probe: Start, nvml_state: StubState, tmp_path: Path
):
    process = probe()
    good = process.read(0.0)
    nvml_state.fail("*", "GPU_IS_LOST")
    nvml_state.log = tmp_path / "calls"
    nvml_state.write()
    gone = [process.read(float(t)) for t in range(1, 30)]
    assert all(gpu.state == "lost" for sample in gone for gpu in sample.gpus)
    news = [line for a, b in zip([good, *gone], gone, strict=False) for line in gpu_changes(a, b)]
    assert news == ["GPU monitoring lost: GPU is lost: it has fallen off the bus"]
    assert [call for call in nvml_state.calls() if "Init" in call] == ["nvmlInitWithFlags -1"] * 2  # at 6 and 16 s
    nvml_state.rules.clear()
    nvml_state.write()
    back = process.read(40.0)
    assert [gpu.state for gpu in back.gpus] == ["ok"] * COUNT
    assert gpu_changes(gone[-1], back) == ("GPU telemetry is back",)


def test_a_gpu_lost_before_the_start(probe: Start, nvml_state: StubState):
    nvml_state.fail("*", "GPU_IS_LOST", 0)
    process = probe()
    sample = process.read(0.0)
    assert [gpu.state for gpu in sample.gpus] == ["lost"] + ["ok"] * 7
    nvml_state.rules.clear()
    nvml_state.write()
    assert process.read(61.0).gpus[0].uuid == uuid(0)


def test_one_gpu_that_cannot_be_read_leaves_the_others(probe: Start, nvml_state: StubState):
    nvml_state.fail("*", "NO_PERMISSION", 7)
    sample = probe().read(0.0)
    assert [gpu.state for gpu in sample.gpus] == ["ok"] * 7 + ["absent"]
    assert sample.gpus[7].note == "no permission to read the GPUs (device files missing in this container?)"
    assert sample.problem is None


def test_xid_events_arrive_once_and_stay(probe: Start, nvml_state: StubState):
    process = probe()
    before = process.read(0.0)
    nvml_state.xids.append((6, 79))
    nvml_state.write()
    after = process.read(1.0)
    assert [gpu.xid for gpu in after.gpus] == [None] * 6 + [79, None]
    assert gpu_changes(before, after) == ("GPU 6: XID 79 reported by the driver",)
    later = process.read(2.0)
    assert later.gpus[6].xid == 79
    nvml_state.fail("*", "GPU_IS_LOST", 6)
    nvml_state.write()
    assert [process.read(t).gpus[6].xid for t in (3.0, 4.0)] == [79, 79]  # why it is lost stays in sight
    assert gpu_changes(after, later) == ()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("LIB_RM_VERSION_MISMATCH", "driver/library version mismatch"),
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("NO_PERMISSION", "no permission"),
        ("IRQ_ISSUE", "NVML error 11"),
    ],
)
def test_a_library_that_does_not_start(probe: Start, nvml_state: StubState, tmp_path: Path, error: str, words: str):
    nvml_state.fail("nvmlInitWithFlags", error)
    nvml_state.log = tmp_path / "calls"
    process = probe()
    samples = [process.read(float(t)) for t in range(100)]
    assert all(sample.gpus == () and words in (sample.problem or "") for sample in samples)
    assert len(nvml_state.calls()) == 5  # at 0, 5, 15, 35, 75 s: pauses that grow
    nvml_state.rules.clear()
    nvml_state.write()
    back = process.read(400.0)
    assert (back.problem, len(back.gpus)) == (None, COUNT)
    assert gpu_changes(samples[-1], back) == ("GPU telemetry is back",)


def test_the_library_is_shut_down(probe: Start, nvml_state: StubState, tmp_path: Path):
    nvml_state.log = tmp_path / "calls"
    process = probe()
    process.read(0.0)
    assert process.close() == 0
    assert nvml_state.calls()[-1] == "nvmlShutdown -1"


def test_no_library_at_all(tmp_path: Path, nvml_state: StubState):
    with Probe(tmp_path, nvml_state) as process:
        sample = process.read(0.0)
    assert sample.gpus == ()
    assert "no NVIDIA library (libnvidia-ml.so.1)" in (sample.problem or "")


def test_owner_by_process_tree(probe: Start, nvml_state: StubState):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        nvml_state.processes = [(2, child.pid, GIB), (3, child.pid, GIB), (4, 1, GIB)]
        process = probe()
        assert process.read(0.0).ours == tuple(range(COUNT))
        process.watch(pids=[os.getpid()])
        sample = process.read(1.0)
        assert sample.ours == (2, 3)
        assert sample.ours_from == "the GPUs that the server's processes use"
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)


def test_owner_by_the_environment_of_a_server_whose_processes_are_not_visible(probe: Start):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": f"{uuid(4)},{uuid(6)[:12]}"}
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        process = probe()
        process.watch(pids=[child.pid])
        sample = process.read(0.0)
        assert sample.ours == (4, 6)
        assert sample.ours_from == f"the server's CUDA_VISIBLE_DEVICES={uuid(4)},{uuid(6)[:12]}"
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)


def test_process_lists_are_read_rarely(probe: Start, nvml_state: StubState, tmp_path: Path):
    nvml_state.log = tmp_path / "calls"
    process = probe()
    process.watch(pids=[os.getpid()])

    def lists() -> int:
        return nvml_state.calls().count("nvmlDeviceGetComputeRunningProcesses_v3 0")

    for t in range(70):
        process.read(float(t))
    assert lists() == 3  # at 0, 10 and 30 s: nothing seen yet, the pauses grow
    nvml_state.processes = [(0, os.getpid(), GIB)]
    nvml_state.write()
    assert process.read(70.0).ours == (0,)
    before = lists()
    for t in range(71, 370):
        process.read(float(t))
    assert lists() == before


def test_owner_by_mig_uuid(probe: Start, nvml_state: StubState):
    nvml_state.devices[1]["mig"] = nvml_state.devices[2]["mig"] = 1
    nvml_state.slices = {1: ["MIG-aaaa", "MIG-bbbb"], 2: ["MIG-cccc"]}
    process = probe()
    process.watch(visible_devices="MIG-cccc")
    sample = process.read(0.0)
    assert sample.ours == (2,)
    assert sample.gpus[2].mig
    assert sample.gpus[2].note == "MIG is on: figures are of the whole GPU"


def test_importing_and_reading_say_nothing_on_the_terminal(nvml_library: Path, nvml_state: StubState, tmp_path: Path):
    """A distribution named pynvml hooks the import to warn; no such words may reach the screen."""
    (tmp_path / "sitecustomize.py").write_text(
        "import warnings, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pynvml':\n"
        "            warnings.warn('The pynvml package is deprecated.', FutureWarning)\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    nvml_state.write()
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(nvml_library),
        "STUB_NVML_STATE": str(nvml_state.path),
        "PYTHONPATH": str(tmp_path),
    }
    program = "from telemetry.gpus import NvmlSource; print(len(NvmlSource().read(0.0).gpus))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("8\n", "")


HANGING = """
import asyncio, json, sys
from pathlib import Path
from telemetry.gpus import NvmlSource
from telemetry.poller import Poller

async def main():
    loop = asyncio.get_running_loop()
    block = Path(sys.argv[1])
    first, hung = asyncio.Event(), asyncio.Event()
    poller = Poller(NvmlSource(), lambda sample: loop.call_soon_threadsafe(first.set), interval_s=0.02)
    poller.start()
    await first.wait()
    block.touch()
    while poller.cost().hanging_s is None:
        await asyncio.sleep(0.005)
    reads = poller.cost().reads
    turns = 0
    for _ in range(100):
        await asyncio.sleep(0.001)
        turns += 1
    still = poller.cost()
    ended = poller.stop()
    hanging = still.hanging_s is not None
    print(json.dumps({"turns": turns, "reads": still.reads - reads, "hanging": hanging, "ended": ended}))

asyncio.run(main())
"""


async def test_a_hanging_call_holds_up_neither_the_loop_nor_the_end(
    nvml_library: Path, nvml_state: StubState, tmp_path: Path
):
    block = tmp_path / "hang"
    nvml_state.block("nvmlDeviceGetPowerUsage", block, 3)
    nvml_state.write()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library), "STUB_NVML_STATE": str(nvml_state.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGING, str(block), cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert block.exists()  # the call hung to the very end
    assert process.returncode == 0
    assert json.loads(out) == {"turns": 100, "reads": 0, "hanging": True, "ended": False}


def test_the_stub_has_the_struct_versions_of_the_binding(probe: Start):
    """Version 2 of the memory struct is refused by the stub unless its size and number are the driver's."""
    import ctypes

    import pynvml

    assert ctypes.sizeof(pynvml.c_nvmlMemory_v2_t) == pynvml.nvmlMemory_v2 & 0xFFFF == 0x28
    assert workstation(0)["mem_reserved"] == probe().read(0.0).gpus[0].memory_reserved_bytes
