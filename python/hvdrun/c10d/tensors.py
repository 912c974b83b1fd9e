"""Tensors of torch.distributed as memory of the engine's dtypes."""

from __future__ import annotations

import math
from typing import List, Sequence

import torch

from hvdrun.torch.tensors import DTYPES, dense

__all__ = ["as_bytes", "copy_back", "flat", "memory_of", "split_flat"]


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements, one behind the other, in a dtype that the engine combines.

    Complex numbers become pairs. It is the tensor's own memory where that is possible; see copy_back().
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return dense(tensor)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same, for operations that only move elements: a dtype that the engine lacks becomes bytes."""
    if tensor.dtype in DTYPES or tensor.is_complex():
        return memory_of(tensor)
    return dense(tensor).view(torch.uint8)


def copy_back(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Copies a result into a tensor whose memory_of() or as_bytes() is a copy."""
    if memory.data_ptr() != tensor.data_ptr():
        tensor.copy_(_like(memory, tensor))


def _like(memory: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(memory.view(*tensor.shape, 2))
    return memory.view(tensor.dtype).view(tensor.shape)


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of all tensors, one behind the other, in one dimension."""
    if len(tensors) == 1:
        return tensors[0].reshape(-1)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def split_flat(memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Copies the elements, one behind the other, into the tensors."""
    at = 0
    for tensor in tensors:
        count = math.prod(tensor.shape)
        tensor.copy_(memory[at : at + count].view(tensor.shape))
        at += count
    return list(tensors)
