"""Batch normalization over the batches of all ranks.

Forward: each rank computes mean and squared deviations of its part, one allgather brings those of the others, and
each rank combines them in the order of ranks. Backward: one allreduce of two sums for each channel.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F

from hvdrun import _hvd

from .operations import Sum, allgather_async, allreduce_

__all__ = ["SyncBatchNorm"]


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _channel(vector: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns a vector of channels as a tensor of `dim` dimensions, for arithmetic with the input."""
    return vector.view(1, -1, *([1] * (dim - 2)))


def _statistics(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns mean, variance (not corrected) and number of elements for each channel, over all ranks."""
    dims = [0, *range(2, x.dim())]
    wide = x.to(_accumulator(x.dtype))
    count = x.numel() // x.shape[1]
    mean = wide.mean(dims) if count else wide.new_zeros(x.shape[1])
    squares = (wide - _channel(mean, x.dim())).square().sum(dims)
    own = torch.cat([mean, squares, mean.new_tensor([count])])
    parts = allgather_async(own.unsqueeze(0)).wait()
    means, deviations, counts = parts.split([x.shape[1], x.shape[1], 1], dim=1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variance = (deviations + (means - mean).square() * counts).sum(0) / total
    return mean, variance, total


class _Normalize(torch.autograd.Function):
    """Normalizes with the statistics of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], mean: torch.Tensor,
        inverse: torch.Tensor, total: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        normal = (x.to(mean.dtype) - _channel(mean, x.dim())) * _channel(inverse, x.dim())
        ctx.save_for_backward(x, weight, mean, inverse, total)
        if weight is not None and bias is not None:
            normal = normal * _channel(weight, x.dim()) + _channel(bias, x.dim())
        return normal.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:  # type: ignore[override]
        x, weight, mean, inverse, total = ctx.saved_tensors
        dims = [0, *range(2, x.dim())]
        grad = grad.to(mean.dtype)
        normal = (x.to(mean.dtype) - _channel(mean, x.dim())) * _channel(inverse, x.dim())
        sums = torch.stack([grad.sum(dims), (grad * normal).sum(dims)])
        own = sums.clone()
        allreduce_(sums, op=Sum)
        centre, slope = _channel(sums[0] / total, x.dim()), _channel(sums[1] / total, x.dim())
        scale = inverse if weight is None else inverse * weight.to(mean.dtype)
        grad_x = (grad - centre - normal * slope) * _channel(scale, x.dim())
        grad_weight = None if weight is None else own[1].to(weight.dtype)
        grad_bias = None if weight is None else own[0].to(weight.dtype)
        return grad_x.to(x.dtype), grad_weight, grad_bias, None, None, None


class SyncBatchNorm(torch.nn.SyncBatchNorm):
    """Batch normalization whose mean and variance are those of the batches of all ranks together.

    Takes the place of torch.nn.BatchNorm1d, 2d and 3d. Input: shape (batch, num_features, ...), on cpu or cuda;
    batches of the ranks may differ in size. In evaluation, and in a job of one rank, it is torch's own.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _factor(self) -> float:
        """Counts the batch, and returns the weight of its statistics in the running ones."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(self.num_batches_tracked) if self.num_batches_tracked is not None else 0.0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes. ValueError: the input has one dimension, or another number of channels."""
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(f"shape (batch, {self.num_features}, ...) is needed, not {tuple(input.shape)}")
        batch = self.training or self.running_mean is None
        tracks = self.training and self.track_running_stats
        if not batch or _hvd.size() == 1:
            factor = self._factor() if tracks else 0.0
            running = not self.training or self.track_running_stats
            return F.batch_norm(
                input, self.running_mean if running else None, self.running_var if running else None, self.weight,
                self.bias, batch, factor, self.eps,
            )  # fmt: skip
        with torch.no_grad():
            mean, variance, total = _statistics(input)
            if tracks and self.running_mean is not None and self.running_var is not None:
                factor = self._factor()
                unbiased = variance * (total / (total - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
            inverse = torch.rsqrt(variance + self.eps)
        result: torch.Tensor = _Normalize.apply(input, self.weight, self.bias, mean, inverse, total)
        return result
