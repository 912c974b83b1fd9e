"""The binding: hvd.h for Python. All arguments are positional.

A *buffer* is one of

* a tuple ``(address, count, dtype)``, then maybe ``stream`` and ``shape``: memory at an address, of `count` elements
  of a number of hvd_dtype. The tuple is not checked, and nothing but `owner` is kept. This is the fast way. `stream`
  is a CUstream, 0 is the legacy default stream, and None is memory of the host. `shape` is a tuple of numbers;
* an object with the buffer protocol (C-contiguous; bytes are uint8), ``__array_interface__``,
  ``__cuda_array_interface__`` or ``__dlpack__``. The object is kept until the operation has ended.

TypeError: an object is no buffer, or its dtype is not one of hvd_dtype. ValueError: it is not contiguous, or is
read-only and would be written. Each status of hvd.h becomes an exception of hvdrun.exceptions.

`owner` is any object. The operation keeps it until its end, so it can hold the memory of a tuple.

A blocking form may have one argument more, the time limit of Handle.wait. After WaitTimeoutError it is pending.
Blocking forms and Handle.wait release the GIL and run signal handlers at least every 50 ms. If a handler raises
(^C: KeyboardInterrupt), the operation stays pending, and keeps its buffers.

All ranks call the same operations with the same names (str, 1 to 255 bytes of UTF-8).
"""

from typing import Any, Optional, Sequence

# A tuple, or an object: those of __array_interface__ and the like have no common type.
BufferLike = Any

class Memory:
    """Bytes of the library, or those of a result; writable, by the buffer protocol. Freed with its last view."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shared(self) -> bool:
        """True: from alloc(), in memory that the ranks of a host share."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Handle:
    """One operation. Buffers and owner live until it has ended, also when the Handle is dropped before."""

    def wait(self, timeout: Optional[float] = None, /) -> Any:
        """Waits until the operation has ended, and returns its result.

        The result is a Memory for allgather and alltoall, the rank that joined last for join, else None. Later
        calls return the same, or raise the same error.

        timeout: seconds; 0 looks once. WaitTimeoutError: the operation is pending still. One thread waits at a
        time.
        """
    def poll(self) -> bool:
        """True: wait() will not block. Errors are raised by wait() only."""
    @property
    def done(self) -> bool:
        """True: the operation has ended, and a call of wait() or poll() has seen that."""
    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> Optional[list[int]]:
        """After an allgather or alltoall: the number of rows that came from each rank."""

class Persistent:
    """An allreduce that allreduce_init() has checked: started and waited for any number of times.

    Until it is gone, no other call of this rank may use its name. The buffers live as long.
    """

    def start(self) -> None:
        """Begins with the elements of this moment. DuplicateNameError: it was started and not waited for."""
    def wait(self, timeout: Optional[float] = None, /) -> None:
        """Waits until the operation has ended; at once if it was not started. Time limit and errors: Handle.wait."""
    def poll(self) -> bool:
        """True: wait() will not block."""

# ---- the job ----

def init() -> None: ...
def shutdown() -> None:
    """Leaves the job. DuplicateNameError: operations are pending, or memory of alloc_device() is in use."""

def reset() -> None:
    """Leaves the present membership of an elastic job and enters the next one. Memory of alloc() stays."""
def membership() -> int:
    """Returns the number of the present membership, from 1; 0: the job is not elastic."""
def stage(stage: int) -> None:
    """Tells hvdrun how far this rank is with the change to the present membership: STAGE_STATE or STAGE_STEP."""

def membership_changed() -> bool:
    """Returns whether another membership waits. Other ranks may hear of it at another time."""
def abort(why: str, /) -> None:
    """Says that this rank has failed: hvd_abort."""

def watch_exit() -> None:
    """When the program ends with status 0, it leaves the job. Further calls do nothing."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def version() -> str: ...
def status_name(status: int, /) -> str: ...
def pending() -> int:
    """The number of operations that were started and have not ended, those of dropped Handles included."""

def under_way() -> int:
    """The number of operations that the library still works on. Moves them on."""

def alloc(nbytes: int, /) -> Memory:
    """Zeroed memory of hvd_alloc_lasting: the fast way for large tensors. It lives as long as its last view."""

def alloc_device(nbytes: int, /) -> Memory:
    """Zeroed memory of hvd_alloc_device. It has no buffer protocol, but __cuda_array_interface__."""

# ---- operations ----

def allreduce(
    name: str, input: BufferLike, output: Optional[BufferLike], op: int, set: int,
    prescale: float, postscale: float, compression: int, owner: Any, /,
) -> None:
    """Combines. output None: in place. prescale and postscale: 1.0 for none."""

def allreduce_async(
    name: str, input: BufferLike, output: Optional[BufferLike], op: int, set: int,
    prescale: float, postscale: float, compression: int, owner: Any, /,
) -> Handle: ...
def allreduce_init(
    name: str, input: BufferLike, output: Optional[BufferLike], op: int, set: int,
    prescale: float, postscale: float, compression: int, owner: Any, /,
) -> Persistent:
    """Checks an allreduce and starts nothing: hvd_allreduce_init. (hvd_allreduce_shared is left out: its result lies in
    the library's memory, which Python cannot keep.)"""

def grouped_allreduce(
    name: str, inputs: Sequence[BufferLike], outputs: Optional[Sequence[BufferLike]], op: int, set: int,
    prescale: float, postscale: float, owner: Any, /,
) -> None:
    """Combines several buffers of one dtype, all or none. outputs None: in place."""

def grouped_allreduce_async(
    name: str, inputs: Sequence[BufferLike], outputs: Optional[Sequence[BufferLike]], op: int, set: int,
    prescale: float, postscale: float, owner: Any, /,
) -> Handle: ...
def broadcast(name: str, buffer: BufferLike, root: int, set: int, owner: Any, /) -> None: ...
def broadcast_async(name: str, buffer: BufferLike, root: int, set: int, owner: Any, /) -> Handle: ...
def allgather(
    name: str, input: BufferLike, rows: int, row_count: int, output: Optional[BufferLike], set: int, owner: Any, /
) -> tuple[Optional[Memory], list[int]]:
    """Gathers rows of row_count elements, which may be 0. Returns the bytes, and the rows of each rank.

    output: memory for the result, which is not returned then; None: there is none. ValueError, of this rank alone: it
    has another number of elements than come.
    """

def allgather_async(
    name: str, input: BufferLike, rows: int, row_count: int, output: Optional[BufferLike], set: int, owner: Any, /
) -> Handle: ...
def alltoall(
    name: str, input: BufferLike, rows: int, row_count: int, splits: Optional[Sequence[int]],
    output: Optional[BufferLike], set: int, owner: Any, /,
) -> tuple[Optional[Memory], list[int]]:
    """Exchanges rows. splits: the rows for each rank; None: equal parts. output, and what is returned: as allgather."""

def alltoall_async(
    name: str, input: BufferLike, rows: int, row_count: int, splits: Optional[Sequence[int]],
    output: Optional[BufferLike], set: int, owner: Any, /,
) -> Handle: ...
def reducescatter(
    name: str, input: BufferLike, rows: int, row_count: int, output: BufferLike, op: int, set: int,
    prescale: float, postscale: float, owner: Any, /,
) -> None:
    """Combines rows and leaves each rank its part: rows // n, the first rows % n ranks one more."""

def reducescatter_async(
    name: str, input: BufferLike, rows: int, row_count: int, output: BufferLike, op: int, set: int,
    prescale: float, postscale: float, owner: Any, /,
) -> Handle: ...
def grouped_reducescatter(
    name: str, inputs: Sequence[BufferLike], rows: Sequence[int], row_counts: Sequence[int],
    outputs: Sequence[BufferLike], op: int, set: int, prescale: float, postscale: float, owner: Any, /,
) -> None: ...
def grouped_reducescatter_async(
    name: str, inputs: Sequence[BufferLike], rows: Sequence[int], row_counts: Sequence[int],
    outputs: Sequence[BufferLike], op: int, set: int, prescale: float, postscale: float, owner: Any, /,
) -> Handle: ...
def send(name: str, buffer: BufferLike, to: int, set: int, owner: Any, /) -> None: ...
def send_async(name: str, buffer: BufferLike, to: int, set: int, owner: Any, /) -> Handle: ...
def recv(name: str, buffer: BufferLike, source: int, set: int, owner: Any, /) -> None: ...
def recv_async(name: str, buffer: BufferLike, source: int, set: int, owner: Any, /) -> Handle: ...
def barrier(set: int, /) -> None: ...
def barrier_async(set: int, /) -> Handle: ...
def join() -> int:
    """Takes part in the others' allreduces until all ranks have joined. Returns the rank that joined last."""

def join_async() -> Handle: ...

# ---- process sets ----

def set_add(ranks: Sequence[int], /) -> int: ...
def set_remove(set: int, /) -> None: ...
def set_open(name: str, ranks: Sequence[int], /) -> int:
    """Makes a set that only its ranks know, and that only they call for. Returns this rank's number of it."""

def set_close(set: int, /) -> None: ...
def set_rank(set: int, /) -> int: ...
def set_size(set: int, /) -> int: ...
def set_ranks(set: int, /) -> list[int]: ...
def set_ids() -> list[int]: ...

# ---- the timeline ----

def timeline_start(path: str, mark_cycles: bool, /) -> None: ...
def timeline_stop() -> None: ...
