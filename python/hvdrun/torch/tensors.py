"""Tensors as the binding sees them: address, count, dtype and stream.

Nothing is compiled against torch. A tensor's memory is reached by its address, and the tensor itself is the
`owner` of the operation, which keeps the memory alive.
"""

from __future__ import annotations

from typing import Dict, List, NoReturn, Optional, Sequence, Tuple, Union

import torch

from hvdrun import _hvd

__all__ = ["Address", "DTYPES", "address", "dense", "from_memory", "number_of"]

Address = Union[Tuple[int, int, int], Tuple[int, int, int, Optional[int], Tuple[int, ...]]]

_NUMBERS = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bool": 9, "bfloat16": 10, "uint32": 11, "uint64": 12, "float8_e4m3fn": 13, "float8_e5m2": 14,
}  # fmt: skip

DTYPES: Dict[torch.dtype, int] = {
    getattr(torch, name): number for name, number in _NUMBERS.items() if hasattr(torch, name)
}
"""The number of hvd_dtype for each dtype of this torch."""


def number_of(dtype: torch.dtype) -> int:
    """Returns the number of hvd_dtype. TypeError: hvd.h has no such type."""
    try:
        return DTYPES[dtype]
    except KeyError:
        raise TypeError(f"tensors of {dtype} cannot be sent; the types are {', '.join(map(str, DTYPES))}") from None


def _refuse(tensor: object) -> NoReturn:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a torch.Tensor is needed here, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"a tensor of layout {tensor.layout} cannot be sent; see sparse_allreduce_async and to_dense()")
    raise TypeError(f"a tensor on device {tensor.device} cannot be sent; the devices are cpu and cuda")


def address(tensor: torch.Tensor) -> Address:
    """Returns a contiguous tensor's memory and shape for the binding. A CUDA tensor comes with the current stream.

    TypeError: the object is no tensor, or has a layout, device or dtype that cannot be sent.
    """
    try:
        if tensor.is_cpu and tensor.layout is torch.strided:
            if tensor.dim() < 2:
                return tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype]
            return tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype], None, tensor.shape
        if tensor.is_cuda and tensor.layout is torch.strided:
            stream = torch.cuda.current_stream(tensor.device).cuda_stream
            return tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype], stream, tensor.shape
    except KeyError:
        number_of(tensor.dtype)
    except AttributeError:
        pass
    _refuse(tensor)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor if its elements lie one behind the other, else a copy for which that holds."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        _refuse(tensor)
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def from_memory(memory: _hvd.Memory, dtype: torch.dtype, shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Returns a tensor of `shape` over the bytes of a result, on the CPU or on a CUDA device. Nothing is copied."""
    sizes: List[int] = list(shape)
    if memory.nbytes == 0:
        return torch.empty(sizes, dtype=dtype, device=device)
    if device.type == "cpu":
        tensor: torch.Tensor = torch.frombuffer(memory, dtype=dtype)
    else:
        tensor = torch.as_tensor(memory, device=device).view(dtype)
    return tensor.view(sizes)
