"""Which of the GPUs belong to the server, and how that is known.

In this order: the server's process tree as the driver sees it; the GPUs that the sweep file names; what the server's
own `CUDA_VISIBLE_DEVICES` says; else all. What can't be told apart is said, never guessed: CUDA's index 0 is the
*fastest* GPU, NVML's is the first on the bus.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import psutil


class ServerHint(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about where the server runs.

    Attributes:
        pids: its main processes; children are found from them.
        gpus: GPUs named in the sweep file: NVML indices, full or short UUIDs, MIG UUIDs.
        visible_devices: `CUDA_VISIBLE_DEVICES` of the server, where it is set; "" hides all GPUs.
        device_order: `CUDA_DEVICE_ORDER` of the server.
    """

    pids: tuple[int, ...] = ()
    gpus: tuple[str, ...] | None = None
    visible_devices: str | None = None
    device_order: str | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one GPU from another."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    mig: bool = False
    mig_uuids: tuple[str, ...] = ()


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The server's GPUs.

    Attributes:
        ours: their indices; `None` when it can't be told.
        how: in words; `warning`: what is ambiguous.
        seen: the server's processes were seen on these GPUs.
    """

    ours: tuple[int, ...] | None
    how: str
    warning: str | None = None
    seen: bool = False


class _Named(msgspec.Struct, frozen=True):
    indices: tuple[int, ...]
    unclear: tuple[str, ...]


def process_tree(pids: Collection[int]) -> frozenset[int]:
    """Returns the given processes and all their descendants that run now."""
    found: set[int] = set(pids)
    for pid in pids:
        try:
            found.update(child.pid for child in psutil.Process(pid).children(recursive=True))
        except psutil.Error:
            continue
    return frozenset(found)


def hint_from_process(pid: int, gpus: tuple[str, ...] | None = None) -> ServerHint:
    """Reads a local server process's own view: its environment, where this user may read it."""
    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return ServerHint(pids=(pid,), gpus=gpus)
    return ServerHint(
        pids=(pid,),
        gpus=gpus,
        visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        device_order=environment.get("CUDA_DEVICE_ORDER"),
    )


def resolve(
    devices: Sequence[Device],
    hint: ServerHint,
    gpu_processes: Mapping[int, Collection[int]] | None = None,
    tree: Collection[int] = (),
) -> Ownership:
    """Says which devices are the server's.

    Args:
        devices: all GPUs that can be seen.
        hint: what is known about the server.
        gpu_processes: process ids by GPU index as the driver reports them; `None` where it doesn't.
        tree: the server's processes (`process_tree`).
    """
    if gpu_processes and tree:
        members = frozenset(tree)
        if ours := tuple(sorted(gpu for gpu, pids in gpu_processes.items() if members & set(pids))):
            return Ownership(ours=ours, how="the GPUs that the server's processes use", seen=True)
    if hint.gpus is not None:
        named = _named(devices, hint.gpus)
        warning = f"the sweep file's GPUs {', '.join(named.unclear)}" if named.unclear else None
        if named.indices:
            return Ownership(ours=named.indices, how="named in the sweep file", warning=warning)
        if warning:
            return Ownership(ours=None, how="not known", warning=warning)
        return Ownership(ours=(), how="the sweep file names none")
    if hint.visible_devices is not None:
        return _from_environment(devices, hint.visible_devices, hint.device_order)
    return Ownership(ours=tuple(device.index for device in devices), how="all GPUs of this machine")


def _from_environment(devices: Sequence[Device], visible: str, order: str | None) -> Ownership:
    how = f"the server's CUDA_VISIBLE_DEVICES={visible}"
    entries = tuple(entry.strip() for entry in visible.split(",")) if visible.strip() else ()
    if not entries or entries[0] in ("-1", "NoDevFiles", "void", "none"):
        return Ownership(ours=(), how=how)
    by_number = [entry for entry in entries if entry.isdecimal()]
    if by_number and order != "PCI_BUS_ID" and len({device.name for device in devices}) > 1:
        return Ownership(
            ours=None,
            how="not known",
            warning=f"{how}: CUDA numbers GPUs by speed here, not as the driver does; name UUIDs in the sweep file",
        )
    named = _named(devices, entries)
    if named.unclear:
        return Ownership(ours=None, how="not known", warning=f"{how}: {', '.join(named.unclear)}")
    return Ownership(ours=named.indices, how=how)


def _named(devices: Sequence[Device], entries: Sequence[str]) -> _Named:
    indices: set[int] = set()
    unclear: list[str] = []
    for entry in entries:
        matches = _matching(devices, entry)
        if len(matches) == 1:
            indices.add(matches[0])
        elif matches:
            unclear.append(f"{entry} (ambiguous: GPUs {', '.join(map(str, matches))})")
        else:
            unclear.append(f"{entry} (no such GPU here)")
    return _Named(tuple(sorted(indices)), tuple(unclear))


def _matching(devices: Sequence[Device], entry: str) -> list[int]:
    """Returns the indices that one entry may mean: an index, a UUID or its beginning, a MIG UUID."""
    if entry.isdecimal():
        return [device.index for device in devices if device.index == int(entry)]
    wanted = entry.lower()
    if wanted.startswith("mig-gpu-"):  # the older spelling: MIG-GPU-<uuid>/<gi>/<ci>
        wanted = wanted.removeprefix("mig-").partition("/")[0]
    elif wanted.startswith("mig-"):
        exact = [d.index for d in devices if any(uuid.lower().startswith(wanted) for uuid in d.mig_uuids)]
        sliced = [device.index for device in devices if device.mig]
        return exact or (sliced if not any(device.mig_uuids for device in devices) else [])
    return [d.index for d in devices if wanted and (d.uuid or "").lower().startswith(wanted)]
