"""DistributedOptimizer with op=Adasum: each rank steps alone, and Adasum combines what the steps have changed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Tuple, Type

import torch

from hvdrun.process_sets import ProcessSet

from .compression import Compressor
from .operations import Adasum, allreduce_async_
from .wrapping import Named, wrap

__all__ = ["DistributedAdasumOptimizer", "make_adasum_optimizer"]


class DistributedAdasumOptimizer:
    """What DistributedOptimizer(op=Adasum) adds to the class of an optimizer."""

    _named: Named
    _compression: Type[Compressor]
    _process_set: ProcessSet
    backward_passes_per_step: int

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Says how many backward passes come before each step(). Their gradients are added on each rank."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Does nothing: step() combines the changes of parameters, not gradients."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """AssertionError: step() of this optimizer cannot do without the other ranks."""
        raise AssertionError("op=hvd.Adasum cannot skip synchronize(): step() combines the changes of the ranks")
        yield

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Does a step on this rank alone, combines the changes of all ranks, and applies them."""
        parameters = [(name, parameter) for name, parameter in self._named if parameter.requires_grad]
        before = [parameter.detach().clone() for _, parameter in parameters]
        loss = super().step(closure)  # type: ignore[misc]
        started: List[Tuple[Any, torch.Tensor, Any]] = []
        with torch.no_grad():
            for (name, parameter), start in zip(parameters, before, strict=True):
                small, context = self._compression.compress(parameter - start)
                pending = allreduce_async_(small, name=f"adasum.{name}", op=Adasum, process_set=self._process_set)
                started.append((pending, small, context))
            for (_, parameter), start, (pending, small, context) in zip(parameters, before, started, strict=True):
                pending.wait()
                parameter.copy_(start + self._compression.decompress(small, context))
        return loss


def make_adasum_optimizer(
    optimizer: torch.optim.Optimizer, named: Named, compression: Type[Compressor], passes: int,
    process_set: ProcessSet,
) -> Any:  # fmt: skip
    """Returns the optimizer as a DistributedAdasumOptimizer. NotImplementedError: no power of two of ranks."""
    size = process_set.size()
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, not {size}")
    return wrap(
        optimizer, DistributedAdasumOptimizer,
        {
            "_named": named, "_compression": compression, "backward_passes_per_step": passes,
            "_process_set": process_set,
        },
    )  # fmt: skip
