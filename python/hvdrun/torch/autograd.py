"""Blocking operations that autograd can differentiate.

A tensor that needs no gradient takes the straight way. The gradients are those of Horovod 0.28:

    operation               gradient of the input
    allreduce               an allreduce with the same op and factors
    allgather               this rank's rows of the average over the ranks
    broadcast               on the root the average over the ranks, elsewhere zero
    alltoall                an alltoall back, by the received splits
    reducescatter, Average  an allgather
    reducescatter, Sum      an allgather, times the number of ranks

Backward passes call operations without names, so all ranks run the same backward passes in the same order.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Type, Union

import torch

from hvdrun import _hvd
from hvdrun.process_sets import ProcessSet, global_process_set, set_id_of
from hvdrun.reductions import Average, Sum, reduce_op

from . import operations
from .compression import Compression, Compressor
from .naming import full_name
from .operations import Splits
from .tensors import address, dense

__all__ = [
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]

Tensors = Tuple[torch.Tensor, ...]


def _recorded(*tensors: torch.Tensor) -> bool:
    """Returns True if autograd has to record an operation on these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _are_tensors(tensors: Sequence[object]) -> None:
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            dense(tensor)  # type: ignore[arg-type]  # raises


# ---- allreduce ----


def _reduce(
    tensor: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> torch.Tensor:
    if op == operations.Adasum:
        result: torch.Tensor = operations.allreduce_async(tensor, None, name, op, process_set=process_set).wait()
        return result
    source = dense(tensor)
    output = torch.empty_like(source, memory_format=torch.contiguous_format, requires_grad=False)
    set_id = set_id_of(process_set)
    _hvd.allreduce(
        full_name("allreduce", name, set_id), address(source), address(output), op, set_id, prescale, postscale,
        operations.NO_COMPRESSION, (source, output),
    )  # fmt: skip
    return output


class HorovodAllreduce(torch.autograd.Function):
    """An allreduce and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:  # fmt: skip
        ctx.options = op, prescale, postscale, process_set
        return _reduce(tensor, name, op, prescale, postscale, process_set)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        op, prescale, postscale, process_set = ctx.options
        reduced = allreduce(grad, op=op, prescale_factor=prescale, postscale_factor=postscale, process_set=process_set)
        return reduced, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combines a tensor of all ranks, and returns a new one. Differentiable.

    tensor: any shape, the same on all ranks; any dtype of hvd.h. op: Average (default), Sum, Adasum, Min, Max,
    Product. The result is (op over all ranks of tensor * prescale_factor) * postscale_factor.
    TypeError: no dense tensor of such a dtype. ValueError: wrong arguments, or a name that is in flight.
    HorovodInternalError: the ranks disagree, or another rank has gone.
    """
    op = reduce_op(average, op)
    if compression is not Compression.none:
        _are_tensors([tensor])
        small, ctx = compression.compress(tensor)
        reduced = allreduce(small, None, name, Compression.none, op, prescale_factor, postscale_factor, process_set)
        return compression.decompress(reduced, ctx)
    _are_tensors([tensor])
    if _recorded(tensor):
        result: torch.Tensor = HorovodAllreduce.apply(tensor, name, op, prescale_factor, postscale_factor, process_set)
        return result
    return _reduce(tensor, name, op, prescale_factor, postscale_factor, process_set)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """An allreduce of several tensors and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Tensors:  # fmt: skip
        ctx.options = op, prescale, postscale, process_set
        return tuple(
            operations.grouped_allreduce_async(tensors, None, name, op, prescale, postscale, process_set).wait()
        )

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        op, prescale, postscale, process_set = ctx.options
        reduced = grouped_allreduce(
            grads, op=op, prescale_factor=prescale, postscale_factor=postscale, process_set=process_set
        )
        return (None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Combines several tensors as one operation, and returns a list of new ones. Differentiable. See allreduce()."""
    op = reduce_op(average, op)
    tensors = list(tensors)
    _are_tensors(tensors)
    pairs = [compression.compress(tensor) for tensor in tensors]
    small = [pair[0] for pair in pairs]
    if _recorded(*small):
        reduced = HorovodGroupedAllreduce.apply(name, op, prescale_factor, postscale_factor, process_set, *small)
    else:
        reduced = operations.grouped_allreduce_async(
            small, None, name, op, prescale_factor, postscale_factor, process_set
        ).wait()
    return [compression.decompress(tensor, pair[1]) for tensor, pair in zip(reduced, pairs, strict=True)]


# ---- allgather ----


def _own_rows(grad: torch.Tensor, rows_of: Sequence[int], process_set: ProcessSet) -> torch.Tensor:
    """Returns this rank's rows of the average of a gradient over the ranks of the set."""
    size, index = len(rows_of), process_set.rank()
    parts = [grad.shape[0] // size + (rank < grad.shape[0] % size) for rank in range(size)]
    if list(rows_of) == parts:
        return reducescatter(grad, op=Average, process_set=process_set)
    averaged = allreduce(grad, op=Average, process_set=process_set)
    return averaged.narrow(0, sum(rows_of[:index]), rows_of[index])


class HorovodAllgather(torch.autograd.Function):
    """An allgather and its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        gathered, ctx.rows_of = operations.gather_with_rows(tensor, name, process_set).wait()
        ctx.shape, ctx.process_set = tensor.shape, process_set
        result: torch.Tensor = gathered
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        return _own_rows(grad, ctx.rows_of, ctx.process_set).reshape(ctx.shape), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the rows of all ranks in a new tensor, in the order of ranks. Differentiable.

    tensor: shape (rows, ...); the first dimension may differ between ranks, the others may not. A tensor without
    dimensions counts as one row. Errors: see allreduce().
    """
    _are_tensors([tensor])
    if _recorded(tensor):
        result: torch.Tensor = HorovodAllgather.apply(tensor, name, process_set)
    else:
        result = operations.allgather_async(tensor, name, process_set).wait()
    return result


class HorovodGroupedAllgather(torch.autograd.Function):
    """An allgather of several tensors and its gradients."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet, *tensors: torch.Tensor) -> Tensors:
        gathered = operations.grouped_gather_with_rows(tensors, name, process_set)
        results = [pending.wait() for pending in gathered]
        ctx.rows_of = [rows_of for _, rows_of in results]
        ctx.shapes, ctx.process_set = [tensor.shape for tensor in tensors], process_set
        return tuple(result for result, _ in results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        averaged = grouped_allreduce(grads, op=Average, process_set=ctx.process_set)
        index = ctx.process_set.rank()
        own = [
            tensor.narrow(0, sum(rows_of[:index]), rows_of[index]).reshape(shape)
            for tensor, rows_of, shape in zip(averaged, ctx.rows_of, ctx.shapes, strict=True)
        ]
        return (None, None, *own)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[torch.Tensor]:
    """Gathers several tensors, and returns a list of new ones. Differentiable. See allgather()."""
    tensors = list(tensors)
    _are_tensors(tensors)
    if _recorded(*tensors):
        return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))
    return list(operations.grouped_allgather_async(tensors, name, process_set).wait())


# ---- broadcast ----


class HorovodBroadcast(torch.autograd.Function):
    """A broadcast and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        result: torch.Tensor = operations.broadcast_async(tensor, root_rank, name, process_set).wait()
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        averaged = allreduce(grad, op=Average, process_set=ctx.process_set)
        if _hvd.rank() != ctx.root_rank:
            averaged = torch.zeros_like(averaged)
        return averaged, None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the tensor of rank `root_rank` (of the job) in a new tensor. Differentiable.

    tensor: any shape, the same on all ranks. ValueError: the root is not in the set. Errors: see allreduce().
    """
    _are_tensors([tensor])
    if _recorded(tensor):
        result: torch.Tensor = HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    else:
        result = operations.broadcast_async(tensor, root_rank, name, process_set).wait()
    return result


# ---- alltoall ----


class HorovodAlltoall(torch.autograd.Function):
    """An alltoall and its gradient. The received splits come as a second result without gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Optional[Splits], name: Optional[str], process_set: ProcessSet
    ) -> Union[torch.Tensor, Tensors]:
        numbers = None if splits is None else operations.split_list(splits)
        result = operations.alltoall_with_rows(tensor, numbers, name, process_set).wait()
        ctx.received, ctx.rows, ctx.process_set = result[1], tensor.shape[0], process_set
        if splits is None:
            rows: torch.Tensor = result[0]
            return rows
        pair = operations.with_received(result, splits)
        ctx.mark_non_differentiable(pair[1])
        return pair

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        back = alltoall(grad, ctx.received, process_set=ctx.process_set)[0]
        unsent = ctx.rows - back.shape[0]
        if unsent:
            back = torch.cat([back, back.new_zeros((unsent, *back.shape[1:]))])
        return back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Optional[Splits] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second ... Differentiable.

    tensor: shape (rows, ...), the dimensions after the first the same on all ranks. splits: integers, one for each
    rank of the set; without them every rank gets the same number of rows. Returns the rows that came, in the order
    of ranks; with splits (rows, received splits as int32). ValueError: the splits do not fit.
    """
    _are_tensors([tensor])
    if _recorded(tensor):
        return HorovodAlltoall.apply(tensor, splits, name, process_set)
    return operations.alltoall_async(tensor, splits, name, process_set).wait()


# ---- reducescatter ----


def _scatter_factor(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> float:
    """Returns the factor of a reducescatter's gradient."""
    return prescale * postscale * (process_set.size() if op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """A reducescatter and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet, prescale: float,
        postscale: float,
    ) -> torch.Tensor:  # fmt: skip
        ctx.factor, ctx.process_set = _scatter_factor(op, prescale, postscale, process_set), process_set
        result: torch.Tensor = operations.reducescatter_async(tensor, name, op, process_set, prescale, postscale).wait()
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        gathered = allgather(grad if ctx.factor == 1 else grad * ctx.factor, process_set=ctx.process_set)
        return gathered, None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensors of all ranks, and returns this rank's rows. Differentiable.

    tensor: shape (rows, ...), the same on all ranks. The result has rows // size rows, one more on the first
    rows % size ranks. op: Average (default) or Sum. Errors: see allreduce().
    """
    _are_tensors([tensor])
    small, ctx = compression.compress(tensor)
    arguments = (small, name, op, process_set, prescale_factor, postscale_factor)
    if _recorded(small):
        output: torch.Tensor = HorovodReducescatter.apply(*arguments)
    else:
        output = operations.reducescatter_async(*arguments).wait()
    return compression.decompress(output, ctx)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """A reducescatter of several tensors and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, name: Optional[str], op: int, process_set: ProcessSet, prescale: float, postscale: float,
        *tensors: torch.Tensor,
    ) -> Tensors:  # fmt: skip
        ctx.factor, ctx.process_set = _scatter_factor(op, prescale, postscale, process_set), process_set
        return tuple(operations.grouped_reducescatter_async(tensors, name, op, process_set, prescale, postscale).wait())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        scaled = [grad if ctx.factor == 1 else grad * ctx.factor for grad in grads]
        return (None, None, None, None, None, *grouped_allgather(scaled, process_set=ctx.process_set))


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Combines several tensors as one operation, and returns a list of this rank's rows. See reducescatter()."""
    tensors = list(tensors)
    _are_tensors(tensors)
    pairs = [compression.compress(tensor) for tensor in tensors]
    small = [pair[0] for pair in pairs]
    options = (name, op, process_set, prescale_factor, postscale_factor)
    if _recorded(*small):
        outputs = HorovodGroupedReducescatter.apply(*options, *small)
    else:
        outputs = operations.grouped_reducescatter_async(small, *options).wait()
    return [compression.decompress(output, pair[1]) for output, pair in zip(outputs, pairs, strict=True)]
