"""Horovod's name for hvdrun.torch.elastic."""

from hvdrun.torch.elastic import *  # noqa: F403
from hvdrun.torch.elastic import __all__  # noqa: F401
