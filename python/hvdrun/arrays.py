"""Operations on NumPy arrays, and on whatever else has a buffer.

An *array* is here a NumPy array, or an object with the buffer protocol (``array.array``, ``bytes``, ``memoryview``),
``__array_interface__`` or ``__dlpack__``. NumPy is not needed for these; lists and numbers become NumPy arrays.

Results have the dtype of the argument. That of a NumPy array is a NumPy array; that of another object is a
``memoryview`` with its format. Arrays that are not contiguous are copied; results of functions whose names end in
``_`` are copied back into them.

The dtypes: bool, int8 to int64, uint8 to uint64, float16, float32, float64, and bfloat16 of ml_dtypes.

All ranks of the process set call the same functions with the same names, in any order. Functions without a name
are matched by the order of the calls.

Errors, of each function:
    TypeError: an argument is no array, or has another dtype.
    MismatchError (a ValueError): the ranks disagree. DuplicateNameError: the name is pending already.
    HorovodInternalError: another rank has died, or the job has failed.
    NotInitializedError (a ValueError): init() was not called.
"""

from __future__ import annotations

import math
import sys
from array import array as _typed
from array import typecodes as _typecodes
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from hvdrun import _hvd
from hvdrun.exceptions import HvdError
from hvdrun.names import count_anew, next_name
from hvdrun.process_sets import ProcessSet, global_process_set, index_of, set_id_of
from hvdrun.reductions import Adasum, Average, Max, Min, Product, Sum, reduce_op

__all__ = [
    "Adasum", "Average", "Max", "Min", "Operation", "Product", "Sum",
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "empty", "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "join", "poll", "receive", "receive_async", "reducescatter",
    "reducescatter_async", "send", "send_async", "synchronize",
]

Array = Any
"""An array, as the module's text says."""


class Operation:
    """What an ``_async`` function returns: an operation that goes on. It keeps its arrays until it has ended."""

    __slots__ = ("_finish", "_handle", "_result")

    def __init__(self, handle: _hvd.Handle, finish: Callable[[Any], Any]) -> None:
        self._handle = handle
        self._finish: Optional[Callable[[Any], Any]] = finish
        self._result: Any = None

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until the operation has ended, and returns its result.

        timeout: seconds. WaitTimeoutError: the operation is pending still, and can be waited for again.
        """
        raw = self._handle.wait(timeout)
        if self._finish is not None:
            self._result, self._finish = self._finish(raw), None
        return self._result

    def poll(self) -> bool:
        """Returns whether wait() would not block."""
        return self._handle.poll()


def synchronize(operation: Operation) -> Any:
    """Waits until the operation has ended, and returns its result."""
    return operation.wait()


def poll(operation: Operation) -> bool:
    """Returns whether synchronize() would not block."""
    return operation.poll()


# ---- arrays ----


def _is_numpy(array: Array) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def _as_array(array: Array) -> Array:
    """A list, a number or a NumPy scalar becomes a NumPy array."""
    if _is_numpy(array) or hasattr(array, "__dlpack__"):
        return array
    if isinstance(array, (list, tuple, int, float, complex)) or type(array).__module__ == "numpy":
        import numpy

        return numpy.asarray(array)
    return array


def _is_usable(array: Array) -> bool:
    """The extension can take the array as it is."""
    return not _is_numpy(array) or bool(array.flags.c_contiguous and array.dtype.isnative)


def _shape_of(array: Array) -> Tuple[int, ...]:
    shape: Any = getattr(array, "shape", None)
    return tuple(memoryview(array).shape or () if shape is None else shape)


def _copy_of(array: Array) -> Array:
    """A contiguous copy."""
    if not _is_numpy(array) and hasattr(array, "__dlpack__"):
        import numpy

        array = numpy.from_dlpack(array)
    if _is_numpy(array):
        return array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    view = memoryview(array)
    return _fill(view.format, view.itemsize, view.shape or (), bytearray(view.tobytes()))


def _usable(array: Array) -> Array:
    """The array, or a contiguous copy."""
    array = _as_array(array)
    if _is_usable(array):
        return array
    return _copy_of(array)


def _in_place(array: Array) -> Array:
    """The array itself, also if it is no NumPy array, or a contiguous copy."""
    return array if _is_usable(array) else _usable(array)


def _fill(form: Any, itemsize: int, shape: Sequence[int], data: Any = None) -> memoryview:
    """A view of new memory, or of the bytes of `data`. A memoryview without elements has one dimension."""
    form = form.lstrip("@=<")
    count = math.prod(shape)
    if count == 0:
        return memoryview(_typed(form) if form in _typecodes else bytearray())
    view = memoryview(bytearray(count * itemsize) if data is None else data).cast("B")
    dimensions: Any = list(shape)
    return view.cast(form, dimensions)


def _like(array: Array, shape: Sequence[int], data: Any = None) -> Array:
    """An array of the same dtype, with that shape: new, or a view of the bytes of `data`."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return numpy.ndarray(shape, array.dtype.newbyteorder("="), data)
    if numpy is not None and hasattr(array, "__dlpack__"):
        return numpy.ndarray(shape, numpy.from_dlpack(array).dtype, data)
    view = memoryview(array)
    return _fill(view.format, view.itemsize, shape, data)


def _write_back(array: Array, result: Array) -> None:
    if result is not array:
        array[...] = result


def empty(shape: Sequence[int], dtype: Any = "float32") -> Array:
    """Returns a NumPy array of zeros in the job's shared memory, the fast place for large arrays.

    The memory lives until the last view of it has gone, also after shutdown() and in a later job.
    """
    import numpy

    kind = numpy.dtype(dtype)
    return numpy.ndarray(shape, kind, _hvd.alloc(math.prod(shape) * kind.itemsize))


def _rows_of(array: Array) -> Tuple[int, int]:
    """The number of rows and the elements of a row. A number is a row."""
    shape = _shape_of(array)
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


# ---- allreduce ----


def allreduce(
    array: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Combines the arrays of all ranks, and returns the result in a new array of the same shape and dtype.

    array: any shape, the same on all ranks. op: Average (the default), Sum, Min, Max, Product or Adasum.
    average: True is Average, False is Sum. Averages of integers are cut toward zero.
    prescale_factor, postscale_factor: of the arrays before they are combined, and of the result; not 0.
    """
    chosen = process_set.process_set_id
    if chosen is None:
        chosen = set_id_of(process_set)
    if name is None:
        name = next_name("allreduce", chosen)
    if average is not None or op is None:
        op = reduce_op(average, op)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(array) is numpy.ndarray:
        out = numpy.empty_like(array)
        try:
            _hvd.allreduce(name, array, out, op, chosen, prescale_factor, postscale_factor, 0, None)
            return out
        except (TypeError, ValueError) as error:
            if isinstance(error, HvdError) or _is_usable(array):
                raise
    array = _usable(array)
    out = _like(array, _shape_of(array))
    _hvd.allreduce(name, array, out, op, chosen, prescale_factor, postscale_factor, 0, None)
    return out


def allreduce_async(
    array: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begins allreduce(); the operation's result is what allreduce() returns. `array` must not change meanwhile."""
    chosen = set_id_of(process_set)
    array = _usable(array)
    out = _like(array, _shape_of(array))
    handle = _hvd.allreduce_async(
        name or next_name("allreduce", chosen), array, out, reduce_op(average, op), chosen,
        prescale_factor, postscale_factor, 0, None)
    return Operation(handle, lambda _: out)


def allreduce_(
    array: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """As allreduce(), in place. Returns `array`. ValueError: it is read-only."""
    chosen = process_set.process_set_id
    if chosen is None:
        chosen = set_id_of(process_set)
    if name is None:
        name = next_name("allreduce", chosen)
    if average is not None or op is None:
        op = reduce_op(average, op)
    try:
        _hvd.allreduce(name, array, None, op, chosen, prescale_factor, postscale_factor, 0, None)
    except (TypeError, ValueError) as error:
        if isinstance(error, HvdError) or _is_usable(array):
            raise
        work = _usable(array)
        _hvd.allreduce(name, work, None, op, chosen, prescale_factor, postscale_factor, 0, None)
        _write_back(array, work)
    return array


def allreduce_async_(
    array: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begins allreduce_(). The caller does not touch `array` until the operation was waited for."""
    chosen = set_id_of(process_set)
    work = _in_place(array)
    handle = _hvd.allreduce_async(
        name or next_name("allreduce", chosen), work, None, reduce_op(average, op), chosen,
        prescale_factor, postscale_factor, 0, None)
    return Operation(handle, _returner(array, work))


def _returner(array: Array, work: Array) -> Callable[[Any], Array]:
    """For an operation in place: copies the result back if it was made elsewhere, and returns the array."""

    def finish(_: Any) -> Array:
        _write_back(array, work)
        return array

    return finish


# ---- groups ----


def _by_dtype(arrays: Sequence[Array]) -> List[List[int]]:
    """Indices of arrays of one dtype: an operation on a group has one."""
    groups: Dict[str, List[int]] = {}
    for index, array in enumerate(arrays):
        key = str(array.dtype) if hasattr(array, "dtype") else memoryview(array).format
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _start_group(
    name: str, ins: Sequence[Array], outs: Optional[Sequence[Array]], op: int, chosen: int,
    prescale: float, postscale: float,
) -> List[_hvd.Handle]:
    handles = []
    for number, group in enumerate(_by_dtype(ins)):
        handles.append(_hvd.grouped_allreduce_async(
            f"{name}.{number}" if number else name, [ins[k] for k in group],
            None if outs is None else [outs[k] for k in group], op, chosen, prescale, postscale, None))
    return handles


class _Group(Operation):
    """Several operations, one for each dtype."""

    __slots__ = ("_rest",)

    def __init__(self, handles: Sequence[_hvd.Handle], finish: Callable[[Any], Any]) -> None:
        super().__init__(handles[0], finish)
        self._rest = handles[1:]

    def wait(self, timeout: Optional[float] = None) -> Any:
        for handle in self._rest:
            handle.wait(timeout)
        return super().wait(timeout)

    def poll(self) -> bool:
        return all([super().poll(), *(handle.poll() for handle in self._rest)])


def grouped_allreduce_async(
    arrays: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begins grouped_allreduce()."""
    chosen = set_id_of(process_set)
    work = [_usable(array) for array in arrays]
    outs = [_like(array, _shape_of(array)) for array in work]
    if not work:
        raise ValueError("grouped_allreduce: there are no arrays")
    handles = _start_group(name or next_name("grouped_allreduce", chosen), work, outs, reduce_op(average, op),
                           chosen, prescale_factor, postscale_factor)
    return _Group(handles, lambda _: outs)


def grouped_allreduce(
    arrays: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Array]:
    """As allreduce(), of several arrays as one operation: all complete, or none. Returns new arrays."""
    result: List[Array] = grouped_allreduce_async(
        arrays, average, name, op, prescale_factor, postscale_factor, process_set).wait()
    return result


def grouped_allreduce_async_(
    arrays: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begins grouped_allreduce_()."""
    chosen = set_id_of(process_set)
    work = [_in_place(array) for array in arrays]
    if not work:
        raise ValueError("grouped_allreduce_: there are no arrays")
    handles = _start_group(name or next_name("grouped_allreduce", chosen), work, None, reduce_op(average, op),
                           chosen, prescale_factor, postscale_factor)

    def finish(_: Any) -> Sequence[Array]:
        for array, result in zip(arrays, work, strict=True):
            _write_back(array, result)
        return arrays

    return _Group(handles, finish)


def grouped_allreduce_(
    arrays: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Array]:
    """As grouped_allreduce(), in place. Returns `arrays`."""
    result: Sequence[Array] = grouped_allreduce_async_(
        arrays, average, name, op, prescale_factor, postscale_factor, process_set).wait()
    return result


# ---- rows ----


def _gathered(array: Array, memory: Any, rows: Sequence[int]) -> Array:
    return _like(array, (sum(rows), *_shape_of(array)[1:]), memory)


def allgather_async(
    array: Array, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begins allgather()."""
    chosen = set_id_of(process_set)
    array = _usable(array)
    rows, row_count = _rows_of(array)
    handle = _hvd.allgather_async(name or next_name("allgather", chosen), array, rows, row_count, None, chosen, None)
    return Operation(handle, lambda memory: _gathered(array, memory, handle.rows or ()))


def allgather(array: Array, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
    """Puts the arrays of all ranks one after the other, by the first dimension, in the order of ranks.

    array: the first dimension may differ between ranks, the others not. A number is an array of one.
    Returns an array of shape (sum of first dimensions, others...).
    """
    return allgather_async(array, name, process_set).wait()


def grouped_allgather(
    arrays: Sequence[Array], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Array]:
    """As allgather(), of several arrays."""
    base = name or next_name("grouped_allgather", set_id_of(process_set))
    started = [allgather_async(array, f"{base}.{k}", process_set) for k, array in enumerate(arrays)]
    return [operation.wait() for operation in started]


def alltoall_async(
    array: Array,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begins alltoall()."""
    chosen = set_id_of(process_set)
    array = _usable(array)
    rows, row_count = _rows_of(array)
    handle = _hvd.alltoall_async(
        name or next_name("alltoall", chosen), array, rows, row_count,
        None if splits is None else [int(split) for split in splits], None, chosen, None)

    def finish(memory: Any) -> Any:
        received = handle.rows or []
        out = _gathered(array, memory, received)
        return out if splits is None else (out, received)

    return Operation(handle, finish)


def alltoall(
    array: Array,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Exchanges rows: the first splits[0] rows go to rank 0, the next splits[1] to rank 1, and so on.

    array: shape (rows, others...); the others are the same on all ranks. splits: a number for each rank of the set;
    None: equal parts.

    Returns the rows that were sent to this rank, in the order of ranks; with splits, also the number of rows from
    each rank, a list. ValueError: splits are more rows than there are, or rows do not fall into equal parts.
    """
    return alltoall_async(array, splits, name, process_set).wait()


def _part_of(array: Array, chosen: int) -> Array:
    """A new array for this rank's part of a reducescatter."""
    rows, _ = _rows_of(array)
    ranks = _hvd.set_size(chosen)
    part = rows // ranks + (_hvd.set_rank(chosen) < rows % ranks)
    return _like(array, (part, *_shape_of(array)[1:]))


def reducescatter_async(
    array: Array,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Operation:
    """Begins reducescatter()."""
    chosen = set_id_of(process_set)
    array = _usable(array)
    rows, row_count = _rows_of(array)
    out = _part_of(array, chosen)
    handle = _hvd.reducescatter_async(
        name or next_name("reducescatter", chosen), array, rows, row_count, out, op, chosen,
        prescale_factor, postscale_factor, None)
    return Operation(handle, lambda _: out)


def reducescatter(
    array: Array,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Combines the arrays of all ranks, and returns this rank's part of the rows.

    array: shape (rows, others...), the same on all ranks. Returns shape (part, others...): each rank has
    rows // ranks of them, the first rows % ranks ranks one more.
    """
    return reducescatter_async(array, name, op, process_set, prescale_factor, postscale_factor).wait()


def grouped_reducescatter(
    arrays: Sequence[Array],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Array]:
    """As reducescatter(), of several arrays of one dtype as one operation."""
    chosen = set_id_of(process_set)
    work = [_usable(array) for array in arrays]
    outs = [_part_of(array, chosen) for array in work]
    rows = [_rows_of(array) for array in work]
    _hvd.grouped_reducescatter(
        name or next_name("grouped_reducescatter", chosen), work, [r for r, _ in rows], [c for _, c in rows], outs,
        op, chosen, prescale_factor, postscale_factor, None)
    return outs


# ---- broadcast, two ranks, all ranks ----


def broadcast_async_(
    array: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begins broadcast_()."""
    chosen = set_id_of(process_set)
    work = _in_place(array)
    handle = _hvd.broadcast_async(
        name or next_name("broadcast", chosen), work, index_of(process_set, root_rank), chosen, None)
    return Operation(handle, _returner(array, work))


def broadcast_(
    array: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Copies the array of rank `root_rank` into `array` on every rank. Returns `array`.

    root_rank: a rank of the job, also with a process set.
    """
    return broadcast_async_(array, root_rank, name, process_set).wait()


def broadcast_async(
    array: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begins broadcast()."""
    return broadcast_async_(_copy_of(_as_array(array)), root_rank, name, process_set)


def broadcast(
    array: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Returns the array of rank `root_rank`, in a new array. All ranks give arrays of one shape and dtype."""
    return broadcast_async(array, root_rank, name, process_set).wait()


def send_async(
    array: Array, to: int, name: str, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begins send()."""
    handle = _hvd.send_async(name, _usable(array), index_of(process_set, to), set_id_of(process_set), None)
    return Operation(handle, lambda _: None)


def send(array: Array, to: int, name: str, process_set: ProcessSet = global_process_set) -> None:
    """Sends an array to another rank, which calls receive() with the same name. Returns after that call."""
    send_async(array, to, name, process_set).wait()


def receive_async(
    array: Array, source: int, name: str, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begins receive()."""
    work = _in_place(array)
    handle = _hvd.recv_async(name, work, index_of(process_set, source), set_id_of(process_set), None)
    return Operation(handle, _returner(array, work))


def receive(array: Array, source: int, name: str, process_set: ProcessSet = global_process_set) -> Array:
    """Receives what rank `source` sends into `array`, which has as many elements of that dtype. Returns `array`."""
    return receive_async(array, source, name, process_set).wait()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    _hvd.barrier(set_id_of(process_set))


def join() -> int:
    """For ranks with unequal amounts of work: gives zeros to the others' allreduces until all ranks have joined.

    Returns the rank that joined last.
    """
    last: int = _hvd.join()
    count_anew()
    return last
