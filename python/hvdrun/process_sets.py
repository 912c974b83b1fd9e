"""Process sets: some of the ranks, which do operations among themselves."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from hvdrun import _hvd

__all__ = [
    "ProcessSet",
    "add_process_set",
    "forget",
    "global_process_set",
    "index_of",
    "remember",
    "remove_process_set",
    "set_id_of",
]


class ProcessSet:
    """Some of the ranks.

    A new object is known to nobody: give it to :func:`add_process_set`, or to ``init(process_sets=...)``.

    ranks_or_comm: the ranks in the job, in any order; or a communicator of mpi4py whose ranks are those.
    """

    process_set_id: Optional[int] = None
    ranks: Optional[List[int]] = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Union[Sequence[int], Any]) -> None:
        if hasattr(ranks_or_comm, "allgather"):
            self.mpi_comm = ranks_or_comm
            self.ranks = sorted(ranks_or_comm.allgather(_hvd.rank()))
        else:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)

    def _id(self) -> int:
        if self.process_set_id is None:
            raise ValueError(f"{self!r} was not added: call add_process_set first")
        return self.process_set_id

    def size(self) -> int:
        """Returns the number of ranks in the set. ValueError: the set was not added."""
        return _hvd.set_size(self._id())

    def rank(self) -> int:
        """Returns this rank's index in the set. ProcessSetError: this rank is not in the set."""
        return _hvd.set_rank(self._id())

    def included(self) -> bool:
        """Returns whether this rank is in the set."""
        return _hvd.rank() in _hvd.set_ranks(self._id())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and (self.process_set_id, self.ranks) == (
            other.process_set_id, other.ranks)

    def __hash__(self) -> int:
        return hash((self.process_set_id, tuple(self.ranks or ())))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalSet(ProcessSet):
    """All ranks."""

    process_set_id = 0

    def __init__(self) -> None:
        super().__init__(())
        self.ranks = None  # known after init()


global_process_set: ProcessSet = _GlobalSet()
_added: List[ProcessSet] = []


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Makes a process set. All ranks of the job call this with the same ranks, also those that are not in it.

    Returns the set. ProcessSetError: these ranks have a set already.
    """
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made!r} was added already")
    made.process_set_id = _hvd.set_add(made.ranks or [])
    made.ranks = _hvd.set_ranks(made.process_set_id)
    _added.append(made)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. All ranks of the job call this.

    Returns whether there was such a set. DuplicateNameError: an operation in the set was not waited for.
    """
    if process_set.process_set_id is None or process_set is global_process_set:
        return False
    _hvd.set_remove(process_set.process_set_id)
    process_set.process_set_id = None
    _added[:] = [each for each in _added if each is not process_set]
    return True


def set_id_of(process_set: ProcessSet) -> int:
    """Returns the number of a process set. ValueError: the set was not added."""
    chosen = process_set.process_set_id
    if chosen is None:
        raise ValueError(f"{process_set!r} was not added: call add_process_set first")
    return chosen


def index_of(process_set: ProcessSet, rank: int) -> int:
    """Returns the index in the set of a rank of the job. ValueError: the rank is not in the set."""
    if process_set.process_set_id == 0:
        return rank
    ranks = process_set.ranks or []
    if rank not in ranks:
        raise ValueError(f"rank {rank} is not in {process_set!r}")
    return ranks.index(rank)


def remember() -> None:
    """The job has begun."""
    global_process_set.ranks = list(range(_hvd.size()))


def forget() -> None:
    """The job has ended, and its sets with it."""
    global_process_set.ranks = None
    for each in _added:
        each.process_set_id = None
    _added.clear()
