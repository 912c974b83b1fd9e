"""Process sets: some of the ranks, which do operations among themselves."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from hvdrun import _hvd
from hvdrun.exceptions import ProcessSetError

__all__ = [
    "ProcessSet",
    "add_given",
    "add_process_set",
    "carry",
    "forget",
    "global_process_set",
    "index_of",
    "process_sets",
    "remember",
    "remove_process_set",
    "set_id_of",
]


_OPENED = 4096
"""Numbers from here on are of hvd_set_open: each rank has its own."""


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
        return hash(self.process_set_id)  # the ranks of an elastic job change

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

    In an elastic job a rank that came later, or whose call was interrupted by a change of the ranks, gets the set that
    the others have.
    """
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made!r} was added already")
    try:
        number = _hvd.set_add(made.ranks or [])
    except ProcessSetError:
        same = [each for each in _nameless() if _hvd.set_ranks(each) == made.ranks]
        if not same:
            raise
        number = same[0]
    return _bind(made, number)


def _bind(made: ProcessSet, number: int) -> ProcessSet:
    made.process_set_id = number
    made.ranks = _ranks_of(number)
    _added.append(made)
    return made


def _ranks_of(number: int) -> List[int]:
    """Returns the ranks of a set; none of a set that has lost all of them."""
    try:
        return _hvd.set_ranks(number)
    except ProcessSetError:
        return []


def _nameless() -> List[int]:
    """Returns the numbers of the sets of an elastic job for which this rank has no object."""
    if not _hvd.membership():
        return []
    mine = {each.process_set_id for each in _added}
    return [each for each in _hvd.set_ids() if 0 < each < _OPENED and each not in mine]


def process_sets() -> Dict[int, ProcessSet]:
    """Returns the process sets that there are, by their ids, which are the same on all ranks.

    A rank that has come to an elastic job finds those of the others here.
    """
    for number in _nameless():
        _bind(ProcessSet(()), number)
    there = set(_hvd.set_ids())
    return {0: global_process_set, **{
        each.process_set_id: each for each in _added if each.process_set_id in there and each.process_set_id}}


def add_given(wanted: Sequence[ProcessSet]) -> None:
    """Adds the sets that were given to init(). The others of an elastic job, which is under way, have them."""
    late = _hvd.membership() > 1 and any(number in _hvd.set_ids() for number in range(1, len(wanted) + 1))
    for number, each in enumerate(wanted, 1):
        if late:
            _bind(each, number)
        else:
            add_process_set(each)


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


def carry() -> None:
    """The ranks of the elastic job have changed: each set has those of its ranks that stay, by their new numbers."""
    remember()
    for each in _added:
        each.ranks = _ranks_of(set_id_of(each))


def forget() -> None:
    """The job has ended, and its sets with it."""
    global_process_set.ranks = None
    for each in _added:
        each.process_set_id = None
    _added.clear()
