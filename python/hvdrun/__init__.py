"""hvdrun: collective operations for the workers of a distributed job, on NumPy arrays and other buffers.

::

    import numpy as np
    import hvdrun as hvd

    hvd.init()
    mean = hvd.allreduce(np.ones(4) * hvd.rank(), name="x")

Started with ``hvdrun -np 4 python3 program.py``. A program that was started without hvdrun is a job of one rank.
Import ``hvdrun.torch`` for tensors of PyTorch.
"""

import sys

# One line for each Python that cannot load the extension. (No __future__ import here: old ones stop at that.)
if sys.version_info < (3, 11) or sys.implementation.name != "cpython":
    raise ImportError("hvdrun needs CPython 3.11 or newer, and this is %s %d.%d" % (
        sys.implementation.name, sys.version_info[0], sys.version_info[1]))
if "t" in getattr(sys, "abiflags", ""):
    raise ImportError("hvdrun needs a CPython with the GIL, and this is a free-threaded one")

from hvdrun import elastic
from hvdrun._hvd import Memory, alloc
from hvdrun.arrays import (
    Adasum,
    Average,
    Max,
    Min,
    Operation,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    empty,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    join,
    poll,
    receive,
    receive_async,
    reducescatter,
    reducescatter_async,
    send,
    send_async,
    synchronize,
)
from hvdrun.exceptions import (
    DuplicateNameError,
    ForkedError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    HvdError,
    InvalidArgumentError,
    LeftJobError,
    MismatchError,
    NotInitializedError,
    OutOfMemoryError,
    ProcessSetError,
    WaitTimeoutError,
)
from hvdrun.job import (
    abort,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    version,
)
from hvdrun.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "Adasum",
    "Average",
    "DuplicateNameError",
    "ForkedError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "HvdError",
    "InvalidArgumentError",
    "LeftJobError",
    "Max",
    "Memory",
    "Min",
    "MismatchError",
    "NotInitializedError",
    "Operation",
    "OutOfMemoryError",
    "ProcessSet",
    "ProcessSetError",
    "Product",
    "Sum",
    "WaitTimeoutError",
    "abort",
    "add_process_set",
    "allgather",
    "allgather_async",
    "alloc",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "cross_rank",
    "cross_size",
    "elastic",
    "empty",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "receive",
    "receive_async",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "send",
    "send_async",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
    "version",
]
__version__ = version()


def __getattr__(name: str) -> object:
    # A rank rarely starts jobs itself: the module for that is imported at its first use.
    if name == "run":
        from hvdrun.runner import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
