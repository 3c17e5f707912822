"""DCGM's exporter, simulated GPUs, and the choice between the sources."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from telemetry.choose import LocalSource, NoSource, TelemetryConfig, gpu_source, is_local
from telemetry.dcgm import DcgmSource, read_gpus
from telemetry.fetch import FetchError, get
from telemetry.gpus import NvmlSource
from telemetry.ownership import ServerHint
from telemetry.simulated import SimulatedSource, is_simulated
from tests.telemetry.captured import Replay, answer, replaying


def exporter(*gpus: int, **values: float) -> str:
    given = {
        "DCGM_FI_DEV_GPU_UTIL": 93,
        "DCGM_FI_DEV_FB_USED": 90_000,
        "DCGM_FI_DEV_FB_FREE": 7_000,
        "DCGM_FI_DEV_FB_RESERVED": 887,
        "DCGM_FI_DEV_POWER_USAGE": 401.25,
        "DCGM_FI_DEV_GPU_TEMP": 70,
        "DCGM_FI_DEV_SM_CLOCK": 2600,
        "DCGM_FI_DEV_MEM_CLOCK": 14001,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 512_345_678_901_234,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 4,
        "DCGM_FI_DEV_XID_ERRORS": 0,
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 600,
        **values,
    }
    lines = []
    for name, value in given.items():
        lines += [f"# HELP {name} A field of DCGM.", f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{gpu="{i}",UUID="GPU-{i}",pci_bus_id="00000000:0{i}:00.0",device="nvidia{i}",'
            f'modelName="NVIDIA RTX PRO 6000",Hostname="gpu1"}} {value}'
            for i in gpus
        ]
    return "\n".join(lines) + "\n"


def test_dcgm_names_and_units():
    gpus = read_gpus(exporter(0, 1))
    assert [gpu.index for gpu in gpus] == [0, 1]
    gpu = gpus[1]
    assert (gpu.uuid, gpu.name, gpu.pci_bus_id) == ("GPU-1", "NVIDIA RTX PRO 6000", "00000000:01:00.0")
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (90_000 * 2**20, 97_887 * 2**20)
    assert (gpu.utilisation, gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (0.93, 401.25, 600.0, 70.0)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (2600.0, 14001.0)
    assert gpu.energy_j == 512_345_678_901.234
    assert (gpu.throttle, gpu.xid) == (("sw_power_cap",), None)


def test_dcgm_blank_values_are_unknown():
    gpu = read_gpus(exporter(0, DCGM_FI_DEV_POWER_USAGE=140737488355330.0, DCGM_FI_DEV_GPU_TEMP=2147483634))[0]
    assert (gpu.power_w, gpu.temperature_c) == (None, None)
    gpu = read_gpus(exporter(0, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=9223372036854775794))[0]
    assert gpu.energy_j is None


def test_dcgm_slices_are_not_the_gpu():
    text = exporter(0).replace(
        "# HELP DCGM_FI_DEV_FB_USED",
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 40\n'
        "# HELP DCGM_FI_DEV_FB_USED",
    )
    gpus = read_gpus(text)
    assert (gpus[1].mig, gpus[1].utilisation) == (True, None)
    assert not gpus[0].mig


async def read(source: Any, t: float = 1.0) -> Any:
    return await asyncio.to_thread(source.read, t)


async def test_dcgm_over_a_socket():
    async with replaying({"/metrics": answer("200 OK", exporter(0, 1, 2))}) as server:
        source = DcgmSource(server.url, ServerHint(gpus=("GPU-2", "0"), pids=(1,)))
        first = await read(source)
        server.answers["/metrics"] = answer("200 OK", exporter(0, 2))
        second = await read(source)
        server.answers["/metrics"] = answer("500 Oh no")
        third = await read(source)
    assert (first.source, first.problem, first.ours) == ("dcgm", None, (0, 2))
    assert [gpu.state for gpu in second.gpus] == ["ok", "absent", "ok"]
    assert [gpu.state for gpu in third.gpus] == ["absent"] * 3
    assert third.problem == f"DCGM exporter: {server.url}/metrics: HTTP 500"
    fourth = await read(source)
    assert "refused" in fourth.problem


async def test_dcgm_without_gpus():
    async with replaying({"/metrics": answer("200 OK", "go_threads 7\n")}) as server:
        sample = await read(DcgmSource(f"{server.url}/metrics"))
    assert "names no GPU" in (sample.problem or "")


SIMULATED = {
    "simulated": True,
    "driver": "590.00",
    "gpus": [
        {
            "index": i,
            "uuid": f"GPU-{i}",
            "name": "RTX PRO 6000",
            "state": "ok",
            "memory_used_bytes": 7,
            "memory_kind": "v2",
            "utilisation": 0.5,
            "throttle": ["gpu_idle"],
            "energy_j": 3.25,
        }
        for i in range(8)
    ],
}


def simulated(**changes: Any) -> bytes:
    return answer("200 OK", json.dumps({**SIMULATED, **changes}))


async def test_simulated_gpus():
    gone = {"index": 7, "uuid": "GPU-7", "name": "RTX PRO 6000", "state": "lost", "xid": 79}
    async with replaying({"/sim/gpus": simulated()}) as server:
        source = SimulatedSource(server.url + "/")
        first = await read(source)
        server.answers["/sim/gpus"] = simulated(gpus=[*SIMULATED["gpus"][:7], gone])  # type: ignore[index]
        second = await read(source)
        assert await asyncio.to_thread(is_simulated, server.url)
    assert (first.source, first.driver, first.ours, first.ours_from) == (
        "simulated",
        "590.00",
        tuple(range(8)),
        "all simulated GPUs",
    )
    assert (first.gpus[0].memory_used_bytes, first.gpus[0].memory_kind, first.gpus[0].throttle) == (
        7,
        "v2",
        ("gpu_idle",),
    )
    assert (second.gpus[7].state, second.gpus[7].xid) == ("lost", 79)
    third = await read(source)
    assert [gpu.state for gpu in third.gpus] == ["absent"] * 8
    assert "refused" in (third.problem or "")


@pytest.mark.parametrize("body", ["", "[]", '{"gpus": [{}]}', '{"gpus": 3}', "<html>"])
async def test_simulated_gpus_of_another_shape(body: str):
    async with replaying({"/sim/gpus": answer("200 OK", body)}) as server:
        sample = await read(SimulatedSource(server.url))
        assert not await asyncio.to_thread(is_simulated, server.url)
    assert (sample.problem or "").startswith("simulated GPUs: ")


async def choose(config: TelemetryConfig) -> Any:
    return await asyncio.to_thread(gpu_source, config)


async def test_auto_takes_what_fits():
    async with replaying({"/sim/gpus": simulated()}) as server:
        choice = await choose(TelemetryConfig(base_url=server.url))
        assert isinstance(choice.source, SimulatedSource)
        assert choice.why == "the server is simulated, and so are its GPUs"
        dcgm = await choose(TelemetryConfig(base_url=server.url, dcgm_url="http://gpu1:9400"))
        assert isinstance(dcgm.source, DcgmSource)
    async with replaying() as server:
        local = await choose(TelemetryConfig(base_url=server.url, gpus=(0, "GPU-1")))
        assert isinstance(local.source, LocalSource)
        assert local.source.name == "nvml"
        assert "on this machine" in local.why
    named = await choose(TelemetryConfig(base_url=server.url, source="nvml"))
    assert isinstance(named.source, NvmlSource)


async def test_a_server_that_starts_later_may_turn_out_to_be_simulated():
    async with replaying() as server:
        port = int(server.url.rpartition(":")[2])
    choice = await choose(TelemetryConfig(base_url=server.url))
    first = await read(choice.source, 1.0)
    assert first.source == "nvml"
    async with replaying({"/sim/gpus": simulated()}, port):
        second = await read(choice.source, 3.0)
    assert (second.source, len(second.gpus), choice.source.name) == ("simulated", 8, "simulated")
    choice.source.close()


async def test_a_real_server_is_asked_once():
    async with replaying() as server:
        source = LocalSource(server.url, ServerHint(), pcie_rate=False)
        for t in range(3):
            assert (await read(source, float(t))).source == "nvml"
        assert server.asked == {"/sim/gpus": 1}
        source.close()


async def test_local_gpus_are_never_a_remote_servers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("telemetry.choose.is_simulated", lambda url: False)
    for source in ("auto", "nvml"):
        choice = await choose(TelemetryConfig(base_url="http://192.0.2.7:30000", source=source))
        assert isinstance(choice.source, NoSource)
        sample = choice.source.read(3.0)
        assert sample.gpus == ()
        assert "192.0.2.7 is another machine" in (sample.problem or "")


async def test_switched_off_and_incomplete():
    off = await choose(TelemetryConfig(base_url="http://127.0.0.1:1", source="none"))
    assert off.source.read(0.0).problem == "GPU telemetry is switched off in the sweep file"
    incomplete = await choose(TelemetryConfig(base_url="http://127.0.0.1:1", source="dcgm"))
    assert "needs the exporter's address" in (incomplete.source.read(0.0).problem or "")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:30000", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:30000", True),
        ("http://0.0.0.0:30000", True),
        ("http://localhost:30000", True),
        ("http://LOCALHOST:30000", True),
        (f"http://{socket.gethostname()}:30000", True),
        ("http://192.0.2.1:30000", False),
        ("http://[2001:db8::1]:30000", False),
        ("http://no-such-host.invalid:30000", False),
        ("not an address", False),
    ],
)
def test_which_addresses_are_this_machines(url: str, local: bool):
    assert is_local(url) is local


async def test_fetch_has_one_deadline_for_a_body_that_drips():
    class Drip(Replay):
        async def reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b".")
                await writer.drain()
                await asyncio.sleep(0.02)

    async with replaying(replay=Drip()) as server, asyncio.timeout(20):
        with pytest.raises(FetchError, match=r"no whole answer within 0\.3 s"):
            await asyncio.to_thread(get, server.url, 0.3)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/x", "not an http:// or https:// address"),
        ("http:///x", "not an http:// or https:// address"),
        ("http://127.0.0.1:99999/", "not an address that can be asked"),
        ("http://[::1", "not an address that can be asked"),
        ("http://no-such-host.invalid/", "no-such-host"),
    ],
)
def test_fetch_says_what_is_wrong(url: str, words: str):
    with pytest.raises(FetchError, match=words):
        get(url, 5.0)


async def test_no_password_in_an_address_is_shown():
    url = "http://operator:hunter2@127.0.0.1:1/metrics?token=hunter3"
    choice = await choose(TelemetryConfig(base_url="http://127.0.0.1:1", dcgm_url=url))
    sample = await read(choice.source)
    assert "hunter" not in choice.why + (sample.problem or "")
    assert "http://127.0.0.1:1/metrics" in (sample.problem or "")


async def test_fetch_of_something_that_is_no_http():
    async with replaying({"/": b"SSH-2.0-OpenSSH\r\n"}) as server:
        assert isinstance(server, Replay)
        with pytest.raises(FetchError):
            await asyncio.to_thread(get, server.url, 5.0)
