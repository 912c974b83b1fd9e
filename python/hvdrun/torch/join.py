"""Ranks with unequal amounts of work, and barriers."""

from __future__ import annotations

from hvdrun import _hvd
from hvdrun.arrays import join as join_all
from hvdrun.process_sets import ProcessSet, global_process_set, set_id_of

__all__ = ["barrier", "join"]


def join(device: int = -1) -> int:  # noqa: ARG001
    """Says that this rank has no more work, and waits until all ranks have said so.

    Meanwhile this rank gives zeros to the allreduces of the others. Returns the rank that joined last. `device` is
    not needed; scripts for Horovod give it. HorovodInternalError: another rank has gone, or called an operation
    that needs every rank.
    """
    return join_all()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    _hvd.barrier(set_id_of(process_set))
