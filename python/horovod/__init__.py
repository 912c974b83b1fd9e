"""Horovod's names for hvdrun: ``import horovod.torch as hvd``. The code is in the package hvdrun."""

from hvdrun.runner import run

__all__ = ["run"]
__version__ = "0.28.1"  # whose API this is
