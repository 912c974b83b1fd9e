"""The collective operations of a process group: tensors of torch, calls of the binding, results in torch's tensors.

Signatures are those that torch.distributed calls; lists are lists of tensors. Each method returns a work. Tensors may
be empty, have any dtype, and lie in memory in any order; what is not contiguous is copied.

Errors are raised by the call or by the work's wait: HorovodInternalError (a RuntimeError) when a rank has gone, with
rank, host and cause; MismatchError, one of these, when ranks give different operations, sizes or dtypes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from hvdrun.torch.tensors import address

from . import calls
from .reductions import Reduction, reduction_of
from .tensors import as_bytes, copy_back, flat, memory_of, split_flat
from .work import HvdWork

__all__ = ["Collectives"]

_NO_COMPRESSION = 0
_TRUE_OR = 7  # hvd_op, of a barrier


def _one(tensors: Any) -> torch.Tensor:
    """Returns the tensor of a list of one."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"the backend hvd takes one tensor for each rank here, not {len(tensors)}")
    only: torch.Tensor = tensors[0]
    return only


def _scaled(tensor: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """Returns the memory to be combined; multiplied, in memory of its own, for PREMUL_SUM by a tensor."""
    memory = memory_of(tensor)
    if not isinstance(reduction.factor, torch.Tensor):
        return memory
    return (memory * reduction.factor).to(memory.dtype).view(memory.shape)


def _prescale(reduction: Reduction) -> float:
    return reduction.factor if isinstance(reduction.factor, float) else 1.0


class _Options:
    """What an operation does that is called without torch's options, as torch itself calls some."""

    def __init__(self, reduce: Any = None, root: int = 0, timeout: Optional[timedelta] = None) -> None:
        self.reduceOp = dist.ReduceOp.SUM if reduce is None else reduce
        self.rootRank = root
        self.timeout = timedelta(0) if timeout is None else timeout


def _options(opts: Any, **given: Any) -> Any:
    """Returns options: torch's, or those that a ReduceOp, a root or nothing stand for."""
    if hasattr(opts, "timeout"):
        return opts
    return _Options(opts if opts is not None else given.get("op"), given.get("root", 0), given.get("timeout"))


def _of_ranks(tensors: Any) -> List[torch.Tensor]:
    """Returns the tensors of all ranks, which torch gives in a list of one list, and some callers in a list."""
    first: List[torch.Tensor] = list(tensors[0]) if isinstance(tensors[0], (list, tuple)) else list(tensors)
    return first


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    a_end = a.data_ptr() + a.numel() * a.element_size()
    b_end = b.data_ptr() + b.numel() * b.element_size()
    return a.data_ptr() < b_end and b.data_ptr() < a_end


class Collectives(calls.Caller):
    """What every rank of the group calls."""

    # ---- reductions ----

    def allreduce(self, tensors: Any, opts: Any = None, **given: Any) -> HvdWork:
        tensor, opts = _one(tensors), _options(opts, **given)
        reduction = reduction_of(opts.reduceOp, tensor)
        memory = _scaled(tensor, reduction)
        finish: Optional[Callable[[], object]] = None
        if memory is not tensor:
            finish = lambda: copy_back(tensor, memory)  # noqa: E731
        return self.begin(
            calls.ALLREDUCE, opts, (tensor,), finish,
            address(memory), None, reduction.op, self.set, _prescale(reduction), 1.0, _NO_COMPRESSION, memory,
        )  # fmt: skip

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> HvdWork:
        opts = _options(opts)
        parts: dict[torch.dtype, List[torch.Tensor]] = {}
        for tensor in tensors:
            parts.setdefault(tensor.dtype, []).append(tensor)
        works = [self._allreduce_group(part, opts) for part in parts.values()]
        return works[0] if len(works) == 1 else self.join(works)

    def _allreduce_group(self, tensors: Sequence[torch.Tensor], opts: Any) -> HvdWork:
        reduction = reduction_of(opts.reduceOp, tensors[0])
        memories = [_scaled(tensor, reduction) for tensor in tensors]

        def finish() -> None:
            for tensor, memory in zip(tensors, memories, strict=True):
                copy_back(tensor, memory)

        return self.begin(
            calls.GROUPED_ALLREDUCE, opts, tensors, finish,
            [address(memory) for memory in memories], None, reduction.op, self.set, _prescale(reduction), 1.0, memories,
        )  # fmt: skip

    def reduce(self, tensors: Any, opts: Any = None, **given: Any) -> HvdWork:
        tensor, opts = _one(tensors), _options(opts, **given)
        reduction = reduction_of(opts.reduceOp, tensor)
        memory = _scaled(tensor, reduction)
        target = memory if self.index == opts.rootRank else torch.empty_like(memory)
        return self.begin(
            calls.ALLREDUCE, opts, (tensor,), (lambda: copy_back(tensor, memory)) if target is memory else None,
            address(memory), address(target), reduction.op, self.set, _prescale(reduction), 1.0, _NO_COMPRESSION,
            (memory, target),
        )  # fmt: skip

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, **given: Any) -> HvdWork:
        """outputs: this rank's part. inputs: a tensor for each rank, of any sizes."""
        output, parts, opts = _one(outputs), _of_ranks(inputs), _options(opts, **given)
        if len(parts) != self.ranks or parts[self.index].numel() != output.numel():
            raise ValueError(f"reduce_scatter needs a tensor for each of {self.ranks} ranks, its own like the output")
        if all(part.numel() == output.numel() for part in parts):
            return self._scatter_reduced(output, flat([memory_of(part) for part in parts]), opts)
        return self._slice_reduced(output, parts, opts)

    def _scatter_reduced(self, output: torch.Tensor, memory: torch.Tensor, opts: Any) -> HvdWork:
        reduction = reduction_of(opts.reduceOp, output)
        memory, target = _scaled(memory, reduction), memory_of(output)
        if memory.numel() != target.numel() * self.ranks or memory.dtype != target.dtype:
            raise ValueError(
                f"reduce_scatter of {memory.numel()} elements ({memory.dtype}) on {self.ranks} ranks does not give "
                f"{target.numel()} ({target.dtype})")
        if target.numel() == 0:
            return self.barrier(opts)
        if _overlap(memory, target):
            target = target.clone()
        return self.begin(
            calls.REDUCESCATTER, opts, (output,), lambda: copy_back(output, target),
            address(memory.view(-1)), self.ranks, target.numel(), address(target.view(-1)), reduction.op, self.set,
            _prescale(reduction), 1.0, (memory, target),
        )  # fmt: skip

    def _slice_reduced(self, output: torch.Tensor, parts: List[torch.Tensor], opts: Any) -> HvdWork:
        """Parts of unequal sizes: all are combined, and this rank takes its own."""
        reduction = reduction_of(opts.reduceOp, output)
        memory = _scaled(flat([memory_of(part) for part in parts]), reduction)
        if not isinstance(reduction.factor, torch.Tensor) and len(parts) == 1:
            memory = memory.clone()  # an input stays as it is
        begin = sum(memory_of(part).numel() for part in parts[: self.index])
        target = memory_of(output)

        def finish() -> None:
            target.view(-1).copy_(memory.view(-1)[begin : begin + target.numel()])
            copy_back(output, target)

        return self.begin(
            calls.ALLREDUCE, opts, (output,), finish,
            address(memory), None, reduction.op, self.set, _prescale(reduction), 1.0, _NO_COMPRESSION, memory,
        )  # fmt: skip

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> HvdWork:
        return self._scatter_reduced(output, memory_of(input), _options(opts))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HvdWork:
        works = [self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)]
        return self.join(works)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- copies ----

    def broadcast(self, tensors: Any, opts: Any = None, **given: Any) -> HvdWork:
        tensor, opts = _one(tensors), _options(opts, **given)
        memory = as_bytes(tensor)
        return self.begin(
            calls.BROADCAST, opts, (tensor,), lambda: copy_back(tensor, memory),
            address(memory), opts.rootRank, self.set, memory,
        )  # fmt: skip

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> HvdWork:
        """outputs: a list of tensors, one for each rank, of any sizes; in a list of one, as inputs are."""
        return self._allgather_list(_of_ranks(outputs), _one(inputs), _options(opts))

    def _allgather_list(self, tensors: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any) -> HvdWork:
        if len(tensors) != self.ranks:
            raise ValueError(f"all_gather needs an output for each of {self.ranks} ranks, not {len(tensors)}")
        memory = as_bytes(tensor).reshape(-1)
        parts = [as_bytes(each) for each in tensors]
        target = memory.new_empty(sum(part.numel() for part in parts))

        def finish() -> None:
            split_flat(target, parts)
            for each, part in zip(tensors, parts, strict=True):
                copy_back(each, part)

        return self.begin(
            calls.ALLGATHER, opts, tensors, finish,
            address(memory), memory.numel(), 1, address(target), self.set, (memory, target),
            rows=[part.numel() for part in parts],
        )  # fmt: skip

    def allgather_coalesced(self, outputs: Any, inputs: Sequence[torch.Tensor], opts: Any = None) -> HvdWork:
        works = [self._allgather_list(*pair, _options(opts)) for pair in zip(outputs, inputs, strict=True)]
        return self.join(works)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> HvdWork:
        memory, target, opts = as_bytes(input), as_bytes(output), _options(opts)
        if target.numel() != memory.numel() * self.ranks or target.dtype != memory.dtype:
            raise ValueError(
                f"all_gather of {memory.numel()} elements ({memory.dtype}) on {self.ranks} ranks does not fill "
                f"{target.numel()} ({target.dtype})")
        return self.begin(
            calls.ALLGATHER, opts, (output,), lambda: copy_back(output, target),
            address(memory.view(-1)), memory.numel(), 1, address(target.view(-1)), self.set, (memory, target),
            rows=[memory.numel()] * self.ranks,
        )  # fmt: skip

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HvdWork:
        works = [self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)]
        return self.join(works)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    # ---- exchanges ----

    def _exchange(
        self, memory: torch.Tensor, splits: Sequence[int], target: torch.Tensor, rows: List[int], opts: Any,
        outputs: Sequence[torch.Tensor], finish: Callable[[], object],
    ) -> HvdWork:  # fmt: skip
        """memory, target: one dimension. splits, rows: the elements for each rank, and those from each rank."""
        return self.begin(
            calls.ALLTOALL, opts, outputs, finish,
            address(memory), memory.numel(), 1, splits, address(target), self.set, (memory, target), rows=rows,
        )  # fmt: skip

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> HvdWork:
        if len(outputs) != self.ranks or len(inputs) != self.ranks:
            raise ValueError(f"all_to_all needs an input and an output for each of {self.ranks} ranks")
        given = [as_bytes(tensor) for tensor in inputs]
        taken = [as_bytes(tensor) for tensor in outputs]
        memory = flat(given)
        target = memory.new_empty(sum(part.numel() for part in taken))

        def finish() -> None:
            split_flat(target, taken)
            for tensor, part in zip(outputs, taken, strict=True):
                copy_back(tensor, part)

        rows = [part.numel() for part in taken]
        return self._exchange(memory, [part.numel() for part in given], target, rows, _options(opts), outputs, finish)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor,
        output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None,
    ) -> HvdWork:  # fmt: skip
        """Splits are numbers of rows; an empty list: equal parts."""
        memory, target = as_bytes(input), as_bytes(output)
        splits = self._elements_of(memory, input_splits, "input")
        rows = self._elements_of(target, output_splits, "output")
        memory = memory.view(-1)
        return self._exchange(
            memory, splits, target.view(-1), rows, _options(opts), (output,), lambda: copy_back(output, target))

    alltoall_base = all_to_all_single

    def _elements_of(self, memory: torch.Tensor, splits: Sequence[int], what: str) -> List[int]:
        rows = memory.shape[0] if memory.dim() > 0 else 1
        if not splits and rows % self.ranks != 0:
            raise ValueError(f"all_to_all_single: {rows} rows of the {what} are no equal parts for {self.ranks} ranks")
        if splits and (len(splits) != self.ranks or sum(splits) != rows):
            raise ValueError(f"all_to_all_single: the splits {list(splits)} are not the {what}'s {rows} rows")
        row = memory.numel() // rows if rows else 0
        return [split * row for split in splits or [rows // self.ranks] * self.ranks]

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, **given: Any) -> HvdWork:
        """outputs: on the root a list of tensors, one for each rank, in a list of one; else an empty list."""
        opts = _options(opts, **given)
        root = self.index == opts.rootRank
        memory = as_bytes(_one(inputs)).reshape(-1)
        tensors = _of_ranks(outputs) if root else []
        if root and len(tensors) != self.ranks:
            raise ValueError(f"gather needs an output for each of {self.ranks} ranks, not {len(tensors)}")
        parts = [as_bytes(tensor) for tensor in tensors]
        target = memory.new_empty(sum(part.numel() for part in parts))
        splits = [memory.numel() if rank == opts.rootRank else 0 for rank in range(self.ranks)]

        def finish() -> None:
            split_flat(target, parts)
            for tensor, part in zip(tensors, parts, strict=True):
                copy_back(tensor, part)

        rows = [part.numel() for part in parts] or [0] * self.ranks
        return self._exchange(memory, splits, target, rows, opts, tensors, finish)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, **given: Any) -> HvdWork:
        """inputs: on the root a list of tensors, one for each rank, in a list of one; else an empty list."""
        output, opts = _one(outputs), _options(opts, **given)
        target, root = as_bytes(output), self.index == opts.rootRank
        parts = [as_bytes(tensor) for tensor in _of_ranks(inputs)] if root else []
        if root and len(parts) != self.ranks:
            raise ValueError(f"scatter needs a tensor for each of {self.ranks} ranks, not {len(parts)}")
        memory = flat(parts) if parts else target.new_empty(0)
        splits = [part.numel() for part in parts] or [0] * self.ranks
        rows = [target.numel() if rank == opts.rootRank else 0 for rank in range(self.ranks)]
        return self._exchange(
            memory, splits, target.view(-1), rows, opts, (output,), lambda: copy_back(output, target))

    # ---- all at one point ----

    def barrier(self, opts: Any = None) -> HvdWork:
        """A reduction of one byte, so that it has its place in the order of operations."""
        opts = _options(opts)
        mark = torch.zeros(1, dtype=torch.uint8)
        return self.begin(
            calls.ALLREDUCE, opts, (), None,
            address(mark), None, _TRUE_OR, self.set, 1.0, 1.0, _NO_COMPRESSION, mark,
        )  # fmt: skip
