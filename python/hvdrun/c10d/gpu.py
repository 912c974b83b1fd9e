"""Tensors of CUDA devices: they go to a group of torch's nccl, which is made with a group's first such tensor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Dict, Iterable

import torch
import torch.distributed as dist

__all__ = ["is_on_gpu", "make_group", "methods_of"]

_METHODS = (
    "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "broadcast", "allgather",
    "allgather_coalesced", "all_gather_single", "_allgather_base", "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced", "alltoall", "all_to_all_single", "alltoall_base", "gather", "scatter", "send",
    "recv", "recv_anysource",
)  # fmt: skip
"""Those that are given tensors."""


def is_on_gpu(arguments: Iterable[Any]) -> bool:
    """Returns whether the first tensor of the arguments, which may be lists of lists, is on a CUDA device."""
    for each in arguments:
        if isinstance(each, torch.Tensor):
            return each.is_cuda
        if isinstance(each, (list, tuple)) and each:
            return is_on_gpu(each)
    return False


def _delegating(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a group that does the same, and leaves tensors on GPUs to the group's `gpu_group()`."""

    def call(group: Any, *arguments: Any, **options: Any) -> Any:
        if is_on_gpu(arguments):
            return getattr(group.gpu_group(), name)(*arguments, **options)
        return method(group, *arguments, **options)

    return call


def make_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Returns torch's group of nccl for the ranks. RuntimeError: this torch has none."""
    if not dist.is_nccl_available():
        raise RuntimeError("tensors of CUDA devices need a PyTorch with nccl")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(dist.PrefixStore("nccl/", store), rank, size, options)


def methods_of(kind: type) -> Dict[str, Callable[..., Any]]:
    """Returns the methods that are given tensors, by name; they delegate."""
    return {name: _delegating(name, getattr(kind, name)) for name in _METHODS}
