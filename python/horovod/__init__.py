"""Horovod's names for hvdrun: ``import horovod.torch as hvd``. The code is in the package hvdrun."""

import os

from hvdrun_horovod import check

check(os.path.dirname(os.path.abspath(__file__)))

from hvdrun.runner import run  # noqa: E402 - files of another Horovod may be in the way

__all__ = ["run"]
__version__ = "0.28.1"  # whose API this is
