"""Horovod's name for starting jobs from Python."""

from hvdrun.run import run

__all__ = ["run"]
