"""Elastic jobs: ranks die, hosts come and go, and the others train on.

::

    @hvd.elastic.run
    def train(state):
        while state.batch < 1000:
            ...
            state.batch += 1
            state.commit()

    train(hvd.elastic.ObjectState(batch=0))

Started with ``hvdrun --min-np 2 --max-np 8 ...``. A state is saved by commit(). When a rank dies, the others go back
to their last commit, and go on as the next membership. Ranks come and go at a commit, or at check_host_updates().

After a change the ranks exchange the numbers of their commits. Ranks that are behind, and new ones, take the state of
a rank that is furthest: of one on their own host, if there is one. The others exchange nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import platform
import sys
import threading
import zlib
from array import array
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

from hvdrun import _hvd, job, objects
from hvdrun import process_sets as sets
from hvdrun._hvd import membership
from hvdrun.exceptions import (
    DuplicateNameError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    HvdError,
    LeftJobError,
)
from hvdrun.process_sets import process_sets

__all__ = [
    "ObjectState",
    "State",
    "membership",
    "membership_changed",
    "notification_manager",
    "process_sets",
    "reset",
    "run",
    "run_fn",
]

_MAX = 4  # hvd_op
_STAGE_STATE, _STAGE_STEP = 1, 2
_NEW, _NEWCOMER = -1, -2
"""Numbers of commits: the state was never that of other ranks, and its rank was there at the start, or came later."""
_synchronized = False
"""This rank has had the state of the others."""


def membership_changed() -> bool:
    """Returns whether another membership waits. Other ranks may hear of it at another time."""
    return _hvd.membership_changed()


def reset() -> None:
    """Enters the next membership: rank(), size() and their like have new values.

    Process sets keep their objects and those of their ranks that stay. The use of a set without ranks is an error.

    LeftJobError: this worker has no rank any more. DuplicateNameError: operations are pending, and nothing has changed.
    """
    stays = _hvd.is_initialized() and membership() > 0
    job.leaving()
    try:
        _hvd.reset()
    except DuplicateNameError:
        raise
    except BaseException:
        job.left()
        raise
    job.left(sets_stay=stays)
    sets.carry()


_asking = threading.Lock()


def failure() -> Optional[HorovodInternalError]:
    """Returns what has ended the present membership, if a rank's death has. It takes some 50 us."""
    if not _hvd.is_initialized() or not membership():
        return None
    with _asking:
        try:
            alone = _hvd.set_open(f"hvd.elastic.alone.{_hvd.rank()}", [_hvd.rank()])
            _hvd.barrier(alone)  # of this rank only; no operation begins in a membership that has ended
            _hvd.set_close(alone)
        except HorovodInternalError as error:
            return error
    return None


class State:
    """The state of a training, that outlives changes of the ranks.

    Derive from it, or use ObjectState or a framework's. A class of your own gives save(), restore(), and sync(), which
    all ranks call. bcast_object, get_rank: as Horovod's; not needed.
    """

    def __init__(
        self, bcast_object: Optional[Callable[..., Any]] = None, get_rank: Optional[Callable[[], int]] = None
    ) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank or _hvd.rank
        self._reset_callbacks: List[Callable[[], Any]] = []
        self._updates: List[Any] = []
        self._commits = _NEW
        self._ahead = False  # of the last commit
        self._stepped = 0  # the last membership in which hvdrun was told of a step

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Adds functions that are called after each change of the ranks, before the state is synchronized."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have changed."""
        self._updates.clear()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: Any) -> None:
        """Hosts have changed. hvdrun tells it in another way; here for scripts that call it."""
        self._updates.append((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, and lets ranks come and go. All ranks call it at the same place.

        HostsUpdatedInterrupt, for run(): the ranks are about to change. HorovodInternalError: a rank has gone.
        """
        before = max(self._commits, _NEW)
        self.save()
        self._commits = before + 1  # save() of a class may have counted
        self._ahead = False
        self._leave_if_changed()

    def check_host_updates(self) -> None:
        """Lets ranks come and go, without saving. All ranks call it at the same place. Raises as commit()."""
        self._ahead = True
        self._leave_if_changed()

    def _leave_if_changed(self) -> None:
        changed = bool(self._updates)
        if membership():
            self._tell_of_step()
            flag = array("B", [changed or membership_changed()])
            _hvd.allreduce("hvd.elastic.changed", flag, None, _MAX, 0, 1.0, 1.0, 0, None)
            changed = bool(flag[0])
        if changed:
            self._updates.clear()
            raise HostsUpdatedInterrupt(False)

    def _tell_of_step(self) -> None:
        if self._stepped == membership():
            return
        self._stepped = membership()
        _hvd.stage(_STAGE_STEP)

    def synchronize(self) -> None:
        """Makes the states of all ranks equal: all take the state of the furthest rank. run() calls it on all ranks."""
        global _synchronized
        if self._commits == _NEW and not _synchronized and _came_later():
            self._commits = _NEWCOMER
        mine = 2 * self._commits + self._ahead if self._commits >= 0 else self._commits
        told = objects.gather_numbers("hvd.elastic.version", mine, zlib.crc32(platform.node().encode()))
        versions = [version for version, _ in told]
        if max(versions) == _NEWCOMER:
            raise HvdError("no rank is left that has the state of the training: all of them came later")
        if _has_own_sync(type(self)):
            self.sync()
            best = versions[0]
        else:
            best = max(versions)
            self._take(best, versions, [host for _, host in told])
        self._commits = (best + 1) // 2
        self._ahead = False
        _synchronized = True
        _hvd.stage(_STAGE_STATE)

    def _take(self, best: int, versions: List[int], hosts: List[int]) -> None:
        rank = _hvd.rank()
        for root, ranks in _givers(best, versions, hosts).items():
            if len(ranks) > 1 and rank in ranks:
                with _some_ranks(ranks, len(versions)) as among:
                    self.sync_from(root, among)
        self.sync_all()
        if versions[rank] != best or best % 2:  # odd: the state was never saved
            self.keep()

    def sync_from(self, root: int, among: sets.ProcessSet) -> None:
        """Takes the state of rank `root`. Only ranks whose states differ from that call it, and the root itself."""
        raise NotImplementedError

    def sync_all(self) -> None:
        """Exchanges what differs between the ranks by its nature. All ranks call it, each time."""

    def keep(self) -> None:
        """Copies the state, as save(). It does not count as another state."""
        self.save()

    def save(self) -> None:
        """Keeps a copy of the state, in this process."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Takes the state of rank 0, on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """The ranks have changed: forgets what depended on them."""


def _came_later() -> bool:
    """Returns whether this worker is none of those that the job began with."""
    later = int(os.environ.get("HVD_WORKER", 0)) >= int(os.environ.get("HVD_SIZE", 1))
    return membership() > 0 and (later or "HVD_NEWCOMER" in os.environ)


def _givers(best: int, versions: List[int], hosts: List[int]) -> Dict[int, List[int]]:
    """Returns ranks that give their state, each with all ranks that take part: a rank of the own host gives it."""
    if best < 0:  # nobody has trained: all take that of rank 0
        return {0: list(range(len(versions)))}
    first = versions.index(best)
    near = {host: rank for rank, host in reversed(list(enumerate(hosts))) if versions[rank] == best}
    groups: Dict[int, List[int]] = {}
    for rank, host in enumerate(hosts):
        if versions[rank] != best:
            groups.setdefault(near.get(host, first), []).append(rank)
    return {root: sorted([root, *ranks]) for root, ranks in groups.items()}


def _has_own_sync(kind: type) -> bool:
    """A class that has sync() alone, as Horovod's users write it, is synchronized by that."""
    for each in kind.__mro__:
        if "sync_from" in vars(each):
            return False
        if "sync" in vars(each):
            return True
    return False


@contextlib.contextmanager
def _some_ranks(ranks: List[int], size: int) -> Iterator[sets.ProcessSet]:
    """Gives a process set of these ranks, without asking the others."""
    if len(ranks) == size:
        yield sets.global_process_set
        return
    among = sets.ProcessSet(ranks)
    among.process_set_id = _hvd.set_open(f"hvd.elastic.{membership()}.{ranks[0]}", ranks)
    try:
        yield among
    except HorovodInternalError:
        with contextlib.suppress(HvdError):
            _hvd.set_close(among.process_set_id)  # else the next membership would have the set
        raise
    _hvd.set_close(among.process_set_id)


class ObjectState(State):
    """A state of objects that pickle can write. Each keyword becomes an attribute."""

    def __init__(
        self,
        bcast_object: Optional[Callable[..., Any]] = None,
        get_rank: Optional[Callable[[], int]] = None,
        **kwargs: Any,
    ) -> None:
        self._saved_state: Dict[str, Any] = dict(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object, get_rank)

    def save(self) -> None:
        self.keep()
        self._commits = max(self._commits, _NEW) + 1
        self._ahead = False

    def keep(self) -> None:
        self._saved_state = copy.deepcopy(self._live())

    def restore(self) -> None:
        self._set(copy.deepcopy(self._saved_state))
        self._ahead = False

    def _live(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _set(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def sync_from(self, root: int, among: sets.ProcessSet) -> None:
        index, number = sets.index_of(among, root), sets.set_id_of(among)
        self._set(objects.broadcast("hvd.elastic.objects", self._live(), index, number))

    def sync(self) -> None:
        live = self._live()
        if self._bcast_object:
            self._set(self._bcast_object(live))
        else:
            self._set(objects.broadcast("hvd.elastic.objects", live, 0))
        self.keep()


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Returns `func` as a function that goes on when the ranks change. Its first argument is the state.

    reset: enters the next membership.
    """

    @functools.wraps(func)
    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        state._commits, state._ahead = _NEW, False  # whatever was saved before, no other rank knows it
        changed = False
        while True:
            if changed:
                _enter(reset)
            try:
                if changed:
                    state.on_reset()
                state.synchronize()
                return func(state, *args, **kwargs)
            except HorovodInternalError:
                if not _is_elastic():
                    raise
                state.restore()
            except HostsUpdatedInterrupt:
                pass
            except LeftJobError:
                sys.exit(0)
            except RuntimeError as error:
                # PyTorch's C++ turns an exception of a process group into a RuntimeError of its own.
                if isinstance(error, HvdError) or failure() is None:
                    raise
                state.restore()
            changed = True

    return train


def _is_elastic() -> bool:
    return not _hvd.is_initialized() or membership() > 0


def _enter(reset: Callable[[], Any]) -> None:
    try:
        reset()
    except LeftJobError:
        sys.exit(0)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the training function of an elastic job. Its first argument is a State."""
    return run_fn(func, reset)


class WorkerNotificationManager:
    """Horovod's name for what tells a worker of hosts. hvdrun tells it through the engine, so nothing runs here."""

    def __init__(self) -> None:
        self._listeners: List[State] = []

    def init(self) -> None:
        """Does nothing."""

    def register_listener(self, listener: State) -> None:
        """Adds a state that handle_hosts_updated() tells."""
        self._listeners.append(listener)

    def remove_listener(self, listener: State) -> None:
        """Removes a state."""
        self._listeners = [each for each in self._listeners if each is not listener]

    def handle_hosts_updated(self, timestamp: float, update_res: Any) -> None:
        """Tells all states."""
        for listener in self._listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()
