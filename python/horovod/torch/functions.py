"""Horovod's name for hvdrun.torch.functions."""

from hvdrun.torch.functions import *  # noqa: F403
from hvdrun.torch.functions import __all__  # noqa: F401
