"""Operations on tensors that are not recorded by autograd: asynchronous ones, and those in place.

The way of a call: a name, the memory of the tensors (tensors.py), one call of the binding, and a Pending that
knows how the result becomes a tensor. The differentiable forms in autograd.py stand on these.

A result has the same bits on every rank. Tensors that are not contiguous are copied; the copy is written back
for the forms in place. Errors: TypeError for an object that is no dense tensor on cpu or cuda, or has a dtype
that hvd.h lacks; ValueError for wrong arguments and for a name that is in flight; HorovodInternalError when ranks
disagree, or when another rank has gone.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

from hvdrun import _hvd
from hvdrun.process_sets import ProcessSet, global_process_set, index_of, set_id_of
from hvdrun.reductions import Adasum, Average, Max, Min, Product, Sum, reduce_op

from .naming import full_name
from .tensors import address, dense, from_memory

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Pending",
    "Product",
    "Sum",
    "allgather_async",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather_async",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter_async",
    "synchronize",
]

NO_COMPRESSION = 0

Splits = Union[torch.Tensor, Sequence[int]]


class Pending:
    """One or more operations that were started, for poll() and synchronize()."""

    __slots__ = ("_finish", "_handles", "_result")

    def __init__(self, handles: Sequence[Union[_hvd.Handle, Pending]], finish: Callable[[], Any]) -> None:
        self._handles = handles
        self._finish: Optional[Callable[[], Any]] = finish
        self._result: Any = None

    def poll(self) -> bool:
        """Returns True when wait() will not block."""
        return all(handle.poll() for handle in self._handles)

    def wait(self) -> Any:
        """Waits for the end, and returns the result; again the same in later calls.

        After ^C the operations are pending still, and the call can be repeated.
        """
        if self._finish is not None:
            for handle in self._handles:
                handle.wait()
            self._result = self._finish()
            self._finish = None
            self._handles = ()
        return self._result


def poll(handle: Any) -> bool:
    """Returns True when the operation has ended, so that synchronize() will not block."""
    return bool(_pending(handle).poll())


def synchronize(handle: Any) -> Any:
    """Waits until an asynchronous operation has ended.

    Returns a tensor, a list of tensors for a group, or (tensor, received splits) for alltoall_async with splits.
    HorovodInternalError: the operation failed.
    """
    return _pending(handle).wait()


def _pending(handle: Any) -> Pending:
    if not isinstance(handle, Pending):
        raise ValueError(f"{handle!r} is not a handle of an asynchronous operation")
    return handle


def _factors(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> Tuple[float, float]:
    """Returns the factors that the engine takes. Adasum is not scaled."""
    if op != Adasum:
        return prescale, postscale
    size = process_set.size()
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, not {size}")
    return 1.0, 1.0


def _contiguous_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def _write_back(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """Copies the result of an operation in place into a tensor that is not contiguous."""
    if tensor is not copy:
        with torch.no_grad():
            tensor.copy_(copy)
    return tensor


# ---- allreduce ----


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combines a tensor of all ranks in place, and returns it. Not recorded by autograd.

    tensor: any shape, the same on all ranks; any dtype of hvd.h. op: Average (default), Sum, Adasum, Min, Max,
    Product. The result is (op over all ranks of tensor * prescale_factor) * postscale_factor.
    """
    op = reduce_op(average, op)
    if op == Adasum:
        prescale_factor, postscale_factor = _factors(op, prescale_factor, postscale_factor, process_set)
    memory = dense(tensor)
    set_id = set_id_of(process_set)
    _hvd.allreduce(
        full_name("allreduce", name, set_id), address(memory), None, op, set_id, prescale_factor, postscale_factor,
        NO_COMPRESSION, memory,
    )  # fmt: skip
    return tensor if memory is tensor else _write_back(tensor, memory)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Pending:
    """Starts allreduce_(), and returns a handle. Until synchronize() nothing may touch the tensor."""
    op = reduce_op(average, op)
    prescale, postscale = _factors(op, prescale_factor, postscale_factor, process_set)
    memory = dense(tensor)
    set_id = set_id_of(process_set)
    handle = _hvd.allreduce_async(
        full_name("allreduce", name, set_id), address(memory), None, op, set_id, prescale, postscale, NO_COMPRESSION,
        memory,
    )  # fmt: skip
    return Pending((handle,), lambda: _write_back(tensor, memory))


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Pending:
    """Starts an allreduce into a new tensor, which synchronize() returns. See allreduce_()."""
    op = reduce_op(average, op)
    prescale, postscale = _factors(op, prescale_factor, postscale_factor, process_set)
    source = dense(tensor)
    output = _contiguous_like(source)
    set_id = set_id_of(process_set)
    handle = _hvd.allreduce_async(
        full_name("allreduce", name, set_id), address(source), address(output), op, set_id, prescale, postscale,
        NO_COMPRESSION, (source, output),
    )  # fmt: skip
    return Pending((handle,), lambda: output)


# ---- groups ----


def _partition(tensors: Sequence[torch.Tensor]) -> List[List[int]]:
    """Returns the indices of tensors by dtype and device, since a group of the engine has one of each."""
    parts: Dict[Tuple[torch.dtype, torch.device], List[int]] = {}
    for index, tensor in enumerate(tensors):
        parts.setdefault((tensor.dtype, tensor.device), []).append(index)
    return list(parts.values())


def _start_group(
    sources: Sequence[torch.Tensor],
    outputs: Optional[Sequence[torch.Tensor]],
    name: Optional[str],
    op: int,
    factors: Tuple[float, float],
    process_set: ProcessSet,
) -> List[_hvd.Handle]:
    """Starts the allreduces of a group: one for each dtype and device; for Adasum one for each tensor."""
    set_id = set_id_of(process_set)
    full = full_name("grouped_allreduce", name, set_id)
    if op == Adasum:
        return [
            _hvd.allreduce_async(
                f"{full}.{index}", address(source), None if outputs is None else address(outputs[index]), op, set_id,
                *factors, NO_COMPRESSION, (source, outputs),
            )
            for index, source in enumerate(sources)
        ]  # fmt: skip
    parts = _partition(sources)
    return [
        _hvd.grouped_allreduce_async(
            full if len(parts) == 1 else f"{full}.{number}",
            [address(sources[index]) for index in part],
            None if outputs is None else [address(outputs[index]) for index in part],
            op, set_id, *factors, (sources, outputs),
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Pending:
    """Starts an allreduce of several tensors in place as one operation; synchronize() returns the list.

    The tensors may have different shapes, dtypes and devices. All ranks give them in the same order.
    """
    op = reduce_op(average, op)
    factors = _factors(op, prescale_factor, postscale_factor, process_set)
    tensors = list(tensors)
    memories = [dense(tensor) for tensor in tensors]
    handles = _start_group(memories, None, name, op, factors, process_set) if tensors else []
    return Pending(handles, lambda: [_write_back(*pair) for pair in zip(tensors, memories, strict=True)])


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Combines several tensors in place as one operation, and returns them. See allreduce_()."""
    op = reduce_op(average, op)
    pending = grouped_allreduce_async_(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
    result: List[torch.Tensor] = pending.wait()
    return result


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Pending:
    """Starts an allreduce of several tensors into new ones; synchronize() returns their list."""
    op = reduce_op(average, op)
    factors = _factors(op, prescale_factor, postscale_factor, process_set)
    sources = [dense(tensor) for tensor in tensors]
    outputs = [_contiguous_like(source) for source in sources]
    handles = _start_group(sources, outputs, name, op, factors, process_set) if sources else []
    return Pending(handles, lambda: outputs)


# ---- broadcast ----


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Pending:
    """Starts broadcast_(), and returns a handle. Until synchronize() nothing may touch the tensor."""
    memory = dense(tensor)
    set_id = set_id_of(process_set)
    root = index_of(process_set, root_rank)
    handle = _hvd.broadcast_async(full_name("broadcast", name, set_id), address(memory), root, set_id, memory)
    return Pending((handle,), lambda: _write_back(tensor, memory))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Copies the tensor of rank `root_rank` (of the job) into that of every rank of the set, and returns it.

    Not recorded by autograd. ValueError: the root is not in the set.
    """
    result: torch.Tensor = broadcast_async_(tensor, root_rank, name, process_set).wait()
    return result


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Pending:
    """Starts a broadcast into a new tensor, which synchronize() returns. See broadcast_()."""
    source = dense(tensor)
    output = source.detach().clone(memory_format=torch.contiguous_format) if source is tensor else source
    return broadcast_async_(output, root_rank, name, process_set)


# ---- allgather ----


def _rows(tensor: torch.Tensor, least: int = 1) -> torch.Tensor:
    """Returns the memory of a tensor that is cut into rows. ValueError: it has fewer than `least` dimensions."""
    memory = dense(tensor)
    if memory.dim() < least:
        raise ValueError("the tensor has no dimension; rows are needed here, as of tensor.view(1)")
    if memory.dim() == 0:
        memory = memory.detach().view(1)
    return memory


def _row_count(tensor: torch.Tensor) -> int:
    count = 1
    for length in tensor.shape[1:]:
        count *= length
    return count


def _start_allgather(tensor: torch.Tensor, full: str, process_set: ProcessSet) -> Pending:
    rows = _rows(tensor, least=0)
    handle = _hvd.allgather_async(
        full, address(rows), rows.shape[0], _row_count(rows), None, set_id_of(process_set), rows
    )

    def finish() -> Tuple[torch.Tensor, List[int]]:
        rows_of = handle.rows or []
        shape = (sum(rows_of), *rows.shape[1:])
        return from_memory(handle.wait(), rows.dtype, shape, rows.device), rows_of

    return Pending((handle,), finish)


def gather_with_rows(tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> Pending:
    """Starts an allgather whose result is (tensor, rows of each rank)."""
    return _start_allgather(tensor, full_name("allgather", name, set_id_of(process_set)), process_set)


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Pending:
    """Starts an allgather: synchronize() returns the rows of all ranks, in the order of ranks.

    tensor: shape (rows, ...); the first dimension may differ between ranks, the others may not. A tensor without
    dimensions counts as one row.
    """
    gathered = gather_with_rows(tensor, name, process_set)
    return Pending((gathered,), lambda: gathered.wait()[0])


def grouped_gather_with_rows(
    tensors: Sequence[torch.Tensor], name: Optional[str], process_set: ProcessSet
) -> List[Pending]:
    """Starts an allgather for each tensor of a group; their results are (tensor, rows of each rank)."""
    full = full_name("grouped_allgather", name, set_id_of(process_set))
    return [_start_allgather(tensor, f"{full}.{index}", process_set) for index, tensor in enumerate(tensors)]


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Pending:
    """Starts an allgather of several tensors; synchronize() returns a list. See allgather_async()."""
    gathered = grouped_gather_with_rows(tensors, name, process_set)
    return Pending(gathered, lambda: [pending.wait()[0] for pending in gathered])


# ---- alltoall ----


def split_list(splits: Splits) -> List[int]:
    """Returns the splits as numbers. ValueError: they are no integers in one dimension."""
    tensor = splits if isinstance(splits, torch.Tensor) else torch.as_tensor(splits)
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool)
    if tensor.dim() != 1 or (tensor.numel() and not whole):
        raise ValueError(f"splits are integers in one dimension, not {tensor.dtype} of shape {list(tensor.shape)}")
    return [int(split) for split in tensor.tolist()]


def alltoall_with_rows(
    tensor: torch.Tensor, splits: Optional[Sequence[int]], name: Optional[str], process_set: ProcessSet
) -> Pending:
    """Starts an alltoall whose result is (tensor, rows from each rank)."""
    rows = _rows(tensor)
    place = address(rows)
    set_id = set_id_of(process_set)
    size = process_set.size()
    if splits is not None and (len(splits) != size or min(splits) < 0 or sum(splits) > rows.shape[0]):
        raise ValueError(f"splits {list(splits)} do not fit {rows.shape[0]} rows and {size} ranks")
    if splits is None and rows.shape[0] % size:
        raise ValueError(f"{rows.shape[0]} rows cannot be split evenly between {size} ranks; give splits")
    handle = _hvd.alltoall_async(
        full_name("alltoall", name, set_id), place, rows.shape[0], _row_count(rows), splits, None, set_id, rows
    )

    def finish() -> Tuple[torch.Tensor, List[int]]:
        received = handle.rows or []
        shape = (sum(received), *rows.shape[1:])
        return from_memory(handle.wait(), rows.dtype, shape, rows.device), received

    return Pending((handle,), finish)


def with_received(result: Tuple[torch.Tensor, List[int]], splits: Splits) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns the rows, and the numbers of rows as a tensor on the device of the splits."""
    device = splits.device if isinstance(splits, torch.Tensor) else torch.device("cpu")
    return result[0], torch.tensor(result[1], dtype=torch.int32, device=device)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Optional[Splits] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Pending:
    """Starts an alltoall: the first splits[0] rows go to the first rank of the set, the next to the second ...

    tensor: shape (rows, ...). splits: integers, one for each rank of the set; without them every rank gets the same
    number of rows. synchronize() returns the rows that came, in the order of ranks; with splits
    (rows, received splits as int32). ValueError: the splits do not fit.
    """
    if splits is None:
        rows = alltoall_with_rows(tensor, None, name, process_set)
        return Pending((rows,), lambda: rows.wait()[0])
    exchanged = alltoall_with_rows(tensor, split_list(splits), name, process_set)
    return Pending((exchanged,), lambda: with_received(exchanged.wait(), splits))


# ---- reducescatter ----


def _part_of(tensor: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """Returns an empty tensor for this rank's rows of a reducescatter; the first ranks get one row more."""
    size, index = process_set.size(), process_set.rank()
    rows = tensor.shape[0] // size + (index < tensor.shape[0] % size)
    return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)


def _scatter_factors(op: int, prescale: float, postscale: float) -> Tuple[float, float]:
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter takes op=Average and op=Sum")
    return prescale, postscale


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Pending:
    """Starts a reducescatter: the tensors of all ranks are combined, and each rank gets its rows.

    tensor: shape (rows, ...), the same on all ranks. synchronize() returns rows // size rows, one more on the first
    rows % size ranks. op: Average or Sum. ValueError: the tensor has no dimension.
    """
    factors = _scatter_factors(op, prescale_factor, postscale_factor)
    source = _rows(tensor)
    output = _part_of(source, process_set)
    set_id = set_id_of(process_set)
    handle = _hvd.reducescatter_async(
        full_name("reducescatter", name, set_id), address(source), source.shape[0], _row_count(source),
        address(output), op, set_id, *factors, (source, output),
    )  # fmt: skip
    return Pending((handle,), lambda: output)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Pending:
    """Starts a reducescatter of several tensors as one operation; synchronize() returns a list."""
    factors = _scatter_factors(op, prescale_factor, postscale_factor)
    sources = [_rows(tensor) for tensor in tensors]
    outputs = [_part_of(source, process_set) for source in sources]
    set_id = set_id_of(process_set)
    full = full_name("grouped_reducescatter", name, set_id)
    parts = _partition(sources)
    handles = [
        _hvd.grouped_reducescatter_async(
            full if len(parts) == 1 else f"{full}.{number}",
            [address(sources[index]) for index in part],
            [sources[index].shape[0] for index in part],
            [_row_count(sources[index]) for index in part],
            [address(outputs[index]) for index in part],
            op, set_id, *factors, (sources, outputs),
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip
    return Pending(handles, lambda: outputs)
