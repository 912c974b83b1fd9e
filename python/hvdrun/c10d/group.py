"""The process group of the backend hvd: its ranks, its process set of the engine, its life.

    init_process_group -> create() -> HvdProcessGroup    the default group: the job, which init() joins
    new_group          -> create() -> HvdProcessGroup    some ranks: hvd_set_open, which only these call
    destroy_process_group -> shutdown()                  hvd_set_close; of the default group: the job ends
    hvd_reset, hvd_shutdown -> end()                     all groups: their ranks are those of a former membership

In an elastic job the default group is one of the present membership, and its end does not end the job (elastic.py).

Tensors of a GPU go to a group of nccl that belongs to this one, and is made with its first such tensor.
"""

from __future__ import annotations

import hashlib
import weakref
from datetime import timedelta
from functools import partial
from typing import Any, Dict, NoReturn, Sequence

import torch
import torch.distributed as dist

from hvdrun import _hvd, job
from hvdrun.exceptions import DuplicateNameError, HvdError, from_status

from . import gpu
from .collectives import Collectives
from .messages import Messages

__all__ = ["HvdProcessGroup", "create"]

_WORLD = 0
_SET_UNKNOWN = -10  # HVD_ERR_SET_UNKNOWN

_groups: weakref.WeakSet[HvdProcessGroup] = weakref.WeakSet()
"""Those that have not ended."""
_begun = 0
_began_job = False
"""init_process_group has called init(), so destroy_process_group calls shutdown()."""


class HvdProcessGroup(Collectives, Messages, dist.ProcessGroup):
    """Ranks that do operations of the engine. All methods are torch's own; see collectives.py and messages.py."""

    def __init__(self, rank: int, size: int, set_id: int, label: str, store: Any, timeout: timedelta) -> None:
        dist.ProcessGroup.__init__(self, rank, size)
        Messages.__init__(self, rank, size, set_id, timeout.total_seconds(), label)
        self._group_name = self._group_desc = ""
        self._store = store
        self._gpu_group: Any = None
        self._timeout = timeout
        self._membership = _hvd.membership()
        self._ended = False
        _groups.add(self)

    def gpu_group(self) -> Any:
        """Returns the group for tensors of CUDA devices. All ranks come here with their first such tensor."""
        if self._gpu_group is None:
            self._gpu_group = gpu.make_group(self._store, self.index, self.ranks, self._timeout)
        return self._gpu_group

    # ---- what torch asks ----

    def getBackendName(self) -> str:
        return "hvd"

    def name(self) -> str:
        return "hvd"

    def getRank(self) -> int:
        return self.index

    def getSize(self) -> int:
        return self.ranks

    # torch's own keep these in a backend below the group, of which there is none.

    @property
    def group_name(self) -> str:
        return self._group_name

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def getGroupName(self) -> str:
        return self._group_name

    def getGroupDesc(self) -> str:
        return self._group_desc

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    setGroupName = _set_group_name

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    setGroupDesc = _set_group_desc

    def set_timeout(self, timeout: timedelta) -> None:
        self.seconds = timeout.total_seconds()

    setTimeout = set_timeout

    supports_coalescing = False  # a batch of messages needs no group of calls
    supports_splitting = False
    supports_time_estimate = False

    def _get_backend(self, device: Any = None) -> Any:
        """Returns what does operations on tensors of the device: the group itself, or its group of nccl."""
        if getattr(device, "type", None) == "cuda" and torch.cuda.is_available():
            return self.gpu_group()
        return self

    def _start_coalescing(self, device: Any = None) -> None:
        backend = self._get_backend(device)
        if backend is self:
            self.gather_works()
        else:
            backend._start_coalescing()

    def _end_coalescing(self, device: Any = None) -> Any:
        backend = self._get_backend(device)
        return self.joined_works() if backend is self else backend._end_coalescing()

    def _set_sequence_number_for_group(self) -> None:
        """The names of operations are numbers already."""

    def _get_sequence_number_for_group(self) -> int:
        return 0

    # ---- the end ----

    def shutdown(self) -> None:
        """Ends the group. All of its ranks call this. After a failure of the job it does not wait."""
        if self._gpu_group is not None and hasattr(self._gpu_group, "shutdown"):
            self._gpu_group.shutdown()
        self.end_thread()
        if self._ended or not _hvd.is_initialized():
            return
        try:
            if self.set != _WORLD:
                _hvd.set_close(self.set)
            else:
                _leave_job()
        except DuplicateNameError:
            raise  # operations are pending, and nothing has changed
        except HvdError:
            pass  # the ranks know by now, from their operations; the end of the program says it again

    def end_thread(self) -> None:
        """Operations behind backward have ended, or a failure ends them."""
        if self._background is not None:
            self._background.end()
            self._background = None

    def end(self) -> None:
        """The ranks have left the membership or the job that the group belonged to."""
        self._ended = True
        refuse = partial(_refuse, self._what_ended())
        self.__dict__.update(begin=refuse, behind_backward=refuse)

    def check(self) -> None:
        """ProcessSetError: the group has ended."""
        if self._ended:
            _refuse(self._what_ended())

    def _what_ended(self) -> str:
        name, again = f"the group of {self.ranks} ranks", "make it anew with new_group()"
        if self.set == _WORLD:
            name = "the default group"
            again = "make it anew with hvdrun.c10d.elastic.reset(), or destroy_process_group() and init_process_group()"
        when = f"membership {self._membership}" if self._membership else "the job"
        return f"{name} ended with {when}: {again}"

    def abort(self) -> None:
        """Nobody waits: pending operations stay pending, until the program ends."""
        if self._gpu_group is not None:
            self._gpu_group.abort()


def _refuse(sentence: str, *_arguments: Any, **_options: Any) -> NoReturn:
    raise from_status(_SET_UNKNOWN, sentence)


if torch.cuda.is_available():
    for _name, _method in gpu.methods_of(HvdProcessGroup).items():
        setattr(HvdProcessGroup, _name, _method)


def _leave_job() -> None:
    """Ends the job, unless the program has called init() itself, too. A membership ends with a reset."""
    global _began_job
    if _hvd.membership():
        return
    if _began_job and job.begun() == _begun:
        job.shutdown()
    _began_job = False


def _join_job(rank: int, size: int) -> None:
    global _began_job, _begun
    if _began_job and _hvd.is_initialized():
        _leave_job()  # 1.13 and 2.6 tell nobody that the group was destroyed
    if not _hvd.is_initialized():
        job.init()
        _made.clear()
        _began_job, _begun = True, job.begun()
    if (rank, size) != (_hvd.rank(), _hvd.size()):
        hint = f"start the program with hvdrun -np {size}, and give no other rank or world_size"
        if _hvd.membership():
            hint = "give no rank and world_size in an elastic job"
        raise RuntimeError(
            f"init_process_group: this process is rank {rank} of {size} for torch, and rank {_hvd.rank()} of "
            f"{_hvd.size()} for hvdrun: {hint}")


_made: Dict[str, int] = {}
"""How many groups each list of ranks has made in this job."""


def _end_threads() -> None:
    for each in list(_groups):
        each.end_thread()


def _end_groups() -> None:
    for each in list(_groups):
        each.end()
    _groups.clear()
    _made.clear()


job.when_left(_end_threads, _end_groups)


def _next_label(ranks: Sequence[int]) -> str:
    """Returns what stands for a new group in names of the engine.

    Groups of the same ranks are made by all of these in one order, so they count alike. torch's own names differ
    between ranks of which some have made groups without the others.
    """
    text = ".".join(map(str, ranks))
    if len(text) > 100:
        text = hashlib.sha256(text.encode()).hexdigest()
    _made[text] = _made.get(text, 0) + 1
    return f"{text}.{_made[text]}"


def create(options: Any, _backend_options: Any = None) -> HvdProcessGroup:
    """Makes the group that torch asks for; only its ranks call this. Returns when all have called.

    options: torch's _DistributedBackendOptions.
    """
    rank, size, ranks = options.group_rank, options.group_size, list(options.global_ranks_in_group)
    set_id, label = _WORLD, "all"
    if not ranks:
        _join_job(rank, size)
    else:
        default: Any = dist.distributed_c10d._get_default_group()
        if isinstance(default, HvdProcessGroup):
            default.check()
        if ranks != sorted(ranks):
            raise ValueError(f"new_group: the backend hvd needs ascending ranks, not {ranks}")
        label = _next_label(ranks)
        set_id = _hvd.set_open(f"c10d.{label}", ranks)
    group = HvdProcessGroup(rank, size, set_id, label, options.store, options.timeout)
    group._set_group_name(options.group_id or "")
    return group
