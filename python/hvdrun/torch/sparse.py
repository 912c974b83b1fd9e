"""Sparse tensors: two allgathers, of the indices and of the values."""

from __future__ import annotations

from typing import Any, Dict

import torch

from hvdrun.process_sets import ProcessSet, global_process_set

from .operations import Average, Pending, Sum, allgather_async

__all__ = ["SparsePending", "sparse_allreduce_async"]

# The indices come from tensors. torch 2.0 and newer ask whether to check them.
_UNCHECKED: Dict[str, Any] = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)


class SparsePending(Pending):
    """The handle of a sparse allreduce. Calling it is the same as synchronize()."""

    __slots__ = ()

    def __call__(self) -> torch.Tensor:
        result: torch.Tensor = self.wait()
        return result


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> SparsePending:
    """Starts a sum or average of a sparse COO tensor over the ranks.

    tensor: sparse COO of the same shape on all ranks; the indices may differ. op: Sum or Average. Returns a
    callable handle; calling it waits, and returns a sparse tensor with the elements of all ranks, not coalesced.
    TypeError: the tensor is not sparse COO. NotImplementedError: another op.
    """
    if tensor.layout != torch.sparse_coo:
        raise TypeError(f"a sparse COO tensor is needed here, not one of layout {tensor.layout}")
    if op not in (Average, Sum):
        raise NotImplementedError("sparse allreduces take op=Average and op=Sum")
    tensor = tensor.detach().coalesce()
    indices = allgather_async(tensor.indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor.values(), f"{name}.values", process_set)
    shape, size = tensor.shape, process_set.size()

    def finish() -> torch.Tensor:
        total: torch.Tensor = values.wait()
        if op == Average:
            total = total / size
        return torch.sparse_coo_tensor(indices.wait().t(), total, shape, **_UNCHECKED)

    return SparsePending((indices, values), finish)
