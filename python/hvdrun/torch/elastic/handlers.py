"""One handler for each kind of object that a TorchState saves, restores and synchronizes in a way of its own."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple, Type

import torch

from hvdrun.process_sets import ProcessSet, global_process_set
from hvdrun.torch.functions import allgather_object, copy_optimizer_state, copy_parameters

from .sampler import ElasticSampler
from .snapshot import copy_state

__all__ = [
    "DictStateHandler",
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """Keeps the state of an object. A class of your own gives save(), restore() and sync()."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copies the state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the states of all ranks equal, and saves. All ranks call it after each change of the ranks."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Another object has taken the place of this one."""
        self.value = value
        self.save()


class DictStateHandler(StateHandler):
    """Of an object with state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved = copy_state(value.state_dict())

    def save(self) -> None:
        self._saved = copy_state(self.value.state_dict(), self._saved)

    def save_later(self) -> Callable[[], None]:
        """Returns what copies the state. Until it has been called, only an optimizer's step may change the state."""
        state = self.live()

        def copy_now() -> None:
            self._saved = copy_state(state, self._saved)

        return copy_now

    def live(self) -> Any:
        """Returns the state: tensors that step() changes as they are, and copies of those that change before."""
        return self.value.state_dict()

    def restore(self) -> None:
        self.value.load_state_dict(copy_state(self._saved))  # which may keep the tensors that it gets

    def sync(self) -> None:
        self.sync_from(0, global_process_set)
        self.save()

    def sync_from(self, root: int, among: ProcessSet) -> None:
        """Takes the state of rank `root`. The ranks of the set call it."""
        raise NotImplementedError


class ModelStateHandler(DictStateHandler):
    """Of a torch.nn.Module: parameters and buffers."""

    def live(self) -> Any:
        state, parameters = self.value.state_dict(), {name for name, _ in self.value.named_parameters()}
        for name in state:  # the next forward pass changes buffers
            if name not in parameters:
                state[name] = copy_state(state[name])
        return state

    def sync_from(self, root: int, among: ProcessSet) -> None:
        tensors = {name: each for name, each in self.value.state_dict().items() if isinstance(each, torch.Tensor)}
        copy_parameters(tensors, root, among)


class OptimizerStateHandler(DictStateHandler):
    """Of a torch.optim.Optimizer, also of a DistributedOptimizer."""

    def restore(self) -> None:
        super().restore()
        self.value.zero_grad()  # gradients of a step that did not end

    def sync_from(self, root: int, among: ProcessSet) -> None:
        copy_optimizer_state(self.value, root, among)


class SamplerStateHandler(StateHandler):
    """Of an ElasticSampler. Each rank has read other samples, so all ranks tell each other."""

    def __init__(self, value: ElasticSampler) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        self.exchange()
        self.save()

    def exchange(self) -> None:
        """Takes what all ranks have read, and does not save yet: the exchange of another sampler may fail."""
        states = allgather_object(self.value.state_dict(), "hvd.elastic.sampler")
        epoch = max(state["epoch"] for state in states)
        read = [state["processed_indices"] for state in states if state["epoch"] == epoch]
        self.value.load_state_dict({"epoch": epoch, "processed_indices": set().union(*read)})


Registry = List[Tuple[type, Type[StateHandler]]]

_registry: Registry = [
    (ElasticSampler, SamplerStateHandler),
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
]


def get_handler_registry() -> Registry:
    """Returns pairs of a class of objects and the class of their handlers; the first that fits is used."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces the pairs. It holds for states that are made afterwards."""
    global _registry
    _registry = registry
