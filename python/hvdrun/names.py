"""Names of operations that the caller gave no name.

Ranks match such operations by the order of their calls: each kind of operation counts, in each process set. A join
makes ranks call different numbers of operations; when it has ended, all of them count from 0 again.
"""

from __future__ import annotations

from itertools import count
from typing import Dict, Iterator, Tuple

__all__ = ["count_anew", "forget", "next_name"]

# A new name takes some 40 us and 10 KB, so names come round. The binding, which knows these names by ".noname.", holds
# an operation back until the one of the same name before has ended. So any number may be pending.
_NAMES = 1024

_calls: Dict[Tuple[str, int], Iterator[int]] = {}
_counts = 0
"""How often the ranks have begun to count anew. Older operations may be pending, so names show it."""


def next_name(kind: str, process_set: int = 0) -> str:
    """Returns the name of this call, for example ``allreduce.noname.7``.

    kind: the operation. process_set: its id.
    """
    key = (kind, process_set)
    counter = _calls.get(key)
    if counter is None:
        counter = _calls.setdefault(key, count())
    call = next(counter) % _NAMES  # one step: threads get different numbers
    return f"{kind}.noname.{_counts}.{call}" if _counts else f"{kind}.noname.{call}"


def count_anew() -> None:
    """All ranks are at one point: a join has ended."""
    global _counts
    _calls.clear()
    _counts += 1


def forget() -> None:
    """The job has ended."""
    global _counts
    _calls.clear()
    _counts = 0
