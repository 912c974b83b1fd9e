"""The job: joining and leaving, and the numbers of this rank."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, List, Sequence, Union

from hvdrun import _hvd, names
from hvdrun import process_sets as sets
from hvdrun._hvd import (
    cross_rank,
    cross_size,
    is_initialized,
    local_rank,
    local_size,
    rank,
    size,
    version,
)
from hvdrun.exit import watch

__all__ = [
    "abort",
    "cross_rank",
    "cross_size",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "version",
]


_begun = 0


def _check_comm(comm: Any) -> None:
    """hvdrun's jobs are of all ranks that were started together."""
    if comm is None:
        return
    ranks = list(range(comm.Get_size())) if hasattr(comm, "Get_size") else sorted(comm)
    if ranks and ranks != list(range(_hvd.size())):
        raise ValueError(
            f"init(comm=...): the job has {_hvd.size()} ranks, and the communicator {ranks}: "
            "use process sets for some of the ranks")


def init(
    comm: Any = None,
    process_sets: Union[str, Sequence[sets.ProcessSet], None] = None,
) -> None:
    """Joins the job. Returns when every rank has called it; a second call does nothing.

    comm: None, or all ranks of the job: a sequence of numbers, or a communicator of mpi4py.
    process_sets: sets to add, the same on all ranks. "dynamic" is understood; sets can always be added later. A rank
    that comes to an elastic job gets the sets that the others have from their init(), in the same order.

    HorovodInternalError: hvdrun did not start this process as it starts workers, or a rank has died.
    """
    global _begun
    was_initialized = _hvd.is_initialized()
    _hvd.init()
    _begun += 1
    _check_comm(comm)
    watch()
    if was_initialized:
        return
    _begin_sets(process_sets)


_before: List[Callable[[], object]] = []
_after: List[Callable[[], object]] = []


def when_left(before: Callable[[], object], after: Callable[[], object]) -> None:
    """Adds functions that are called before this rank leaves the job or a membership of it, and when it has left."""
    _before.append(before)
    _after.append(after)


def leaving() -> None:
    """This rank is about to leave."""
    for each in _before:
        each()


def left(sets_stay: bool = False) -> None:
    """This rank has left: names, process sets and what else belonged to the job are gone.

    sets_stay: process sets are not; another membership of the elastic job follows."""
    names.forget()
    if not sets_stay:
        sets.forget()
    for each in _after:
        each()


def begun() -> int:
    """Returns how often init() has been called."""
    return _begun


def _begin_sets(wanted: Union[str, Sequence[sets.ProcessSet], None]) -> None:
    sets.remember()
    if isinstance(wanted, str):
        if wanted.lower() != "dynamic":
            raise ValueError(f'init(process_sets={wanted!r}): it is a list of sets or "dynamic"')
        return
    sets.add_given(list(wanted or ()))


def shutdown() -> None:
    """Leaves the job. Returns when every rank has called it. The end of the program calls it too.

    DuplicateNameError: operations are pending. Memory of alloc() and empty() lives on.
    """
    leaving()
    try:
        _hvd.shutdown()
    finally:
        if not _hvd.is_initialized():
            left()


def abort(why: str) -> None:
    """Says that this rank has failed, and why.

    All pending and later operations of all ranks raise HorovodInternalError at once, with this rank and `why`. The
    process goes on: it may print, clean up and exit, soon. An uncaught exception does this by itself.

    NotInitializedError: init() was not called. In a job that has failed it does nothing.
    """
    _hvd.abort(why)


def is_homogeneous() -> bool:
    """Returns whether each host has as many ranks as this one, as far as the numbers of this rank tell."""
    return _hvd.size() == _hvd.local_size() * _hvd.cross_size()


def start_timeline(file_path: Union[str, "os.PathLike[str]"], mark_cycles: bool = False) -> None:
    """Starts a file with this rank's work on each tensor, for chrome://tracing and Perfetto.

    file_path: ``%r`` stands for the rank. Without it, the rank is put before the extension, and the path itself
    becomes a link to the file of rank 0.
    mark_cycles: the start of each operation is marked.

    DuplicateNameError: a file is being written already.
    """
    path = os.fspath(file_path)
    _hvd.timeline_start(path, mark_cycles)
    if "%r" not in path and _hvd.rank() == 0:
        _link_first(path)


def _link_first(path: str) -> None:
    """Scripts for Horovod look for one file with that name."""
    stem, extension = os.path.splitext(path)
    worker = os.environ.get("HVD_WORKER", "0")  # in an elastic job any worker can be rank 0
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.symlink(os.path.basename(f"{stem}.{worker}{extension}"), path)


def stop_timeline() -> None:
    """Completes the timeline's file. HorovodInternalError: not everything could be written."""
    _hvd.timeline_stop()
