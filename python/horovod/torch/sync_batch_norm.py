"""Horovod's name for hvdrun.torch.sync_batch_norm."""

from hvdrun.torch.sync_batch_norm import *  # noqa: F403
from hvdrun.torch.sync_batch_norm import __all__  # noqa: F401
