"""The engine's form of a torch.distributed.ReduceOp."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist

__all__ = ["Reduction", "reduction_of"]

# Numbers of hvd_op.
_AVERAGE, _SUM, _MIN, _MAX, _PRODUCT, _BAND, _BOR, _BXOR, _LAND, _LOR = 0, 1, 3, 4, 5, 6, 7, 8, 9, 10

_OPS = {"SUM": _SUM, "AVG": _AVERAGE, "PRODUCT": _PRODUCT, "MIN": _MIN, "MAX": _MAX, "BAND": _BAND, "BOR": _BOR,
        "BXOR": _BXOR, "PREMUL_SUM": _SUM}  # fmt: skip
_TRUTH = {_SUM: _LOR, _MAX: _LOR, _PRODUCT: _LAND, _MIN: _LAND}
"""Of bool: the number of hvd_op that gives what torch's arithmetic does."""


class Reduction(NamedTuple):
    op: int
    """A number of hvd_op."""
    factor: Union[float, torch.Tensor, None] = None
    """Of PREMUL_SUM: what the input is multiplied by first."""


_PLAIN = {getattr(dist.ReduceOp.RedOpType, name): Reduction(op) for name, op in _OPS.items() if name != "PREMUL_SUM"}


def reduction_of(op: Any, tensor: torch.Tensor) -> Reduction:
    """Returns how tensors like this one are combined.

    op: a ReduceOp. RuntimeError: the engine cannot combine such tensors in this way.
    """
    kind = getattr(op, "op", op)
    reduction: Optional[Reduction] = _PLAIN.get(kind)
    if reduction is None:
        reduction = Reduction(_SUM, _factor_of(op))
    if tensor.dtype is torch.bool:
        reduction = Reduction(_TRUTH.get(reduction.op, reduction.op))
    if tensor.is_complex() and reduction.op not in (_SUM, _AVERAGE):
        raise RuntimeError(f"{_name(kind)} of complex tensors cannot be computed; SUM and AVG can")
    if tensor.is_floating_point() and reduction.op in (_BAND, _BOR, _BXOR):
        raise RuntimeError(f"{_name(kind)} is for integers and bool, not for {tensor.dtype}")
    return reduction


def _factor_of(op: Any) -> Union[float, torch.Tensor]:
    state = op.__getstate__()
    if state is None:
        raise RuntimeError("PREMUL_SUM needs PyTorch 2.0 or newer: an older one does not tell its factor")
    factor: Union[float, torch.Tensor] = state[1]
    return factor


def _name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).rpartition(".")[2]
