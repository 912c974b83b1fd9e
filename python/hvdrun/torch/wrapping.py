"""An optimizer becomes an object of a class made for it: the optimizer's own class, with a base class in front."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

__all__ = ["named_parameters_of", "wrap"]

Named = List[Tuple[str, torch.Tensor]]


def wrap(optimizer: torch.optim.Optimizer, base: type, fields: Dict[str, Any]) -> Any:
    """Returns an optimizer that shares parameters, options and state with the given one.

    base: its methods come before those of the optimizer's class. fields: further attributes of the new object.
    """
    kind: Any = type(type(optimizer).__name__, (base, type(optimizer)), {"__module__": base.__module__})
    wrapped = kind.__new__(kind)
    # A scheduler that was made before puts a step() of the old object there.
    wrapped.__dict__.update((key, value) for key, value in vars(optimizer).items() if key != "step")
    wrapped.__dict__.update(fields)
    return wrapped


def named_parameters_of(
    optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
) -> Named:
    """Returns the optimizer's parameters with their names. ValueError: names are missing, or there twice."""
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named = list(named_parameters) if named_parameters is not None else []
    if not named:
        return [(f"parameter.{number}", parameter) for number, parameter in enumerate(own)]
    if any(not isinstance(item, tuple) or len(item) != 2 for item in named):
        raise ValueError("named_parameters are pairs of a name and a parameter, as model.named_parameters() gives them")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"named_parameters has a name twice: {', '.join(twice)}")
    name_of = {id(parameter): name for name, parameter in named}
    unnamed = [f"{tuple(parameter.shape)}" for parameter in own if id(parameter) not in name_of]
    if unnamed:
        raise ValueError(
            f"parameters of the optimizer are not named in named_parameters; their shapes: {', '.join(unnamed)}"
        )
    return [(name_of[id(parameter)], parameter) for parameter in own]
