"""The state of a training with PyTorch."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from hvdrun import _hvd
from hvdrun.elastic import ObjectState
from hvdrun.process_sets import ProcessSet
from hvdrun.torch.functions import broadcast_object
from hvdrun.torch.optimizer import forget_units

from .background import BackgroundCopy, wait_before_steps
from .handlers import (
    DictStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
)

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
        self._copy = BackgroundCopy()
        self._asynchronous = False
        self._waited: Dict[str, torch.optim.Optimizer] = {}  # their steps wait for the copy
        super().__init__(broadcast_object, _hvd.rank, **values)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def commit(self, asynchronous: bool = False) -> None:
        """Saves the state, and lets ranks come and go. All ranks call it at the same place.

        asynchronous: a thread copies models and optimizers, while the next forward and backward passes run. The
        copy ends before the next step() of an optimizer of this state, which alone may change the parameters.
        Raises as State.commit().
        """
        self._asynchronous = asynchronous
        try:
            super().commit()
        finally:
            self._asynchronous = False

    def keep(self) -> None:
        self._copy.wait()
        later = []
        for handler in self._handlers.values():
            if self._asynchronous and isinstance(handler, DictStateHandler):
                later.append(handler.save_later())
            else:
                handler.save()
        super().keep()
        if later:
            self._wait_before_steps()
            self._copy.start(later)

    def _wait_before_steps(self) -> None:
        for name, handler in self._handlers.items():
            if isinstance(handler, OptimizerStateHandler) and self._waited.get(name) is not handler.value:
                wait_before_steps(handler.value, self._copy.wait)
                self._waited[name] = handler.value

    def restore(self) -> None:
        self._copy.wait()
        forget_units()  # gradients that were on their way have not arrived
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync_from(self, root: int, among: ProcessSet) -> None:
        self._copy.wait()
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
