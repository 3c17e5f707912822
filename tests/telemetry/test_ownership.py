"""Which GPUs are the server's: never a guess."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from telemetry.ownership import Device, ServerHint, hint_from_process, process_tree, resolve

SAME = tuple(Device(index=i, uuid=f"GPU-{i:08x}-aaaa", name="RTX PRO 6000") for i in range(4))
MIXED = (
    Device(index=0, uuid="GPU-00000000-aaaa", name="T1000"),
    Device(index=1, uuid="GPU-00000001-aaaa", name="H200"),
)
SLICED = (
    Device(index=0, uuid="GPU-aa", mig=True, mig_uuids=("MIG-1111-x", "MIG-2222-x")),
    Device(index=1, uuid="GPU-bb", mig=True, mig_uuids=("MIG-3333-x",)),
)


def test_the_process_tree_comes_first():
    hint = ServerHint(pids=(7,), gpus=("0",), visible_devices="3")
    found = resolve(SAME, hint, {0: [1], 1: [8], 2: [7, 9], 3: []}, {7, 8})
    assert (found.ours, found.how) == ((1, 2), "the GPUs that the server's processes use")


@pytest.mark.parametrize("processes", [None, {}, {0: [], 1: []}, {0: [99]}])
def test_processes_that_are_not_visible_leave_it_to_the_sweep_file(processes: dict[int, list[int]] | None):
    found = resolve(SAME, ServerHint(pids=(7,), gpus=("1", "3")), processes, {7})
    assert (found.ours, found.how) == ((1, 3), "named in the sweep file")


@pytest.mark.parametrize(
    ("entries", "ours"),
    [
        (("2",), (2,)),
        (("GPU-00000003-aaaa",), (3,)),
        (("gpu-00000003",), (3,)),
        (("3", "GPU-00000000", "3"), (0, 3)),
    ],
)
def test_indices_and_full_and_short_uuids(entries: tuple[str, ...], ours: tuple[int, ...]):
    found = resolve(SAME, ServerHint(gpus=entries))
    assert (found.ours, found.warning) == (ours, None)


def test_what_the_sweep_file_names_wrongly_is_said():
    found = resolve(SAME, ServerHint(gpus=("9", "GPU-0000000", "1")))
    assert found.ours == (1,)
    assert found.warning == ("the sweep file's GPUs 9 (no such GPU here), GPU-0000000 (ambiguous: GPUs 0, 1, 2, 3)")
    assert resolve(SAME, ServerHint(gpus=("9",))).ours is None


def test_a_sweep_file_may_name_none():
    assert resolve(SAME, ServerHint(gpus=())).ours == ()


@pytest.mark.parametrize("visible", ["", "  ", "-1", "NoDevFiles"])
def test_hidden_gpus(visible: str):
    assert resolve(SAME, ServerHint(visible_devices=visible)).ours == ()


def test_numbers_of_the_environment_are_clear_only_among_equal_gpus_or_in_bus_order():
    assert resolve(SAME, ServerHint(visible_devices="2,3")).ours == (2, 3)
    assert resolve(MIXED, ServerHint(visible_devices="0", device_order="PCI_BUS_ID")).ours == (0,)
    unclear = resolve(MIXED, ServerHint(visible_devices="0"))
    assert unclear.ours is None
    assert "CUDA numbers GPUs by speed here" in (unclear.warning or "")
    assert resolve(MIXED, ServerHint(visible_devices="GPU-00000001")).ours == (1,)


def test_mig_uuids_mean_their_parents():
    assert resolve(SLICED, ServerHint(visible_devices="MIG-3333-x")).ours == (1,)
    assert resolve(SLICED, ServerHint(gpus=("MIG-2222-x", "MIG-3333"))).ours == (0, 1)
    assert resolve(SLICED, ServerHint(visible_devices="MIG-GPU-bb/7/0")).ours == (1,)
    assert resolve(SLICED, ServerHint(visible_devices="MIG-9999")).ours is None


def test_mig_slices_that_cannot_be_listed():
    one = (Device(index=0, uuid="GPU-aa"), Device(index=1, uuid="GPU-bb", mig=True))
    assert resolve(one, ServerHint(visible_devices="MIG-9999")).ours == (1,)
    two = tuple(Device(index=i, uuid=f"GPU-{i}", mig=True) for i in range(2))
    assert resolve(two, ServerHint(visible_devices="MIG-9999")).ours is None


def test_without_any_knowledge_all_are():
    found = resolve(SAME, ServerHint())
    assert (found.ours, found.how) == ((0, 1, 2, 3), "all GPUs of this machine")


def test_a_real_process_tells_its_tree_and_its_environment():
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0);"
        "print(p.pid, flush=True); p.wait()"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-12", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert {parent.pid, child} <= process_tree([parent.pid])
        hint = hint_from_process(parent.pid, ("0",))
        parent.communicate("\n", timeout=20)
    assert hint == ServerHint(pids=(parent.pid,), gpus=("0",), visible_devices="GPU-12", device_order="PCI_BUS_ID")
    assert process_tree([parent.pid]) == {parent.pid}
    assert hint_from_process(parent.pid) == ServerHint(pids=(parent.pid,))
