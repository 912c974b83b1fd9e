"""Horovod's name for hvdrun.torch.optimizer."""

from hvdrun.torch.optimizer import *  # noqa: F403
from hvdrun.torch.optimizer import __all__  # noqa: F401
