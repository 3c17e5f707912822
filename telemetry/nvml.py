"""The NVML binding, tamed: imported without its warnings, errors as words, an absent field as `None`.

`nvidia-ml-py` provides the module `pynvml`; another distribution of that name only warns and redirects, and its
warning must not end on the screen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pynvml

binding: Final[Any] = pynvml
NvmlError: Final[type[Exception]] = pynvml.NVMLError

LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
NOT_HERE: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Codes that mean "this GPU or driver doesn't tell that", as against "something is wrong now"."""

_WORDS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA library (libnvidia-ml.so.1) here: no local GPU, or a container "
    "without the driver's utilities",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver/library version mismatch: "
    "the driver was updated, a reboot is due",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to read the GPUs (device files missing in this container?)",
    pynvml.NVML_ERROR_UNKNOWN: "Unknown Error from the driver (has this container lost its devices?)",
    pynvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost: it has fallen off the bus",
    pynvml.NVML_ERROR_RESET_REQUIRED: "GPU requires a reset",
    pynvml.NVML_ERROR_UNINITIALIZED: "the driver's library was shut down",
    pynvml.NVML_ERROR_TIMEOUT: "the driver did not answer in time",
}


def code(error: BaseException) -> int:
    """Returns NVML's number of an error."""
    value = getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)
    return value if isinstance(value, int) else pynvml.NVML_ERROR_UNKNOWN


def words(error_code: int) -> str:
    """Returns one line for the operator; never asks the library, which may be missing."""
    return _WORDS.get(error_code) or f"NVML error {error_code}"


def text(value: Any) -> str | None:
    """Returns what old bindings give as bytes and new ones as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


class Handle:
    """One device, and what went wrong while its fields were read.

    Attributes:
        failed: the code of the last failure that means trouble, since `begin`; `answered`: calls that gave a value.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.device: Any = None
        self.failed: int | None = None
        self.answered = 0
        self._absent: set[str] = set()

    def begin(self, *, retry_absent: bool) -> None:
        """Starts a reading; fields that were not supported are asked again when `retry_absent`."""
        self.failed = None
        self.answered = 0
        if retry_absent:
            self._absent.clear()
        if self.device is None:
            try:
                self.device = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            except NvmlError as error:
                self.failed = code(error)

    @property
    def lost(self) -> bool:
        """Whether a call of this reading said that the GPU is gone."""
        return self.failed in LOST

    def read(self, field: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what the call gives, or `None`: each field fails on its own, and a lost GPU is asked no further."""
        if self.device is None or self.lost or field in self._absent:
            return None
        try:
            value = call(self.device, *arguments)
        except NvmlError as error:
            number = code(error)
            if number in NOT_HERE:
                self._absent.add(field)
            else:
                self.failed = number
            return None
        except UnicodeDecodeError:
            self._absent.add(field)
            return None
        self.answered += field != "pcie_counters"  # that call succeeds even where each of its values fails
        return value
