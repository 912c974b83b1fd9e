"""Elastic training of models of PyTorch.

::

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

    @hvd.elastic.run
    def train(state): ...

See hvdrun.elastic for what a commit is and when ranks come and go.
"""

from __future__ import annotations

from typing import Any, Callable

from hvdrun import elastic
from hvdrun.elastic import ObjectState, State, membership, membership_changed, process_sets
from hvdrun.torch.optimizer import forget_units

from .handlers import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)
from .sampler import ElasticSampler
from .state import TorchState

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "membership",
    "membership_changed",
    "process_sets",
    "reset",
    "run",
    "set_handler_registry",
]


def reset() -> None:
    """Enters the next membership. Optimizers exchange their gradients with its ranks from then on."""
    forget_units()
    elastic.reset()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the training function of an elastic job. Its first argument is a State."""
    return elastic.run_fn(func, reset)
