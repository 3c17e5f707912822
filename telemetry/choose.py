"""Which source of GPU telemetry fits a server, and the sentence that says why.

The one rule that matters: the GPUs of this machine are never shown as those of a server on another.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import psutil

from telemetry.dcgm import DcgmSource
from telemetry.fetch import shown
from telemetry.ownership import ServerHint
from telemetry.samples import GpuSample, GpuSource
from telemetry.simulated import SimulatedSource, is_simulated

ASK_EVERY_S = 2.0
"""How often a server that does not answer yet is asked whether its GPUs are simulated."""

SourceName = Literal["auto", "nvml", "dcgm", "simulated", "none"]


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the sweep file says about telemetry.

    Attributes:
        base_url: the server's address.
        source: "auto" takes simulated GPUs where the server has them, DCGM where an address is given, else NVML for
            a server of this machine.
        dcgm_url: address of DCGM's exporter on the server's machine.
        gpus: the server's GPUs: indices, full or short UUIDs, MIG UUIDs; `None` leaves it to be found out.
        pcie_rate: also take NVML's PCIe rate, which blocks 20 ms a direction and GPU.
        interval_s: seconds between two readings.
    """

    base_url: str
    source: SourceName = "auto"
    dcgm_url: str | None = None
    gpus: tuple[str | int, ...] | None = None
    pcie_rate: bool = False
    interval_s: float = 1.0


class Choice(msgspec.Struct, frozen=True):
    """The source and why it was chosen, in one sentence for the operator."""

    source: GpuSource
    why: str


class NoSource:
    """Stands where there is nothing to read: every sample says why."""

    name = "none"

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def watch(self, hint: ServerHint) -> None:
        """Has no use for it."""

    def read(self, t: float) -> GpuSample:
        """Returns the sentence again."""
        return GpuSample(t=t, source=self.name, problem=self._problem)

    def close(self) -> None:
        """Holds nothing open."""


class LocalSource:
    """The GPUs of a server on this machine that may turn out to be simulated as soon as it answers.

    Until then, and for a real server, they are NVML's.
    """

    def __init__(self, base_url: str, hint: ServerHint, *, pcie_rate: bool) -> None:
        from telemetry.gpus import NvmlSource

        self._base_url = base_url
        self._hint = hint
        self._source: GpuSource = NvmlSource(hint, pcie_rate=pcie_rate)
        self._decided = False
        self._ask_at = -math.inf

    @property
    def name(self) -> str:
        """The name of the source that is read now."""
        return self._source.name

    def watch(self, hint: ServerHint) -> None:
        """Passes on where the server runs."""
        self._hint = hint
        self._source.watch(hint)

    def read(self, t: float) -> GpuSample:
        """Reads once; asks the server once whether its GPUs are simulated, as soon as it answers."""
        if not self._decided and t >= self._ask_at:
            self._ask_at = t + ASK_EVERY_S
            answer = is_simulated(self._base_url)
            self._decided = answer is not None
            if answer:
                self._source.close()
                self._source = SimulatedSource(self._base_url, self._hint)
        return self._source.read(t)

    def close(self) -> None:
        """Closes the source that is read."""
        self._source.close()


def gpu_source(config: TelemetryConfig) -> Choice:
    """Returns the source for a server; may ask the server once, so call it where blocking for a second is fine."""
    hint = ServerHint(gpus=None if config.gpus is None else tuple(map(str, config.gpus)))
    name = config.source
    if name == "none":
        return _none("GPU telemetry is switched off in the sweep file")
    if name == "dcgm" or (name == "auto" and config.dcgm_url):
        if not config.dcgm_url:
            return _none('no GPU telemetry: source "dcgm" needs the exporter\'s address (dcgm_url)')
        return Choice(DcgmSource(config.dcgm_url, hint), f"GPUs from DCGM's exporter at {shown(config.dcgm_url)}")
    if name == "simulated" or (name == "auto" and is_simulated(config.base_url)):
        return Choice(SimulatedSource(config.base_url, hint), "the server is simulated, and so are its GPUs")
    if not is_local(config.base_url):
        return _none(
            f"no GPU telemetry: {urlsplit(config.base_url).hostname} is another machine, and the GPUs of this one are "
            "not its own; name DCGM's exporter there (dcgm_url)"
        )
    why = "the server is on this machine: its GPUs through NVML"
    if name == "auto":
        return Choice(LocalSource(config.base_url, hint, pcie_rate=config.pcie_rate), why)
    from telemetry.gpus import NvmlSource

    return Choice(NvmlSource(hint, pcie_rate=config.pcie_rate), why)


def is_local(base_url: str) -> bool:
    """Returns whether the address is this machine's: loopback, one of its own names or addresses.

    A port forwarded from another machine also looks local; the sweep file can say `source = "none"` or "dcgm" then.
    """
    host = urlsplit(base_url).hostname
    if not host:
        return False
    if host.lower() in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}:
        return True
    try:
        found = {ipaddress.ip_address(host)}
    except ValueError:
        found = _addresses_of(host)
    own = _own_addresses()
    return bool(found) and all(address.is_loopback or address.is_unspecified or address in own for address in found)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _addresses_of(host: str) -> set[_Address]:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {ipaddress.ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers}


def _own_addresses() -> set[_Address]:
    found: set[_Address] = set()
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family in (socket.AF_INET, socket.AF_INET6):
                found.add(ipaddress.ip_address(address.address.partition("%")[0]))
    return found


def _none(problem: str) -> Choice:
    return Choice(NoSource(problem), problem)
