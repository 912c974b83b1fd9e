"""Copies of the state of a model or an optimizer."""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["copy_state"]


def copy_state(state: Any, old: Any = None) -> Any:
    """Returns a copy of nested dicts, lists and tuples, with their tensors.

    old: an earlier copy, which nobody needs any more. Its tensors are written over where they fit.
    """
    if isinstance(state, torch.Tensor):
        return _copy_tensor(state.detach(), old)
    if isinstance(state, dict):
        made = copy.copy(state)  # with attributes that a state_dict may have
        before = old if isinstance(old, dict) else {}
        for key, value in state.items():
            made[key] = copy_state(value, before.get(key))
        return made
    if isinstance(state, list) or type(state) is tuple:
        fits = type(old) is type(state) and len(old) == len(state)
        return type(state)(copy_state(value, old[at] if fits else None) for at, value in enumerate(state))
    return copy.deepcopy(state)


def _copy_tensor(tensor: torch.Tensor, old: Any) -> torch.Tensor:
    fits = (
        isinstance(old, torch.Tensor)
        and (old.shape, old.dtype, old.device, old.layout) == (tensor.shape, tensor.dtype, tensor.device, tensor.layout)
        and tensor.layout is torch.strided
    )
    return old.copy_(tensor) if fits else tensor.clone()
