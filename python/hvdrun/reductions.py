"""The ways to combine tensors, as Horovod numbers them."""

from __future__ import annotations

import warnings
from typing import Optional

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "reduce_op"]

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


def reduce_op(average: Optional[bool], op: Optional[int]) -> int:
    """Returns the op that `average` (deprecated) and `op` mean together. ValueError: both are given."""
    if op is not None:
        if average is not None:
            raise ValueError("give op or average, not both; op is the newer one")
        return op
    if average is None:
        return Average
    warnings.warn("average is deprecated; op=hvd.Average or op=hvd.Sum says the same", DeprecationWarning, stacklevel=3)
    return Average if average else Sum
