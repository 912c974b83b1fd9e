"""Horovod's name for starting jobs from Python."""

from hvdrun.runner import run

__all__ = ["run"]
