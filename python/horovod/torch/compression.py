"""Horovod's name for hvdrun.torch.compression."""

from hvdrun.torch.compression import *  # noqa: F403
from hvdrun.torch.compression import __all__  # noqa: F401
