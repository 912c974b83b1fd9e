"""Compression of gradients: what travels is smaller than what the script sees."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """The interface of a compression. A script may give an own class with these two functions."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns the tensor that travels, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the tensor that the script gets; `ctx` is the second result of compress()."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


class _CastCompressor(Compressor):
    """Tensors of floating point travel as another type. Tensors of other types travel as they are."""

    travels_as: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:  # type: ignore[override]
        if not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.travels_as), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """float32 and float64 travel as float16."""

    travels_as = torch.float16


class BF16Compressor(_CastCompressor):
    """float32 and float64 travel as bfloat16, which has the range of float32."""

    travels_as = torch.bfloat16


class Compression:
    """The compressions that a script can choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
