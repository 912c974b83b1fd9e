"""Parameters, states of optimizers, and objects of Python, from one rank to all or from all to all."""

from __future__ import annotations

import pickle
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

import torch

from hvdrun import _hvd
from hvdrun.pickling import pickler
from hvdrun.process_sets import ProcessSet, global_process_set

from .operations import Pending, broadcast_, broadcast_async_, gather_with_rows

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

Parameters = Union[
    Mapping[str, Optional[torch.Tensor]], Iterable[Tuple[str, Optional[torch.Tensor]]], Iterable[torch.Tensor]
]


def _bytes_of(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickler().dumps(obj)), dtype=torch.uint8)


def _object_of(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().tobytes())


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the object of rank `root_rank` on every rank of the set; on the root the object itself.

    obj: anything that pickle can write, or cloudpickle if that is installed; not read on the other ranks.
    """
    root = _hvd.rank() == root_rank
    data = _bytes_of(obj) if root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()])
    broadcast_(size, root_rank, name and f"{name}.size", process_set)
    if not root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, name and f"{name}.bytes", process_set)
    return obj if root else _object_of(data)


def allgather_object(obj: Any, name: Optional[str] = None) -> List[Any]:
    """Returns the objects of all ranks, in the order of ranks. obj: as for broadcast_object()."""
    data, sizes = gather_with_rows(_bytes_of(obj), name, global_process_set).wait()
    return [_object_of(part) for part in torch.split(data, sizes)]


def _named_tensors(params: Parameters) -> List[Tuple[Optional[str], torch.Tensor]]:
    """Returns names and tensors. ValueError: an entry is neither a tensor nor a name with a tensor."""
    items: Iterable[Any] = sorted(params.items()) if isinstance(params, Mapping) else params
    if isinstance(params, (torch.Tensor, str)):
        raise ValueError(f"params are a state_dict or named parameters, not {type(params).__name__}")
    named = []
    for item in items:
        name, tensor = item if isinstance(item, tuple) else (None, item)
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name!r} is no tensor, but {type(tensor).__name__}")
        named.append((name, tensor))
    return named


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Copies parameters of rank `root_rank` into those of every rank, in place.

    params: model.state_dict(), model.named_parameters() or model.parameters(). Every rank has the same names,
    shapes and dtypes. ValueError: an entry is no tensor.
    """
    copy_parameters(params, root_rank, global_process_set)


def copy_parameters(params: Parameters, root_rank: int, process_set: ProcessSet) -> None:
    """Is broadcast_parameters() within a process set."""
    pending: List[Pending] = [
        broadcast_async_(tensor.detach(), root_rank, name, process_set) for name, tensor in _named_tensors(params)
    ]
    for operation in pending:
        operation.wait()


class _Place(NamedTuple):
    """Stands for a tensor in a state that travels without its tensors."""

    number: int
    shape: Tuple[int, ...]
    dtype: torch.dtype


def _map_tree(tree: Any, kind: type, change: Any) -> Any:
    """Returns a copy of nested dicts, lists and tuples, with each object of `kind` changed."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _map_tree(value, kind, change) for key, value in tree.items()}
    if isinstance(tree, list) or type(tree) is tuple:
        return type(tree)(_map_tree(value, kind, change) for value in tree)
    return tree


def _take_tensors(state: Dict[str, Any]) -> Tuple[Dict[str, Any], List[torch.Tensor]]:
    """Returns a state with places instead of its tensors, and the tensors."""
    tensors: List[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> _Place:
        tensors.append(tensor.detach().cpu())  # the other ranks receive on the host
        return _Place(len(tensors) - 1, tuple(tensor.shape), tensor.dtype)

    return _map_tree(state, torch.Tensor, place), tensors


def _make_tensors(state: Dict[str, Any]) -> Tuple[Dict[str, Any], List[torch.Tensor]]:
    """Returns a state with empty tensors in its places, and the tensors."""
    tensors: List[torch.Tensor] = []

    def make(place: _Place) -> torch.Tensor:
        tensors.append(torch.empty(place.shape, dtype=place.dtype))
        return tensors[-1]

    return _map_tree(state, _Place, make), tensors


def _sparse_parameters(model: Optional[torch.nn.Module]) -> Set[int]:
    """Returns the ids of parameters whose gradients are sparse."""
    if model is None:
        return set()
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse
        for parameter in module.parameters()
    }


def _fill_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> None:
    """Gives zero gradients to the parameters that have none, as scripts know it from Horovod."""
    sparse = _sparse_parameters(model)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None and id(parameter) not in sparse:
                parameter.grad = torch.zeros_like(parameter)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None
) -> None:
    """Copies the state of the optimizer of rank `root_rank`, with its options, to every rank.

    The optimizers are of one class, for the same parameters. An optimizer without a state stays without, so the
    first step is torch's own; its parameters get zero gradients where they have none. model: keeps parameters
    with sparse gradients from that.
    """
    if not copy_optimizer_state(optimizer, root_rank, global_process_set):
        _fill_gradients(optimizer, model)


def copy_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, process_set: ProcessSet) -> bool:
    """Copies the state within a process set. Returns whether the optimizer of rank `root_rank` has one."""
    root = _hvd.rank() == root_rank
    structure, tensors = _take_tensors(optimizer.state_dict()) if root else ({}, [])
    structure = broadcast_object(structure, root_rank, "optimizer_state", process_set)
    if not root:
        state, tensors = _make_tensors(structure)
    for pending in [
        broadcast_async_(tensor, root_rank, f"optimizer_state.{index}", process_set)
        for index, tensor in enumerate(tensors)
    ]:
        pending.wait()
    if not root:
        optimizer.load_state_dict(state)
    return bool(structure["state"])
