"""One reading of the machine: every field may be absent on its own (`None`), and a lost GPU is a state, not an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from telemetry.ownership import ServerHint


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment.

    Attributes:
        memory_used_bytes: without the driver's reserve when `memory_kind` is "v2", with it when "v1".
        utilisation: share of time a kernel ran in the driver's last sample period, 0 to 1.
        power_w, power_limit_w: watts; `temperature_c`: degrees Celsius; clocks in MHz.
        energy_j: joules since the driver was loaded.
        throttle: names of active clock event reasons, idle and application clocks included.
        pcie_tx_bytes, pcie_rx_bytes: counters since the driver was loaded.
        state: "ok", "lost" (fell off the bus), or "absent" (was there before, nothing can be read now).
        mig: the GPU is cut into MIG slices: its figures are those of the whole GPU, not of a slice.
        pcie_tx_bytes_s, pcie_rx_bytes_s: bytes a second, only where the slow call was asked for or nothing else is.
        read_after_s: seconds after the sample's `t` at which this GPU's counters were read.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    state: Literal["ok", "lost", "absent"] = "ok"
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_kind: Literal["v2", "v1"] | None = None
    utilisation: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: tuple[str, ...] | None = None
    energy_j: float | None = None
    pcie_tx_bytes: int | None = None
    pcie_rx_bytes: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    note: str | None = None
    mig: bool = False
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    read_after_s: float | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs at one moment: a line of `gpus.jsonl`.

    Attributes:
        t: seconds since the session's start; `poll_s`: what the reading itself took.
        source: "nvml", "dcgm", "simulated"; `problem`: one clear line when there is nothing to read.
        ours: indices of the GPUs that belong to the server; `ours_from`: how that is known, in words;
            `ours_warning`: what is ambiguous about it.
    """

    t: float
    source: str
    gpus: tuple[GpuReading, ...] = ()
    poll_s: float | None = None
    problem: str | None = None
    ours: tuple[int, ...] | None = None
    ours_from: str | None = None
    ours_warning: str | None = None
    driver: str | None = None


class ServerSample(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own gauges at one moment: a line of `server.jsonl`. Ranks are summed where that is right.

    Attributes:
        running, waiting: requests; `token_usage`: share of the KV cache in use.
        gen_throughput_tok_s: the server's own gauge; `decode_tok_s`: from counter deltas, exact.
        generated_total, verify_calls_total, drafts_total, draft_tokens_total, accepted_total: counters as read;
            those of SGLang move only when a request ends.
        acceptance_gauge: the server's last-window gauge, under the server's own definition, which
            `acceptance_gauge_label` says in words.
        acceptance_lifetime: mean since start or the last flush; absent where several ranks have different ones, which
            `acceptance_by_rank` then holds (they can't be averaged without their weights).
        cache_hit_rate: SGLang: of its last prefill batch; vLLM: of the tokens queried since the last sample.
        queue_time_mean_s: of the requests that left the queue since the last sample.
        counters_reset: a counter went backwards since the last sample.
        stale: nothing runs, so the server's gauges tell of its last work; `gen_throughput_tok_s` is absent then, and
            `gen_throughput_last_tok_s` holds what the gauge still shows.
        ranks: data-parallel ranks or engines that reported.
        problem: what could not be read and why, in one line; the other fields still count.
    """

    t: float
    source: str
    running: int | None = None
    waiting: int | None = None
    token_usage: float | None = None
    cache_hit_rate: float | None = None
    gen_throughput_tok_s: float | None = None
    decode_tok_s: float | None = None
    decode_tokens_total: float | None = None
    generated_total: float | None = None
    verify_calls_total: float | None = None
    drafts_total: float | None = None
    draft_tokens_total: float | None = None
    accepted_total: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    acceptance_gauge: float | None = None
    acceptance_lifetime: float | None = None
    counters_reset: bool = False
    stale: bool = False
    gen_throughput_last_tok_s: float | None = None
    acceptance_gauge_label: str | None = None
    acceptance_by_rank: tuple[float | None, ...] | None = None
    queue_time_mean_s: float | None = None
    ranks: int = 1
    fetch_s: float | None = None
    problem: str | None = None


class GpuSource(Protocol):
    """Whatever can read the GPUs: NVML, DCGM's exporter, the simulated server."""

    @property
    def name(self) -> str:
        """The `source` of its samples."""
        ...

    def read(self, t: float) -> GpuSample:
        """Reads all GPUs once; blocking, called on the poller's own thread; never raises."""
        ...

    def watch(self, hint: ServerHint) -> None:
        """Takes what is known about where the server runs, so that its GPUs can be told from others.

        To be called after each of its starts; may be called from another thread than the one that reads.
        """
        ...

    def close(self) -> None:
        """Gives back what it holds."""
        ...
