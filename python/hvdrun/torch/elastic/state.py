"""The state of a training with PyTorch."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from hvdrun import _hvd
from hvdrun.elastic import ObjectState
from hvdrun.process_sets import ProcessSet
from hvdrun.torch.functions import broadcast_object
from hvdrun.torch.optimizer import forget_units

from .handlers import DictStateHandler, SamplerStateHandler, StateHandler, get_handler_registry

__all__ = ["TorchState"]


def _make_handler(value: Any) -> Optional[StateHandler]:
    for kind, handler in get_handler_registry():
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and objects. Each keyword becomes an attribute.

    model, optimizer: keywords as the others. An object that is no module, optimizer or ElasticSampler is copied by
    pickle.
    """

    _handlers: Dict[str, StateHandler]

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        found = {name: _make_handler(value) for name, value in values.items()}
        handlers = {name: handler for name, handler in found.items() if handler is not None}
        for name in handlers:
            object.__setattr__(self, name, values.pop(name))
        self._handlers = handlers
        super().__init__(broadcast_object, _hvd.rank, **values)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def keep(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().keep()

    def restore(self) -> None:
        forget_units()  # gradients that were on their way have not arrived
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync_from(self, root: int, among: ProcessSet) -> None:
        for handler in self._handlers.values():
            if isinstance(handler, DictStateHandler):
                handler.sync_from(root, among)
        super().sync_from(root, among)

    def sync_all(self) -> None:
        samplers = [each for each in self._handlers.values() if isinstance(each, SamplerStateHandler)]
        for handler in self._handlers.values():
            if not isinstance(handler, (DictStateHandler, SamplerStateHandler)):
                handler.sync()
        for sampler in samplers:
            sampler.exchange()
        for sampler in samplers:
            sampler.save()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
