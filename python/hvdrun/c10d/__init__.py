"""torch.distributed on hvdrun's engine: ``init_process_group("hvd")``.

hvdrun's jobs only: start the script with ``hvdrun -np 4 python train.py``. PyTorch 2.5 and newer knows the backend
without an import. For an older one, import this module first. docs/torch-distributed.md has the methods and their
versions of PyTorch.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Optional

import torch.distributed as dist

from . import elastic
from .group import HvdProcessGroup
from .hooks import average_hook

__all__ = ["HvdProcessGroup", "average_hook", "elastic", "monitored_barrier", "register"]


def register() -> None:
    """Makes the backend known to torch.distributed. Further calls do nothing."""
    import hvdrun_torch

    hvdrun_torch.register()


def monitored_barrier(
    group: Optional[dist.ProcessGroup] = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """torch.distributed.monitored_barrier for groups of the backend hvd; torch's own is for gloo only.

    Returns when all ranks of the group have called. RuntimeError on rank 0 after `timeout` (that of the group): it
    names the first rank that has not, or all such ranks with wait_all_ranks.
    """
    chosen = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(chosen, HvdProcessGroup):
        raise ValueError(f"monitored_barrier of hvdrun.c10d is for groups of the backend hvd, not {chosen!r}")
    chosen.monitored_barrier(timeout, wait_all_ranks)


register()
