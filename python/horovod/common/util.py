"""Horovod's helpers that scripts import."""

# ruff: noqa: ARG001 - the arguments are Horovod's

from __future__ import annotations

import importlib.util
import os
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional

from hvdrun import features
from hvdrun.lists import split_list

__all__ = [
    "ccl_built",
    "check_extension",
    "check_num_rank_power_of_2",
    "cuda_built",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
]


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether the framework (``"torch"``) is there and served by this package."""
    found = ext_base_name == "torch" and importlib.util.find_spec("torch") is not None
    if verbose:
        print(f"extension {ext_base_name}: {'available' if found else 'not available'}")
    return found


def check_extension(ext_name: str, *arguments: Any) -> None:
    """ImportError: this package does not serve the framework, or the framework is not installed."""
    name = ext_name.lower().replace("horovod_with_", "").replace("pytorch", "torch")
    if not extension_available(name):
        raise ImportError(f"{ext_name}: the framework is not installed, or is not served by this package")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether the framework has a CUDA device."""
    if not extension_available(ext_base_name, verbose):
        return False
    import torch

    return torch.cuda.is_available()


def mpi_built(verbose: bool = False) -> bool:
    """Returns False: no MPI is needed."""
    return features.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Returns True: see hvdrun.features."""
    return features.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """Returns the version of the NCCL that is found, or 0."""
    return features.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return features.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return features.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Returns True: CUDA is opened when it is needed."""
    return features.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Returns False."""
    return features.rocm_built()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


check_num_rank_power_of_2 = num_rank_is_power_2


def is_iterable(x: Any) -> bool:
    """Returns whether one can iterate over an object."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


@contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets variables of the environment within a context; None removes one."""
    before = {name: os.environ.get(name) for name in kwargs}
    try:
        _set(kwargs)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, Optional[str]]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
