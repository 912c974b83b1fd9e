"""Horovod's name for the operations of hvdrun.torch."""

from hvdrun.torch import *  # noqa: F403
from hvdrun.torch import __all__  # noqa: F401
from hvdrun.torch.autograd import (  # noqa: F401
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
