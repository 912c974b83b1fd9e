"""Objects of Python from one rank to others, without any framework."""

from __future__ import annotations

import pickle
from array import array
from typing import Any, List

from hvdrun import _hvd
from hvdrun.pickling import pickler

__all__ = ["broadcast", "gather_numbers"]


def gather_numbers(name: str, *numbers: int) -> List[List[int]]:
    """Returns the numbers of each rank. Every rank gives equally many, of 64 bits."""
    mine = array("q", numbers)
    data, _ = _hvd.allgather(name, mine, 1, len(mine), None, 0, None)
    found = array("q")
    found.frombytes(memoryview(data or b""))  # type: ignore[arg-type]  # a buffer
    return [list(found[at : at + len(mine)]) for at in range(0, len(found), len(mine))]


def broadcast(name: str, obj: Any, root: int, set_id: int = 0) -> Any:
    """Returns the object of the root on every rank of the set; on the root the object itself.

    root: its index in the set.
    """
    is_root = _hvd.set_rank(set_id) == root
    data = bytearray(pickler().dumps(obj)) if is_root else bytearray()
    size = array("q", [len(data)])
    _hvd.broadcast(f"{name}.size", size, root, set_id, None)
    if not is_root:
        data = bytearray(size[0])
    _hvd.broadcast(f"{name}.bytes", data, root, set_id, None)
    return obj if is_root else pickle.loads(data)
