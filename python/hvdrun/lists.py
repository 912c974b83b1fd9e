"""Lists in parts."""

from __future__ import annotations

from itertools import pairwise
from typing import List, Sequence, TypeVar

__all__ = ["split_list"]

Item = TypeVar("Item")


def split_list(items: Sequence[Item], n: int) -> List[List[Item]]:
    """Returns n parts of a list, in order; the first ones have an item more if the length is no multiple of n."""
    size, rest = divmod(len(items), n)
    ends = [number * size + min(number, rest) for number in range(n + 1)]
    return [list(items[begin:end]) for begin, end in pairwise(ends)]
