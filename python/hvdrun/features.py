"""What the library was built with, in Horovod's questions. Horovod's answers depend on its build; these do not."""

from __future__ import annotations

import ctypes
import functools

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]


def _no() -> bool:
    return False


mpi_built = mpi_enabled = mpi_threads_supported = ddl_built = ccl_built = rocm_built = _no


def gloo_built() -> bool:
    """Returns True: ranks find each other and exchange tensors without MPI. In Horovod that is Gloo's part."""
    return True


gloo_enabled = gloo_built


def cuda_built() -> bool:
    """Returns True: tensors of CUDA devices can be sent; CUDA is opened when a program has such tensors."""
    return True


@functools.lru_cache(maxsize=None)
def nccl_built() -> int:
    """Returns the version of the NCCL that this process finds, as 21803 for 2.18.3; 0 if it finds none."""
    version = ctypes.c_int()
    try:
        library = ctypes.CDLL("libnccl.so.2")
        if library.ncclGetVersion(ctypes.byref(version)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return version.value
