"""What can go wrong on the way to a server, as exceptions.

    LoadError                what every error of this package's outside is
    ├─ TargetError           the server can't be measured; raised by `detect_target`
    │  ├─ TargetUnreachable  nothing answers at the address: start the server, or correct `base_url`
    │  ├─ TargetRefused      wrong or missing key (401, 403): set the variable that `api_key_env` names
    │  ├─ NoModels           an address that answers, but serves no model: wrong port or path, or still loading
    │  └─ ModelNotServed     the wanted model is not among those served: the message names them
    ├─ CellError             a cell can't be run as asked (a workload's file, too many streams); raised by `run_cell`
    └─ WorkerLost            a load process died; raised by every call of the pool until it is restarted

A request that fails is no exception: it is the outcome of its record.
"""

from __future__ import annotations


class LoadError(Exception):
    """Base of this package's errors; its text is fit for an operator."""


class TargetError(LoadError):
    """The server can't be measured.

    Attributes:
        base_url: the address that was tried.
    """

    def __init__(self, message: str, *, base_url: str) -> None:
        super().__init__(message)
        self.base_url = base_url


class TargetUnreachable(TargetError):
    """Nothing answers at the address, or not in time."""


class TargetRefused(TargetError):
    """The server refuses the key, or asks for one."""


class NoModels(TargetError):
    """The address answers, but it lists no model."""


class ModelNotServed(TargetError):
    """The wanted model is not served.

    Attributes:
        served: names of the models that are.
    """

    def __init__(self, message: str, *, base_url: str, served: tuple[str, ...]) -> None:
        super().__init__(message, base_url=base_url)
        self.served = served


class CellError(LoadError):
    """A cell can't be run as asked."""


class WorkerLost(LoadError):
    """A load process died.

    Attributes:
        stderr_tail: the last lines it wrote to its standard error.
    """

    def __init__(self, message: str, *, stderr_tail: str = "") -> None:
        super().__init__(message if not stderr_tail else f"{message}; it last wrote:\n{stderr_tail}")
        self.stderr_tail = stderr_tail
