"""Horovod's name for hvdrun.torch."""

from hvdrun.torch import *  # noqa: F403
from hvdrun.torch import __all__  # noqa: F401

import horovod.torch.elastic  # noqa: F401
