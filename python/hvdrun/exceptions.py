"""Exceptions of the package.

Each carries the status of ``hvd.h`` and the sentence of the library. The extension makes them by
:func:`from_status`.
"""

from __future__ import annotations

from typing import Dict, Tuple, Type

__all__ = [
    "DuplicateNameError",
    "ForkedError",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "HvdError",
    "InvalidArgumentError",
    "LeftJobError",
    "MismatchError",
    "NotInitializedError",
    "OutOfMemoryError",
    "ProcessSetError",
    "WaitTimeoutError",
    "from_status",
]


class HvdError(RuntimeError):
    """A call of hvdrun's library failed; the text is the library's sentence."""

    status: int = 0
    """The status of ``hvd.h``, below zero."""
    status_name: str = ""
    """The status's name, for example ``HVD_ERR_PEER``."""


class HorovodInternalError(HvdError):
    """A collective operation failed: another rank, its host or an engine has gone, or a system call failed."""


class LeftJobError(HvdError):
    """This worker is not among the ranks of its elastic job any more. It should end with status 0."""


class MismatchError(HorovodInternalError, ValueError):
    """The ranks disagree about an operation. The sentence names the tensor and two ranks with their arguments."""


class DuplicateNameError(HorovodInternalError, ValueError):
    """An operation of this name is pending already."""


class OutOfMemoryError(HorovodInternalError, MemoryError):
    """There is no memory, or no shared memory."""


class InvalidArgumentError(HvdError, ValueError):
    """An argument is wrong; nothing was started."""


class NotInitializedError(HvdError, ValueError):
    """init() was not called, or shutdown() was."""


class ProcessSetError(HvdError, ValueError):
    """There is no such process set, this rank is not in the set, or the set exists already."""


class ForkedError(HvdError):
    """The call was made in a child of fork()."""


class WaitTimeoutError(HvdError, TimeoutError):
    """The time limit of a wait has passed. The operation is pending still, and can be waited for again."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed.

    ``skip_sync``: hosts were only removed, so the state need not be synchronized.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A package was installed with another version than the one that is imported."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} {version} is imported, but {installed_version} was installed with this package")
        self.name = name
        self.version = version
        self.installed_version = installed_version


_KINDS: Dict[int, Tuple[Type[HvdError], str]] = {
    -1: (NotInitializedError, "HVD_ERR_NOT_INITIALIZED"),
    -2: (InvalidArgumentError, "HVD_ERR_INVALID"),
    -3: (MismatchError, "HVD_ERR_MISMATCH"),
    -4: (HorovodInternalError, "HVD_ERR_PEER"),
    -5: (HorovodInternalError, "HVD_ERR_ENGINE"),
    -6: (OutOfMemoryError, "HVD_ERR_MEMORY"),
    -7: (ForkedError, "HVD_ERR_FORKED"),
    -8: (HorovodInternalError, "HVD_ERR_SYSTEM"),
    -9: (DuplicateNameError, "HVD_ERR_IN_PROGRESS"),
    -10: (ProcessSetError, "HVD_ERR_SET_UNKNOWN"),
    -11: (ProcessSetError, "HVD_ERR_SET_FOREIGN"),
    -12: (ProcessSetError, "HVD_ERR_SET_EXISTS"),
    -13: (WaitTimeoutError, "HVD_ERR_TIMEOUT"),
    -14: (LeftJobError, "HVD_ERR_LEFT"),
}


def from_status(status: int, sentence: str) -> HvdError:
    """Returns the exception for a status of ``hvd.h``, with the library's sentence."""
    kind, name = _KINDS.get(status, (HorovodInternalError, f"status {status}"))
    error = kind(sentence or name)
    error.status = status
    error.status_name = name
    return error
