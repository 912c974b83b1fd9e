"""A communication hook for torch's DistributedDataParallel, which wants annotations that are no strings."""

from typing import Optional

import torch
import torch.distributed as dist

from hvdrun import _hvd
from hvdrun.torch.tensors import address

from .group import HvdProcessGroup

__all__ = ["average_hook"]

_AVERAGE = 0  # hvd_op
_NO_COMPRESSION = 0


def average_hook(
    group: Optional[dist.ProcessGroup], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages gradients in one pass: torch itself divides each bucket first, in a pass of its own.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, hvdrun.c10d.average_hook)

    group: of the backend hvd; None: the default group. bucket: torch's GradBucket. Returns a future of its buffer.
    """
    chosen = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(chosen, HvdProcessGroup):
        raise ValueError(f"average_hook is for groups of the backend hvd, not {chosen!r}")
    buffer: torch.Tensor = bucket.buffer()
    arguments = (address(buffer), None, _AVERAGE, chosen.set, 1.0, 1.0, _NO_COMPRESSION, buffer)
    work = chosen.behind_backward(_hvd.allreduce, chosen.next_name(), arguments, (buffer,))
    return work.get_future().then(lambda future: future.value()[0])
